"""Command for the transcript of a session; read from the store, whether the service runs or not."""

from __future__ import annotations

from typing import Any

import click

from spar.cli import complete
from spar.cli.blocks import Table, table
from spar.cli.context import Options, fail, from_store, show
from spar.cli.tables import entry_line, local, zoned

#: Characters of an entry that are shown; `--json` shows all of it.
TEXT = 2000


@click.command()
@click.argument("session", required=False, shell_complete=complete.sessions)
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="How many, the newest.")
@click.option("--before", type=click.IntRange(1), help="Only what comes before the entry with this number.")
@click.pass_obj
def transcript(options: Options, session: str | None, limit: int, before: int | None) -> None:
    """Show what was said and done in a session, oldest first; without SESSION, which sessions there are.

    \b
    Examples:
      spar transcript
      spar transcript main
      spar --json transcript main --limit 200
    """
    agent = options.load("agent.name").settings.agent.name

    async def ask(store: Any) -> Any:
        from spar.ports.optional import offers
        from spar.ports.store import KeepsTranscripts

        if not offers(store, KeepsTranscripts):
            raise LookupError("this memory keeps no transcripts")
        transcripts = store.transcripts
        return await (
            transcripts.sessions(agent) if session is None else transcripts.tail(agent, session, limit, before)
        )

    rows = from_store(options, ask)
    if session is None:
        show(options, rows, _sessions(rows) if rows else "no transcripts yet")
    elif not rows:
        fail(f"no transcript of session {session!r}; spar transcript shows which there are")
    else:
        show(options, rows, _entries(rows))


def _sessions(sessions: list[dict[str, Any]]) -> Table:
    rows = [
        (local(each["last_at"]), str(each["entries"]), f"{-(-each['bytes'] // 1024)} KiB", each["session"])
        for each in sessions
    ]
    return table((zoned("last entry"), ">entries", ">size", "session"), rows)


def _entries(entries: list[dict[str, Any]]) -> Table:
    rows = [
        (str(each["seq"]), local(each["at"]), each["kind"], entry_line(each["kind"], each["body"])) for each in entries
    ]
    return table((">seq", zoned("at"), "kind", "text"), rows, room=TEXT)
