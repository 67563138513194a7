"""Commands for the audit log, which is read from the store, whether the service runs or not."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import click

from spar.cli.blocks import table
from spar.cli.context import Options, Time, fail, from_store, show
from spar.cli.tables import local, short, zoned
from spar.service import exit_codes as exits

_FILTERS = (
    click.option("--since", type=Time(), help="Only from this time on; local, if it names no zone."),
    click.option("--until", type=Time(), help="Only from before this time."),
    click.option("--actor", default="", help="Only by this user, sender or part."),
    click.option("--action", default="", help="Only this action (approval.deny), or all of a kind (approval)."),
    click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True,
                 help="How many, newest first."),
)  # fmt: skip


def _add_filters(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that filter entries to a command."""
    for option in reversed(_FILTERS):
        command = option(command)
    return command


@click.group(invoke_without_command=True)
@_add_filters
@click.pass_context
def audit(context: click.Context, since: datetime | None, until: datetime | None, actor: str, action: str,
          limit: int) -> None:  # fmt: skip
    """List who changed what: approvals, grants, sessions, senders, pauses, reloads, steps.

    \b
    Examples:
      spar audit
      spar audit --actor anna --since 2026-11-01
      spar audit --action approval --limit 5
      spar audit verify
    """
    if context.invoked_subcommand is None:
        _list(context.obj, since, until, actor, action, limit)


@audit.command("list")
@_add_filters
@click.pass_obj
def list_entries(options: Options, since: datetime | None, until: datetime | None, actor: str, action: str,
                 limit: int) -> None:  # fmt: skip
    """List entries, as `spar audit` does.

    \b
    Example:
      spar audit list --actor anna
    """
    _list(options, since, until, actor, action, limit)


def _list(options: Options, since: datetime | None, until: datetime | None, actor: str, action: str,
          limit: int) -> None:  # fmt: skip
    times = {name: value.astimezone() for name, value in (("since", since), ("until", until)) if value is not None}

    async def question(store: Any) -> Any:
        return await _log_of(store).entries(limit, actor=actor, action=action, **times)

    rows = from_store(options, question)
    heads = (">number", zoned("at"), "who", "what", "to", "by way of", "details")
    cells = [(str(row["seq"]), local(row["at"]), row["actor"], row["action"], row["subject"], row["origin"],
              short(row["detail"]) if row["detail"] else "") for row in rows]  # fmt: skip
    is_filtered = bool(times or actor or action)
    show(
        options, rows, table(heads, cells) if rows else "no such entries" if is_filtered else "nobody changed anything"
    )


@audit.command()
@click.pass_obj
def verify(options: Options) -> None:
    """Check that no entry was changed, inserted or removed. If one was, print its number and exit with 1.

    \b
    Example:
      spar audit verify
    """

    async def question(store: Any) -> Any:
        return await _log_of(store).verify()

    why = from_store(options, question)
    if why:
        fail(why, exits.FAILED)
    show(options, {"ok": True}, "the audit log is whole")


def _log_of(store: Any) -> Any:
    """Return the audit log of a store. Raises: SparError if it has none."""
    from spar.errors import SparError
    from spar.ports.optional import offers
    from spar.records.audit import KeepsAudit

    if not offers(store, KeepsAudit):
        raise SparError("this store keeps no audit log")
    return store.audit
