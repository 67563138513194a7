"""Command `stop`: lets the running service end, and waits for it."""

from __future__ import annotations

import click

from spar.cli.client import service
from spar.cli.context import Options, fail, show
from spar.operations.agent import stop as request_stop
from spar.service import exit_codes as exits


@click.command()
@click.option(
    "--wait", "seconds", type=click.FloatRange(0), default=60.0, show_default=True, help="Seconds to wait for its end."
)
@click.pass_obj
def stop(options: Options, seconds: float) -> None:
    """Let the running service finish its work and end; returns when its process has ended.

    \b
    Examples:
      spar stop
      spar stop --wait 5
    """
    import time

    from spar.file_lock import STATE_LOCK, holder

    with service(options) as client:
        change = client.call(request_stop)
    until, lock = time.monotonic() + seconds, options.state_dir() / STATE_LOCK
    while holder(lock) is not None:  # the kernel releases the lock, however the process ends
        if time.monotonic() >= until:
            fail(f"the service still drains after {seconds:g} s; it goes on draining", exits.TIMED_OUT)
        time.sleep(0.05)
    show(
        options,
        {"agent": change.agent, "before": change.before, "after": "stopped"},
        f"{change.agent}: stopped",
    )
