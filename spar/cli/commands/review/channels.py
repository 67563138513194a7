"""Commands for channels: they show how each is doing, and decide on messages that it could not deliver."""

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
    """Channels on which people talk with the agent, and what could not be delivered there."""


@channels.command("list")
@click.pass_obj
def list_channels(options: Options) -> None:
    """List the channels: whether each receives and sends, and how much waits.

    \b
    Example:
      spar channels list
    """
    with service(options) as client:
        found = client.get("/v1/channels")
    heads = ("channel", "receives", "sends", ">heard", ">sent", ">waiting", ">failed", "last error")
    show(options, found, table(heads, [_cells(name, each) for name, each in found.items()])
         if found else "no channels are configured ([[channels]])")  # fmt: skip


def _cells(name: str, state: dict[str, Any]) -> tuple[str, ...]:
    receiving, sending = state["receiving"], state["sending"]
    errors = [each["last_error"] for each in (receiving, sending) if each["state"] != "ok"]
    return (name, receiving["state"], sending["state"], str(state["accepted"]), str(state["sent"]),
            str(state["waiting"]), str(state["undelivered"]), one_line("; ".join(errors), 100))  # fmt: skip


@channels.command("failed")
@click.pass_obj
def list_failed(options: Options) -> None:
    """List messages that could not be delivered: those put aside, and those that are tried again by themselves.

    \b
    Example:
      spar channels failed
    """
    with service(options) as client:
        rows = client.get("/v1/deliveries")
    heads = ("id", "state", zoned("since"), "channel", "address", ">tries", "why", "text")
    cells = [(each["id"], each["state"], local(each["at"]), each["channel"], each["address"], str(each["attempts"]),
              one_line(each["error"], 60), one_line(each["text"], 40)) for each in rows]  # fmt: skip
    show(options, rows, table(heads, cells) if rows else "all messages were delivered")


@channels.command("retry")
@click.argument("message_id", metavar="ID")
@click.pass_obj
def retry(options: Options, message_id: str) -> None:
    """Have a message that was put aside tried again.

    \b
    Example:
      spar channels retry 18ea256e775307670000245362.9f3a0c1d2e4b
    """
    _act(options, message_id, "retry", "tried again")


@channels.command("drop")
@click.argument("message_id", metavar="ID")
@click.pass_obj
def drop(options: Options, message_id: str) -> None:
    """Forget a message that was put aside: it is never sent.

    \b
    Example:
      spar channels drop 18ea256e775307670000245362.9f3a0c1d2e4b
    """
    _act(options, message_id, "drop", "dropped")


def _act(options: Options, message_id: str, verb: str, done: str) -> None:
    with service(options) as client:
        found = client.post(f"/v1/deliveries/{quote(message_id, safe='', errors='replace')}:{verb}")
    show(options, found, f"{done}: {found['id']} to {found['address']} on {found['channel']}")
