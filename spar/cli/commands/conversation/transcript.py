"""Command `transcript`: shows the transcript of a session, whether the service runs or not."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click

from spar.cli import complete
from spar.cli.blocks import Table, table
from spar.cli.client import ask
from spar.cli.context import Options, Time, show
from spar.cli.tables import entry_line, local, zoned
from spar.operations.operation import Nothing
from spar.operations.sessions import TranscriptChoice, list_transcripts
from spar.operations.sessions import transcript as read_transcript

#: Characters of an entry that are shown; `--json` has all of it.
TEXT = 2000


@click.command()
@click.argument("session", required=False, shell_complete=complete.sessions)
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="How many, the newest.")
@click.option("--before", type=click.IntRange(1), help="Only the entries before the one with this number.")
@click.option("--since", type=Time(), help="Only from this time on.")
@click.pass_obj
def transcript(options: Options, session: str | None, limit: int, before: int | None, since: datetime | None) -> None:
    """Show the messages and actions of a session, oldest first; without SESSION, list the sessions.

    \b
    Examples:
      spar sessions transcript
      spar sessions transcript main
      spar --json sessions transcript main --limit 200
    """
    if session is None:
        rows = ask(options, list_transcripts, Nothing())
        show(options, rows, _sessions(rows) if rows else "no transcripts yet")
        return
    rows = ask(options, read_transcript, TranscriptChoice(session, limit, before, since))
    show(options, rows, _entries(rows) if rows else "no entries then")


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
