"""Commands' common part for records that wait for people: list, show, and make sure before an answer is given.

`spar.review.kinds` is the table of the kinds. What the journal keeps can be looked at without the service too; an
answer needs it, because the agent acts on it at once: it tells the plan, or makes the call again.
"""

from __future__ import annotations

import json
import sys
from typing import Any
from urllib.parse import quote

import click
import msgspec

from spar.cli.blocks import UNCUT, Table, table
from spar.cli.client import NotRunningError, connect, service
from spar.cli.context import STORE, Options, fail, from_store, show
from spar.data.text import printable
from spar.review.kinds import CALLS_IN_DOUBT, DEAD_LETTERS, ReviewKind
from spar.service import exit_codes as exits
from spar.types import utcnow

#: The kinds that the journal of a stopped service can be asked for, in the order in which it returns them.
_IN_JOURNAL = (CALLS_IN_DOUBT, DEAD_LETTERS)


def rows_of(options: Options, kind: ReviewKind, **params: str) -> list[dict[str, Any]]:
    """Return the records of a kind: from the service, else all of them from the journal where that keeps them."""
    rows: list[dict[str, Any]] = _get(options, kind, kind.path, **params)
    return rows


def show_list(options: Options, kind: ReviewKind, rows: list[dict[str, Any]], nothing: str) -> None:
    """Print records as a table, or what to say when there are none."""
    show(options, rows, None if options.as_json else listed(kind, rows) if rows else nothing)


def listed(kind: ReviewKind, rows: list[dict[str, Any]]) -> Table:
    """Return the table of some records; what a cell leaves out it counts, so no cell is cut once more."""
    return table(kind.heads, [kind.cells(record, utcnow()) for record in _records(rows, kind)], room=UNCUT)


def show_record(options: Options, kind: ReviewKind, id: str) -> None:
    """Print one record in full."""
    path = path_of(kind, id)
    found = _get(options, kind, path)
    if isinstance(found, list):  # no service answered
        found = _one_of(found, kind, id)
    show(options, found, found["text"])


def make_sure(options: Options, kind: ReviewKind, text: str, answer: str, *, is_sure: bool) -> None:
    """Print on standard error what is answered, so that standard output is the answer alone; in a terminal, ask.

    Nothing but a clear yes goes on.
    """
    click.echo(printable(text), err=True)
    is_asked = not (is_sure or options.as_json) and sys.stdin.isatty()
    if is_asked and not click.confirm(f"{answer}?", default=False, err=True):
        fail(f"not answered; {kind.unanswered}")


def path_of(kind: ReviewKind, id: str) -> str:
    """Return the path of a record in the control API. Ends the command where the id is empty."""
    if not id.strip():
        fail(f"ID is empty; {kind.hint}", exits.USAGE)
    return f"{kind.path}/{quote(id, safe='', errors='replace')}"


def json_value(name: str, text: str, expected: str) -> Any:
    """Return the value of an option that takes JSON. Ends the command where it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        fail(f"{name} {text!r:.200}: must be {expected}: {error}", exits.USAGE)


def _get(options: Options, kind: ReviewKind, path: str, **params: str) -> Any:
    """Return the answer of the service; where none runs, the rows of the kind from the journal."""
    if kind not in _IN_JOURNAL:
        with service(options) as client:
            return client.get(path, **params)
    try:
        return connect(options.state_dir()).get(path, **params)
    except NotRunningError:
        return _from_journal(options)[_IN_JOURNAL.index(kind)]


def _from_journal(options: Options) -> list[list[dict[str, Any]]]:
    """Return the calls in doubt, answered ones too, and the dead letters, read from the file of a stopped service.

    Ends the command with code 69 when they are not kept in one.
    """
    settings = options.load(*STORE).settings

    async def question(store: Any) -> Any:
        from spar.errors import SparError
        from spar.ports.optional import offers
        from spar.ports.store import ReadsLeftWork

        if not offers(store, ReadsLeftWork):
            raise SparError(f"the store {settings.memory.use!r} cannot be asked while no service runs: spar run")
        return await store.left(settings.agent.name)

    rows: list[list[dict[str, Any]]] = from_store(options, question)
    return rows


def _records(rows: list[dict[str, Any]], kind: ReviewKind) -> list[Any]:
    """Return the rows of an answer as records. Ends the command where the service is of another release."""
    try:
        return [msgspec.convert(row, kind.record) for row in rows]
    except msgspec.ValidationError as error:
        fail(f"what was answered cannot be read: {error}; is the service of another release?")


def _one_of(rows: list[dict[str, Any]], kind: ReviewKind, id: str) -> dict[str, Any]:
    """Return the row with this id or unique beginning of one, with its text, as the service would answer."""
    from spar.records.journal import named

    try:
        record = named(_records(rows, kind), id, kind.noun)
    except LookupError as error:
        fail(str(error.args[0]))
    return {**next(row for row in rows if row["id"] == record.id), "text": kind.full(record, utcnow())}
