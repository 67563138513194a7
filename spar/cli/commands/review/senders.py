"""Commands for senders of messages: list, pair, allow, deny and forget them."""

from __future__ import annotations

from typing import Any

import click

from spar.cli.blocks import table
from spar.cli.client import service
from spar.cli.context import Options, show
from spar.cli.tables import local, zoned

TRUST = click.Choice(["trusted", "untrusted"])


@click.group()
def senders() -> None:
    """Manage senders of messages, by mail and on other channels: list, pair, allow, deny, forget."""


@senders.command("list")
@click.option("--status", type=click.Choice(["waiting", "allowed", "denied"]), help="Only those of this status.")
@click.pass_obj
def list_senders(options: Options, status: str | None) -> None:
    """List the senders that the configuration names, that have written, or that people have decided about.

    Messages of unknown senders are not read, only counted.

    \b
    Examples:
      spar senders list
      spar senders list --status waiting
    """
    with service(options) as client:
        rows = client.get("/v1/senders", **({"status": status} if status else {}))
    heads = ("sender", "status", "person", "trust", "from", ">unheard", zoned("last"))
    cells = [_cells(row) for row in rows]
    none = f"no sender is {status}" if status else "nobody has written yet, and the configuration names nobody"
    show(options, rows, table(heads, cells) if rows else none)


@senders.command("pair")
@click.argument("code")
@click.option("--person", default="", help="The name of the person.")
@click.option("--trust", type=TRUST, default="trusted", show_default=True, help="The trust in its text.")
@click.pass_obj
def pair(options: Options, code: str, person: str, trust: str) -> None:
    """Allow the sender that received CODE and gave it to you. A code is valid once, for a day.

    \b
    Examples:
      spar senders pair K7QF-2M9X
      spar senders pair K7QF-2M9X --person bob --trust untrusted
    """
    _post(options, "pair", {"code": code, "person": person, "trust": trust}, "let in")


@senders.command("allow")
@click.argument("sender")
@click.option("--person", default="", help="The name of the person.")
@click.option("--trust", type=TRUST, default="trusted", show_default=True, help="The trust in its text.")
@click.pass_obj
def allow(options: Options, sender: str, person: str, trust: str) -> None:
    """Allow SENDER (channel:address) without a code.

    \b
    Example:
      spar senders allow mail:bob@example.org --person bob
    """
    _post(options, "allow", {"sender": sender, "person": person, "trust": trust}, "let in")


@senders.command("deny")
@click.argument("sender")
@click.pass_obj
def deny(options: Options, sender: str) -> None:
    """Ignore all messages of SENDER (channel:address).

    \b
    Example:
      spar senders deny mail:spam@example.org
    """
    _post(options, "deny", {"sender": sender}, "denied")


@senders.command("forget")
@click.argument("sender")
@click.pass_obj
def forget(options: Options, sender: str) -> None:
    """Delete the decision about SENDER: it is unknown again.

    \b
    Example:
      spar senders forget mail:bob@example.org
    """
    _post(options, "forget", {"sender": sender}, "forgotten")


def _post(options: Options, verb: str, body: dict[str, Any], done: str) -> None:
    from spar.data.text import visible

    with service(options) as client:
        row = client.post(f"/v1/senders:{verb}", body)
    who = f" ({visible(row['person'])})" if row["person"] else ""
    trust = f", {row['trust']}" if row["status"] == "allowed" and verb != "forget" else ""
    show(options, row, f"{done}: {visible(row['sender'])}{who}{trust}")


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    trust = row["trust"] if row["status"] == "allowed" else ""
    return (
        row["sender"],
        row["status"],
        row["person"],
        trust,
        row["origin"],
        str(row["messages"]),
        local(row["last_at"]),
    )
