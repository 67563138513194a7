"""Commands for sessions: set titles and defaults; the parts of the next request to a model; the transcript."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click
from msgspec import UNSET

from spar.cli import complete
from spar.cli.blocks import Block, Table, table
from spar.cli.client import ask
from spar.cli.context import Options, Time, fail, show
from spar.cli.nouns import record
from spar.cli.tables import hook_line, local, zoned
from spar.data.text import one_line
from spar.operations import sessions as operations
from spar.operations.operation import Nothing
from spar.records.transcript import Entry
from spar.service import exit_codes as exits

#: Characters of an entry of a transcript that are shown; `--json` has all of it.
TEXT = 2000
#: The options of runs for which a session may have defaults.
DEFAULTS = ("model", "thinking", "timeout", "verbose", "instructions")
_FLAGS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


@click.command("set")
@click.argument("session", shell_complete=complete.sessions)
@click.argument("values", nargs=-1, required=True, metavar="NAME=VALUE...")
@click.pass_obj
def set_session(options: Options, session: str, values: tuple[str, ...]) -> None:
    """Set a session's title, or default options of its runs; an empty value removes one.

    \b
    Examples:
      spar sessions set alice thinking=high
      spar sessions set alice title="Holidays" model= timeout=120
    """
    body: dict[str, Any] = {}
    for assignment in values:
        name, equals, value = assignment.partition("=")
        if not equals or name not in ("title", *DEFAULTS):
            known = ", ".join(("title", *DEFAULTS))
            fail(f"{assignment!r}: must be NAME=VALUE; names: {known}", exits.USAGE)
        if name == "title":
            body["title"] = value
        else:
            body.setdefault("defaults", {})[name] = _value(name, value)
    given = operations.SessionBody(session, **body)
    view = ask(options, operations.change, given, is_typed=not options.as_json)
    show(options, view, *(() if options.as_json else [record(operations.FIELDS, view)]))


def _value(name: str, text: str) -> Any:
    """Return the value of an option; None, which removes it, for an empty text."""
    if not text:
        return None
    if name == "timeout":
        from spar.config.tables.fields import seconds

        number = seconds(text)
        return text if number is None else number
    return _FLAGS.get(text.lower(), text) if name == "verbose" else text


def prompt_blocks(given: object, request: operations.Prompt) -> list[Block]:
    """Return a request as blocks: the table of its parts, changes by hooks, problems, and texts if included."""
    rows = [(part.part, f"{part.chars:,}", f"{part.tokens:,}", f"{part.origin}{f' ({part.note})' if part.note else ''}")
            for part in request.parts]  # fmt: skip
    about = f"trust: {request.trust}{f', model: {request.model}' if request.model else ''}"
    rows.append(("all", f"{request.chars:,}", f"{request.tokens:,}", about))
    blocks: list[Block] = [table(("part", ">chars", ">tokens", "origin"), rows)]
    blocks += [one_line(hook_line(changes)) for changes in request.hooks]
    blocks += [one_line(f"problem: {problem}") for problem in request.problems]
    for part in request.parts:
        if part.text is not UNSET:
            blocks += [f"\n--- {part.part} ({one_line(part.origin)})", part.text]
    return blocks


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
        rows = ask(options, operations.list_transcripts, Nothing())
        show(options, rows, _sessions(rows) if rows else "no transcripts yet")
        return
    entries = ask(options, operations.transcript, operations.TranscriptChoice(session, limit, before, since),
                  is_typed=not options.as_json)  # fmt: skip
    show(options, entries, *(() if options.as_json else [_entries(entries) if entries else "no entries then"]))


def _sessions(sessions: list[dict[str, Any]]) -> Table:
    rows = [(local(session["last_at"]), str(session["entries"]), f"{-(-session['bytes'] // 1024)} KiB",
             session["session"]) for session in sessions]  # fmt: skip
    return table((zoned("last entry"), ">entries", ">size", "session"), rows)


def _entries(entries: list[Entry]) -> Table:
    rows = [(str(entry.seq), local(entry.at), entry.kind, entry.line) for entry in entries]
    return table((">seq", zoned("at"), "kind", "text"), rows, room=TEXT)
