"""Command `run`: runs the service in the foreground."""

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
from spar.cli.context import Options, fail, refusals
from spar.net.control_socket import SOCKET_NAME

#: The commands that are suggested after a start in a terminal, and their purposes.
NEXT = {
    "chat": "talk with it",
    "status --watch": "its work and health",
    "cycles list": "its past cycles",
    "approvals list": "what it asks you",
}


@click.command()
@click.option("--resume", is_flag=True, help="Run also if the agent was paused when its last process ended.")
@click.pass_obj
def run(options: Options, resume: bool) -> int:
    """Run the service in the foreground until it is stopped (Ctrl+C drains, twice cancels).

    An agent that was paused when its last process ended starts paused, and the log says so. On a terminal it prints
    the next commands to type, then a line for each cycle that did something; elsewhere it writes JSON lines.

    \b
    Examples:
      spar run
      spar -c /etc/spar/config.toml run
      spar --set agent.loop_interval=adaptive --set service.port=0 run
    """
    loaded = options.load()
    from spar.server.front import front_of
    from spar.service.process.refusal import CannotStartError
    from spar.service.process.run import run as run_service

    is_read = sys.stderr.isatty() and loaded.settings.log.format != "json"
    folder = loaded.folder / loaded.settings.service.state_dir
    welcome = partial(_welcome, options.config_path, folder) if is_read else lambda addresses: None
    try:
        with refusals():
            return run_service(
                loaded, front_of, reload=partial(options.load_again, loaded), resume=resume, on_started=welcome
            )
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
