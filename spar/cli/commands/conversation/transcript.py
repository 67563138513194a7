"""Command `transcript`: shows the transcript of a session from the store, whether the service runs or not."""

from __future__ import annotations

from typing import Any

import click

from spar.cli import complete
from spar.cli.blocks import Table, table
from spar.cli.context import Options, fail, from_store, show
from spar.cli.tables import entry_line, local, zoned

#: Characters of an entry that are shown; `--json` has all of it.
TEXT = 2000


@click.command()
@click.argument("session", required=False, shell_complete=complete.sessions)
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="How many, the newest.")
@click.option("--before", type=click.IntRange(1), help="Only the entries before the one with this number.")
@click.pass_obj
def transcript(options: Options, session: str | None, limit: int, before: int | None) -> None:
    """Show the messages and actions of a session, oldest first; without SESSION, list the sessions.

    \b
    Examples:
      spar sessions transcript
      spar sessions transcript main
      spar --json sessions transcript main --limit 200
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
        fail(f"no transcript of session {session!r}; spar sessions transcript shows which there are")
    else:
        show(options, rows, _entries(rows))


def _sessions(sessions: list[dict[str, Any]]) -> Table:
    rows = [
        (local(session["last_at"]), str(session["entries"]), f"{-(-session['bytes'] // 1024)} KiB", session["session"])
        for session in sessions
    ]
    return table((zoned("last entry"), ">entries", ">size", "session"), rows)


def _entries(entries: list[dict[str, Any]]) -> Table:
    rows = [
        (str(entry["seq"]), local(entry["at"]), entry["kind"], entry_line(entry["kind"], entry["body"]))
        for entry in entries
    ]
    return table((">seq", zoned("at"), "kind", "text"), rows, room=TEXT)
