"""Commands `run` and `stop`: run the service in the foreground, and let it end."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from shlex import quote

import click

from spar.cli.blocks import harmless
from spar.cli.client import service
from spar.cli.context import Options, fail, refusals, show
from spar.net.control_socket import SOCKET_NAME
from spar.operations.agent import stop as request_stop
from spar.service import exit_codes as exits

#: The commands that are suggested after a start in a terminal, and their purposes.
NEXT = {
    "chat": "talk with it",
    "status --watch": "its work and health",
    "cycles list": "its past cycles",
    "approvals list": "what it asks you",
}


@click.command()
@click.option("--resume", is_flag=True, help="Run also if the agent was paused when its last process ended.")
@click.option("--shadow", metavar="FILE", type=click.Path(path_type=Path),
              help="A second configuration, which decides beside this one without effects.")  # fmt: skip
@click.pass_obj
def run(options: Options, resume: bool, shadow: Path | None) -> int:
    """Run the service in the foreground until it is stopped (Ctrl+C drains, twice cancels).

    An agent that was paused when its last process ended starts paused, and the log says so. On a terminal it prints
    the next commands to type, then a line for each cycle that did something; elsewhere it writes JSON lines.

    \b
    Examples:
      spar run
      spar -c /etc/spar/config.toml run
      spar --set agent.loop_interval=adaptive --set service.port=0 run
      spar run --shadow other.toml
    """
    loaded = options.load()
    beside = None if shadow is None else options.by(shadow).load()
    from spar.server.front import served
    from spar.service.process import CannotStartError
    from spar.service.process import run as run_service

    is_read = sys.stderr.isatty() and loaded.settings.log.format != "json"
    folder = loaded.folder / loaded.settings.service.state_dir
    reload = partial(options.load_again, loaded)
    welcome = partial(_welcome, options.config_path, folder) if is_read else lambda addresses: None
    try:
        with refusals():
            return run_service(loaded, served, reload=reload, resume=resume, shadow=beside, on_started=welcome)
    except CannotStartError as error:
        fail(str(error), error.code)


def _welcome(config: Path | None, folder: Path, addresses: Mapping[str, str]) -> None:
    """Print the next commands on standard error, in a thread, so that a blocked or closed terminal blocks nothing."""
    lines = next_steps(config, {"socket": str(folder / SOCKET_NAME), **addresses})

    def print_lines() -> None:
        with contextlib.suppress(OSError, ValueError):
            click.echo("\n".join(lines), err=True)

    threading.Thread(target=print_lines, name="welcome", daemon=True).start()


def next_steps(config: Path | None, places: Mapping[str, str]) -> list[str]:
    """Return the lines with the addresses of the service and the commands to type in another terminal."""
    spar = "spar" if config is None else f"spar -c {quote(os.fspath(config))}"
    width = max(map(len, NEXT))
    return [
        ", ".join(f"{name} {harmless(place)}" for name, place in places.items()),
        "In another terminal, in this folder:",
        *(f"  {harmless(spar)} {command:<{width}}  {meaning}" for command, meaning in NEXT.items()),
        "Ctrl-C lets the work in hand finish and ends it; a second Ctrl-C cancels that work.",
    ]


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

    from spar.fs.lock import STATE_LOCK, holder

    with service(options) as client:
        change = client.call(request_stop)
    until, lock = time.monotonic() + seconds, options.state_dir() / STATE_LOCK
    while holder(lock) is not None:  # the kernel releases the lock, however the process ends
        if time.monotonic() >= until:
            fail(f"the service still drains after {seconds:g} s; it goes on draining", exits.TIMED_OUT)
        time.sleep(0.05)
    show(options, {"agent": change.agent, "before": change.before, "after": "stopped"}, f"{change.agent}: stopped")
