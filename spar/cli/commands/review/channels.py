"""Commands for channels: show their states, and decide about undelivered messages."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import click

from spar.cli.blocks import table
from spar.cli.client import service
from spar.cli.context import Options, show
from spar.cli.tables import local, zoned
from spar.data.text import one_line


@click.group()
def channels() -> None:
    """Look at channels on which people talk with the agent, and at undelivered messages."""


@channels.command("list")
@click.pass_obj
def list_channels(options: Options) -> None:
    """List the channels: whether each receives and sends, and how many messages wait.

    \b
    Example:
      spar channels list
    """
    with service(options) as client:
        states = client.get("/v1/channels")
    heads = ("channel", "receives", "sends", ">heard", ">sent", ">waiting", ">failed", "last error")
    show(options, states, table(heads, [_cells(name, state) for name, state in states.items()])
         if states else "no channels are configured ([[channels]])")  # fmt: skip


def _cells(name: str, state: dict[str, Any]) -> tuple[str, ...]:
    receiving, sending = state["receiving"], state["sending"]
    errors = [direction["last_error"] for direction in (receiving, sending) if direction["state"] != "ok"]
    return (name, receiving["state"], sending["state"], str(state["accepted"]), str(state["sent"]),
            str(state["waiting"]), str(state["undelivered"]), one_line("; ".join(errors), 100))  # fmt: skip


@channels.command("failed")
@click.pass_obj
def list_failed(options: Options) -> None:
    """List messages that could not be delivered: failed ones, and those that are still tried again automatically.

    \b
    Example:
      spar channels failed
    """
    with service(options) as client:
        rows = client.get("/v1/deliveries")
    heads = ("id", "state", zoned("since"), "channel", "address", ">tries", "why", "text")
    cells = [(row["id"], row["state"], local(row["at"]), row["channel"], row["address"], str(row["attempts"]),
              one_line(row["error"], 60), one_line(row["text"], 40)) for row in rows]  # fmt: skip
    show(options, rows, table(heads, cells) if rows else "all messages were delivered")


@channels.command("retry")
@click.argument("message_id", metavar="ID")
@click.pass_obj
def retry(options: Options, message_id: str) -> None:
    """Try a failed message again.

    \b
    Example:
      spar channels retry 18ea256e775307670000245362.9f3a0c1d2e4b
    """
    _act(options, message_id, "retry", "tried again")


@channels.command("drop")
@click.argument("message_id", metavar="ID")
@click.pass_obj
def drop(options: Options, message_id: str) -> None:
    """Delete a failed message: it is never sent.

    \b
    Example:
      spar channels drop 18ea256e775307670000245362.9f3a0c1d2e4b
    """
    _act(options, message_id, "drop", "dropped")


def _act(options: Options, message_id: str, verb: str, done: str) -> None:
    with service(options) as client:
        delivery = client.post(f"/v1/deliveries/{quote(message_id, safe='', errors='replace')}:{verb}")
    show(options, delivery, f"{done}: {delivery['id']} to {delivery['address']} on {delivery['channel']}")
