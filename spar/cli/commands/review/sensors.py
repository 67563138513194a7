"""Commands for sensors: list them, and restore one from quarantine."""

from __future__ import annotations

from urllib.parse import quote

import click

from spar.cli import complete
from spar.cli.answers import agent_of
from spar.cli.blocks import table
from spar.cli.client import service
from spar.cli.context import Options, show


@click.group()
def sensors() -> None:
    """Look at sensors, and restore one from quarantine."""


@sensors.command("list")
@click.pass_obj
def list_sensors(options: Options) -> None:
    """List the sensors, each with its state and its last error.

    \b
    Example:
      spar sensors list
    """
    with service(options) as client:
        by_name = agent_of(client.get("/v1/status", lanes=0))["modules"]["sense"].get("sensors", {})
    rows = [(name, state.get("state", "?"), state.get("last_error") or "") for name, state in by_name.items()]
    show(options, by_name, table(("sensor", "state", "last error"), rows) if rows else "no sensors are configured")


@sensors.command()
@click.argument("sensor", shell_complete=complete.sensors)
@click.pass_obj
def restore(options: Options, sensor: str) -> None:
    """Poll a SENSOR in quarantine again now, instead of at the planned time.

    \b
    Example:
      spar sensors restore inbox
    """
    with service(options) as client:
        answer = client.post(f"/v1/sensors/{quote(sensor, safe='', errors='replace')}:restore")
    show(options, answer, f"{answer['sensor']}: is tried again now")
