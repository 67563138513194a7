"""Queries of the cycle log: lists of summaries, and whole cycles."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from memory import events, pieces
from memory.codec import decode, safe, seconds
from memory.cycle_log.body import linked, parsed, whole
from memory.cycle_log.rows import summary_of
from memory.inserts import where
from spar.data.scrub import masked
from spar.records.runs import unknown_place
from spar.types import OUTCOMES, CallResult, CycleRecord, Fault, replace

if TYPE_CHECKING:
    from memory.engine.connection import Connection

#: Columns of a whole cycle.
_ROW = "id, agent, session, started_at, duration, outcome, body"
#: Errors when a damaged body is read: it is no text, no JSON, altered, too deep, or of another shape.
_DAMAGE = (ValueError, TypeError, RecursionError, AttributeError, KeyError)
#: Holds for cycles that failed or had a call that failed, which always have a stored summary; one with a damaged
#: summary is included, since its calls may have failed. An index has these words, so that they are found by it.
FAILED: Final = "outcome = 'failed' OR (summary <> '' AND summary NOT LIKE '%\"failed_calls\":0,%')"


def summaries(
    connection: Connection,
    limit: int,
    before: str | datetime | None,
    outcome: str | None,
    session: str | None,
    since: datetime | None = None,
    *,
    is_failed: bool = False,
) -> list[dict[str, Any]]:
    """Return summaries of cycles, the newest first.

    Args: before: a time, or the id of the last cycle that was read; is_failed: only cycles that failed or had a call
        that failed; since: only those that began at this time or later.
    Raises: LookupError for a `before` that is no cycle.
    """
    condition, bindings = where((
        ("started_at < ?", seconds(before)) if isinstance(before, datetime) else _beside(connection, "<", before),
        ("started_at >= ?", since and seconds(since)),
        ("outcome = ?", outcome and safe(outcome)), ("session = ?", session and safe(session)),
    ))  # fmt: skip
    rows = connection.execute(
        "SELECT id, agent, session, started_at, duration, outcome, summary, "
        "CASE WHEN summary = '' THEN body ELSE '' END FROM cycle "
        f"WHERE {condition}{f' AND ({FAILED})' * is_failed} ORDER BY started_at DESC, id DESC LIMIT ?",
        (*bindings, limit),
    )
    return [_line(connection, *columns) for columns in rows]


def _beside(connection: Connection, sign: str, cycle_id: str | None) -> tuple[str, str | None]:
    """Return the term that a cycle comes before ("<") or after (">") another one. Raises: LookupError for none."""
    id = None if cycle_id is None else safe(cycle_id)
    if cycle_id is not None and connection.execute("SELECT 1 FROM cycle WHERE id = ?", (id,)).get is None:
        raise unknown_place("cycle", cycle_id)
    return f"(started_at, id) {sign} (SELECT started_at, id FROM cycle WHERE id = ?)", id


def find(connection: Connection, cycle_id: str) -> CycleRecord | None:
    """Return the cycle with this id or unique beginning of an id. Raises: LookupError when several ids begin so."""
    exact = connection.execute(f"SELECT {_ROW} FROM cycle WHERE id = ?", (safe(cycle_id),)).fetchone()
    if exact is not None:
        return _record_of(connection, *exact)
    if not cycle_id:
        return None
    start = safe(cycle_id)
    matches = connection.execute(
        f"SELECT {_ROW} FROM cycle WHERE id >= ? AND id < ? ORDER BY id LIMIT 3", (start, start + "\U0010ffff")
    )
    hits = list(matches)
    if len(hits) > 1:
        names = ", ".join(str(row[0]) for row in hits)
        raise LookupError(f"several cycles begin with {cycle_id!r}: {names} …; give more of the id")
    return _record_of(connection, *hits[0]) if hits else None


def records(
    connection: Connection,
    limit: int,
    *,
    after: str | None = None,
    before: str | None = None,
    since: datetime | None = None,
) -> list[CycleRecord]:
    """Return whole cycles, the oldest first: those after a cycle or since a time, or the newest before a cycle.

    Raises: LookupError for an `after` or `before` that is no cycle.
    """
    places = _beside(connection, ">", after), _beside(connection, "<", before)
    condition, bindings = where((*places, ("started_at >= ?", since and seconds(since))))
    order = "ASC" if before is None else "DESC"
    rows = connection.execute(
        f"SELECT {_ROW} FROM cycle WHERE {condition} ORDER BY started_at {order}, id {order} LIMIT ?",
        (*bindings, limit),
    )
    cycles = [_record_of(connection, *row) for row in list(rows)]
    return cycles if before is None else cycles[::-1]


def _record_of(
    connection: Connection, cycle_id: Any, agent: Any, session: Any, started_at: Any, duration: Any, outcome: Any,
    body: Any,
) -> CycleRecord:  # fmt: skip
    """Return the record of a row. If the body cannot be read, return the values of the columns and a fault."""
    try:
        return _completed(connection, str(body), str(cycle_id))
    except _DAMAGE as error:
        fault = Fault("unreadable", _unreadable(cycle_id, error), "memory")
        known: Any = outcome if outcome in OUTCOMES else "failed"
        return CycleRecord(
            str(cycle_id), str(agent), str(session), _moment(started_at), _real(duration), known, faults=(fault,)
        )


def _unreadable(cycle_id: Any, error: Exception) -> str:
    return f"cycle {cycle_id} cannot be read: {error}; see: spar memory verify"


def _moment(column: Any) -> datetime:
    return datetime.fromtimestamp(_real(column), UTC)


def _real(value: Any) -> float:
    """Return the number in a column; 0 if the column holds no number or a huge one, as after damage."""
    return float(value) if isinstance(value, int | float) and abs(value) < 1e11 else 0.0


def _completed(connection: Connection, body: str, cycle_id: str) -> CycleRecord:
    """Return the record, with the parts that are stored in pieces and in facts put back."""
    texts: list[str] = []
    plain = parsed(body)
    cycle = whole(plain, cycle_id, lambda value: pieces.with_texts(connection, value, texts.append))
    missed = [*texts]
    if plain.get("has_pieces"):
        notes = pieces.with_pieces(connection, list(cycle.notes), missed.append)
        cycle = replace(cycle, notes=tuple(notes))
    if "result.results" in (plain.get("cut") or {}) and cycle.result is not None:
        ends = {call: text for call, kind, text, _ in events.of_work(connection, safe(cycle_id)) if kind == "ended"}
        results = tuple([_with_output(result, ends.get(result.call.id)) for result in cycle.result.results])
        cycle = linked(replace(cycle, result=replace(cycle.result, results=results)), plain.get("links") or ())
    if missed:
        # A text apart may belong to any part of the record; a piece belongs to the notes.
        cut = {} if texts else {"notes": [0, len(missed)]}
        message = f"{len(missed)} parts of cycle {cycle_id} cannot be found or read; see: spar memory verify"
        fault = Fault("unreadable", message, "memory", detail={"cut": cut} if cut else {})
        cycle = replace(cycle, faults=(*cycle.faults, fault))
    return cycle


def _with_output(result: CallResult, fact: str | None) -> CallResult:
    """Return a result; an output that was cut is replaced by the output in its fact of the journal."""
    output = result.output
    if fact is None or not (isinstance(output, dict) and output.get("truncated") is True and "reference" in output):
        return result
    return replace(result, output=masked(decode(fact, dict[str, Any]).get("output")))


def _line(
    connection: Connection, cycle_id: Any, agent: Any, session: Any, started_at: Any, duration: Any, outcome: Any,
    summary: Any, body: Any,
) -> dict[str, Any]:  # fmt: skip
    def put_back(value: Any) -> Any:
        return pieces.with_texts(connection, value, lambda digest: None)

    try:
        fields = parsed(summary) if summary else summary_of(whole(parsed(str(body)), str(cycle_id), put_back))
    except _DAMAGE as error:
        why = _unreadable(cycle_id, error)
        fields = {"about": why, "faults": [why]}
    return {
        "cycle_id": cycle_id,
        "agent": agent,
        "session": session,
        "started_at": _moment(started_at),
        "duration": duration,
        "outcome": outcome,
        "deferred": "",  # the default, since summaries written by older releases lack this field
        **fields,
    }
