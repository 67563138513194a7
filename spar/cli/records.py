"""Common part of the commands for records that wait for people: list and show them, and confirm an answer.

`spar.review.kinds` is the table of the kinds. Records in the journal can also be shown without the service. An answer
needs the service, because the agent acts on it at once.
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
from spar.decoding import convert
from spar.review.kinds import CALLS_IN_DOUBT, DEAD_LETTERS, ReviewKind
from spar.service import exit_codes as exits
from spar.types import utcnow

#: The kinds that the journal of a stopped service contains, in the order in which `left` returns them.
_IN_JOURNAL = (CALLS_IN_DOUBT, DEAD_LETTERS)


def rows_of(options: Options, kind: ReviewKind, **params: str) -> list[dict[str, Any]]:
    """Return the records of a kind from the service; without one all of them from the journal, if that has the kind."""
    rows: list[dict[str, Any]] = _get(options, kind, kind.path, **params)
    return rows


def show_list(options: Options, kind: ReviewKind, rows: list[dict[str, Any]], nothing: str) -> None:
    """Print records as a table, or the sentence `nothing` if there are none."""
    show(options, rows, None if options.as_json else record_table(kind, rows) if rows else nothing)


def record_table(kind: ReviewKind, rows: list[dict[str, Any]]) -> Table:
    """Return records as a table. The cells are short already, so the table does not cut them."""
    return table(kind.heads, [kind.cells(record, utcnow()) for record in _records(rows, kind)], room=UNCUT)


def show_record(options: Options, kind: ReviewKind, id: str) -> None:
    """Print one record in full."""
    path = path_of(kind, id)
    record = _get(options, kind, path)
    if isinstance(record, list):  # all rows, from the journal: no service answered
        record = _one_of(record, kind, id)
    show(options, record, record["text"])


def make_sure(options: Options, kind: ReviewKind, text: str, answer: str, *, is_sure: bool) -> None:
    """Print a record on standard error and, in a terminal, ask for confirmation. Without a yes the command ends.

    Args:
        text: The record.
        answer: The answer that will be given.
        is_sure: Do not ask.
    """
    click.echo(printable(text), err=True)
    is_asked = not (is_sure or options.as_json) and sys.stdin.isatty()
    if is_asked and not click.confirm(f"{answer}?", default=False, err=True):
        fail(f"not answered; {kind.unanswered}")


def path_of(kind: ReviewKind, id: str) -> str:
    """Return the path of a record in the control API. An empty id ends the command."""
    if not id.strip():
        fail(f"ID is empty; {kind.hint}", exits.USAGE)
    return f"{kind.path}/{quote(id, safe='', errors='replace')}"


def json_value(name: str, text: str, expected: str) -> Any:
    """Return the value of an option that takes JSON. Malformed JSON ends the command."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        fail(f"{name} {text!r:.200}: must be {expected}: {error}", exits.USAGE)


def _get(options: Options, kind: ReviewKind, path: str, **params: str) -> Any:
    """Return the answer of the service to a GET; if none runs, all rows of the kind from the journal."""
    if kind not in _IN_JOURNAL:
        with service(options) as client:
            return client.get(path, **params)
    try:
        return connect(options.state_dir()).get(path, **params)
    except NotRunningError:
        return _from_journal(options)[_IN_JOURNAL.index(kind)]


def _from_journal(options: Options) -> list[list[dict[str, Any]]]:
    """Return the calls in doubt, answered ones too, and the dead letters, read from the store of a stopped service.

    A store that cannot be read so ends the command with code 69.
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
    """Return the rows of an answer as records. Rows of another release, which do not fit, end the command."""
    try:
        return [convert(row, kind.record) for row in rows]
    except msgspec.ValidationError as error:
        fail(f"what was answered cannot be read: {error}; is the service of another release?")


def _one_of(rows: list[dict[str, Any]], kind: ReviewKind, id: str) -> dict[str, Any]:
    """Return the row with this id, or unique beginning of an id, and its text, as the service would answer it."""
    from spar.records.journal import named

    try:
        record = named(_records(rows, kind), id, kind.noun)
    except LookupError as error:
        fail(str(error.args[0]))
    return {**next(row for row in rows if row["id"] == record.id), "text": kind.full(record, utcnow())}
