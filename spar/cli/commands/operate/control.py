"""Commands that pause, resume, reload and stop the running service."""

from __future__ import annotations

from typing import Any

import click

from spar.cli.client import service
from spar.cli.context import Options, fail, show
from spar.service import exit_codes as exits


def _verb(verb: str, text: str, example: str, timeout: float = 900.0) -> click.Command:
    """Return the command that sends a verb to the agent."""

    @click.pass_obj
    def command(options: Options) -> None:
        with service(options, timeout=timeout) as client:
            answer = client.act(verb)
        show(options, answer, f"{answer['agent']}: {_effect(answer)}")

    return click.Command(verb, callback=command, help=f"{text}\n\n\b\nExample:\n  {example}")


def _effect(answer: dict[str, Any]) -> str:
    """Return the sentence about the effect of a verb."""
    if "changed" not in answer:
        return f"{answer['before']} → {answer['after']}"
    text = f"reloaded, changed: {', '.join(answer['changed']) or 'nothing'}"
    return text + (f"; only after a restart: {', '.join(answer['needs_restart'])}" if answer["needs_restart"] else "")


pause = _verb(
    "pause", "Let the running cycles finish and begin no other; returns when they have finished.", "spar pause"
)
resume = _verb("resume", "Continue after a pause.", "spar resume")
reload = _verb(
    "reload",
    "Read the configuration again and apply the settings that need no restart, between two cycles.",
    "spar config check && spar reload",
)


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
        answer = client.act("stop")
    until, lock = time.monotonic() + seconds, options.state_dir() / STATE_LOCK
    while holder(lock) is not None:  # the kernel releases the lock, however the process ends
        if time.monotonic() >= until:
            fail(f"the service still drains after {seconds:g} s; it goes on draining", exits.TIMED_OUT)
        time.sleep(0.05)
    show(
        options,
        {"agent": answer["agent"], "before": answer["before"], "after": "stopped"},
        f"{answer['agent']}: stopped",
    )
