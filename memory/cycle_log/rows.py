"""Rows of the cycle log: encodes, masks, cuts and writes cycles.

A record that is too large for a row is cut: each part gets a share of the room. Phases and faults get room first, then
action, result and reflection, then notes, and perceptions last. A list keeps all its items while there is room for the
shortest form of each. An item that is cut is marked (`truncated`) and refers to the whole: a result to its fact in the
journal, a perception to its id.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from datetime import datetime
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Raw
from msgspec.json import encode as as_json

from memory import pieces
from memory.codec import encode, is_safe, safe, sealed, seconds, seems_small, shortened, unsealed
from memory.cycle_log.body import CycleBody, without_defaults, without_repeats, without_repetition
from memory.inserts import insert_all
from memory.sqlite import seals
from spar.data.scrub import mask_json, may_hold
from spar.errors import ContractError
from spar.types import CallResult, CycleRecord, Fault, Perception, count_calls, replace

if TYPE_CHECKING:
    from memory.engine.connection import Connection


_LATER = ""  # instead of a summary: it is made from the body when somebody lists the cycle, which is rare
_ROW_OVERHEAD = 300  # bytes of columns and index entries beside the texts
_MAX_LINE = 200  # most characters of the goal and of a fault in a list of cycles
#: Most characters of a cycle that the event loop encodes itself.
_FEW = 1_000
#: Bytes of cycles that are in memory in encoded form before they are written.
_AT_ONCE = 1 << 18
_UPSERT_INTO = "INSERT INTO cycle (id, started_at, bytes, outcome, session, agent, duration, summary, body)"
_OR_UPDATE = """
ON CONFLICT (id) DO UPDATE SET started_at = excluded.started_at, bytes = excluded.bytes, outcome = excluded.outcome,
    session = excluded.session, agent = excluded.agent, duration = excluded.duration, summary = excluded.summary,
    body = excluded.body
"""
UPSERT = f"{_UPSERT_INTO} VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) {_OR_UPDATE}"


_INTO = """INSERT OR IGNORE INTO cycle
    (seq, id, started_at, bytes, outcome, session, agent, duration, summary, body)"""


class CycleRow(NamedTuple):
    """Cycle to write: its columns, and its pieces, which are stored in another table."""

    columns: tuple[Any, ...]
    pieces: Sequence[pieces.Texts]


def row(cycle: CycleRecord) -> CycleRow:
    """Return the row of a cycle. Raises: ContractError when it is no cycle."""
    if not isinstance(cycle, CycleRecord) or not isinstance(cycle.started_at, datetime):
        raise ContractError(f"only a CycleRecord with a time can be recorded, found {cycle!r:.200}")
    cycle, links = without_repetition(cycle)
    shared = pieces.Pieces()
    if cycle.notes:
        cycle = replace(cycle, notes=tuple([shared.without(note) for note in cycle.notes]))
    if shared.texts and seems_small(cycle, SMALL):
        text = _compact_body(cycle, links, shared)
    elif seems_small(cycle, SMALL):
        text = encode(CycleBody(cycle, links), limit=1 << 62)
    else:
        cut: dict[str, tuple[int, int]] = {}
        record = shared_out(cycle, cut)
        text = as_json(CycleBody(record, links, bool(cut), cut, bool(shared.texts))).decode("ascii")
    text = mask_json(text)
    calls = calls_of(cycle)
    summary = mask_json(encode(summary_of(cycle), limit=1 << 62)) if calls["failed"] else _LATER
    return CycleRow(_columns(cycle, summary, sealed(text)), shared.texts)


def _compact_body(cycle: CycleRecord, links: tuple[str, ...], shared: pieces.Pieces) -> str:
    """Return the body of a cycle that has pieces in the compact form, if its values have one."""
    try:
        results = () if cycle.result is None else cycle.result.results
        is_counted = cycle.calls == count_calls(results)
        bare = without_defaults(replace(cycle, notes=(), calls={} if is_counted else cycle.calls))
        apart = pieces.Pieces()
        plain = apart.without_texts(json.loads(mask_json(encode(bare, limit=1 << 62))))
        record = without_repeats({**plain, "notes": list(cycle.notes)})
        shared.texts += apart.texts
        return encode(CycleBody(record, links, has_pieces=True, form=2 if is_counted else 1), limit=1 << 62)
    except Exception:  # a value of a user that cannot be read here, or has the key of a reference
        return encode(CycleBody(cycle, links, has_pieces=True), limit=1 << 62)


def _columns(cycle: CycleRecord, summary: str, body: str) -> tuple[Any, ...]:
    duration = float(cycle.duration) if math.isfinite(cycle.duration) else None
    size = len(body) + _ROW_OVERHEAD
    names: tuple[str, ...] = cycle.cycle_id, cycle.outcome, cycle.session, cycle.agent
    if not is_safe("".join(names)):
        names = tuple(map(safe, names))
    return (names[0], seconds(cycle.started_at), size, *names[1:], duration, summary, body)


def size_of(row: CycleRow) -> int:
    """Return about how many bytes a row takes, with all its pieces, also those that other cycles share."""
    return int(row.columns[2]) + sum(len(text) for texts in row.pieces for text in texts.values())


def insert(connection: Connection, row: CycleRow) -> None:
    """Write a row. It replaces a cycle with the same id, since a chain of steps is recorded again as it grows."""
    _upsert(connection, [row.columns])
    if row.pieces:
        number = connection.execute("SELECT seq FROM cycle WHERE id = ?", row.columns[:1]).get
        pieces.write(connection, row.pieces, int(str(number)))


def _upsert(connection: Connection, rows: Sequence[tuple[Any, ...]]) -> None:
    """Write rows; with few statements, unless two have one id, which PostgreSQL refuses in one statement."""
    if len({row[0] for row in rows}) == len(rows):
        insert_all(connection, _UPSERT_INTO, rows, _OR_UPDATE)
    else:
        connection.executemany(UPSERT, rows)
    if (sealing := seals.of(connection)) is not None:
        sealing.tops.pop("cycle", None)  # the greatest number may have changed and must be read again


def prepared(
    cycle: CycleRecord, *, is_end: bool = False, besides: dict[str, Any] | None = None
) -> CycleRow | CycleRecord:
    """Return a short cycle as an encoded row, any other cycle unchanged.

    This takes a few microseconds. The writer's thread then has less to do, and competes less with the event loop for
    the interpreter. `write` encodes the other cycles, and masks the rows that are encoded here.
    Args: is_end, besides: as in `CycleBody`.
    """
    try:
        if not _holds_little(cycle):
            return cycle
        raw = as_json(CycleBody(cycle, is_end=is_end, besides=besides))
        if not raw.isascii():
            return cycle
        return CycleRow(_columns(cycle, _LATER, sealed(raw.decode())), ())
    except Exception:  # a field of a wrong type, or a lone surrogate
        return cycle


def _holds_little(cycle: CycleRecord) -> bool:
    """Return whether a cycle has no calls, no errors and no notes, and its texts are short.

    This runs for each cycle. The fields that must be empty here are all fields that are no texts or numbers.
    """
    action, result, reflection = cycle.action, cycle.result, cycle.reflection
    if (
        any(_of_cycle(cycle))
        or cycle.calls.get("failed")
        or (action is not None and any(_of_action(action)))
        or (result is not None and any(_of_result(result)))
        or (reflection is not None and any(_of_reflection(reflection)))
    ):
        return False
    left = _FEW - len(cycle.agent) - len(cycle.session)
    if action is not None:
        left -= sum(map(len, _texts_of_action(action)))
    for perception in cycle.perceptions:
        if type(perception.content) is not str or any(_of_perception(perception)):
            return False
        left -= (
            sum(map(len, _texts_of_perception(perception))) + len(perception.key or "") + len(perception.subject or "")
        )
        if left < 0:
            return False
    return left >= 0


#: Readers of the fields that are empty in a cycle that holds little, and of its texts.
_of_cycle = attrgetter("notes", "faults")
_of_action = attrgetter("calls", "perceptions", "answers", "output")
_of_result = attrgetter("action", "results", "state", "messages", "errors", "fault")
_of_reflection = attrgetter("result", "successes", "failures", "abilities", "experiences")
_of_perception = attrgetter("attributes", "evidence")
_texts_of_action = attrgetter("goal", "id", "reason", "deferred")
_texts_of_perception = attrgetter("content", "source", "kind", "id", "session", "intent")


def write(connection: Connection, cycles: Sequence[CycleRow | CycleRecord]) -> None:
    """Write cycles; encode those that are not encoded yet.

    Called in the writer's thread, so that a large cycle does not block the event loop. The content of a cycle never
    makes this raise, since the other rows of the transaction must be written.
    """
    for kind, some in groupby(cycles, type):
        if kind is CycleRow:
            _insert_all(connection, [row.columns for row in some if isinstance(row, CycleRow)])
            continue
        rows, size = list[tuple[Any, ...]](), 0
        for cycle in some:
            row = cycle if isinstance(cycle, CycleRow) else _surely(cycle)
            if not row.pieces:
                rows.append(row.columns)
                size += size_of(row)
            if row.pieces or size > _AT_ONCE:
                _upsert(connection, rows)
                rows, size = [], 0
            if row.pieces:
                insert(connection, row)
        _upsert(connection, rows)


def _without_secrets(rows: Sequence[tuple[Any, ...]]) -> Sequence[tuple[Any, ...]]:
    """Return the rows of `prepared` with secrets masked. All bodies are searched together, which is much faster."""
    if not may_hold("\n".join([row[-1] for row in rows])):
        return rows
    bodies = [sealed(mask_json(unsealed(row[-1]))) for row in rows]
    return [(*row[:-1], body) for row, body in zip(rows, bodies, strict=True)]


def _insert_all(connection: Connection, rows: Sequence[tuple[Any, ...]]) -> None:
    """Write rows that have no pieces, and pass them to the sealing, which keeps the seals of the table."""
    rows = _without_secrets(rows)
    sealing = seals.of(connection)
    if sealing is None:
        _upsert(connection, rows)
        return
    first = sealing.tops.get("cycle", 0) or _last(connection)
    numbered = [(number, *row) for number, row in enumerate(rows, first + 1)]
    before = connection.total_changes()
    with sealing.unhooked:
        insert_all(connection, _INTO, numbered)
    if connection.total_changes() - before == len(rows):
        sealing.wrote("cycle", numbered)
    else:  # some ids are stored already
        connection.executemany(UPSERT, rows)
    sealing.tops["cycle"] = first + len(rows)


def _last(connection: Connection) -> int:
    """Return the greatest row number that a cycle ever had."""
    number = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'cycle'").get
    return number if isinstance(number, int) else 0


def _surely(cycle: CycleRecord) -> CycleRow:
    try:
        return row(cycle)
    except Exception as error:  # a value that changes while it is read, or a broken object of a user
        fault = Fault("unreadable", f"cycle {cycle.cycle_id} could not be encoded: {error}", "memory")
        head = replace(cycle, perceptions=(), action=None, result=None, reflection=None, notes=(), faults=(fault,))
        return row(head)


def summary_of(cycle: CycleRecord) -> dict[str, Any]:
    calls = calls_of(cycle)
    return {
        "goal": safe(cycle.action.goal, _MAX_LINE) if cycle.action is not None else "",
        "deferred": safe(cycle.action.deferred, _MAX_LINE) if cycle.action is not None else "",
        "about": _about(cycle),
        "perceptions": len(cycle.perceptions),
        "calls": calls,
        "failed_calls": calls["failed"],
        "status": cycle.result.status if cycle.result is not None else None,
        "score": cycle.reflection.score if cycle.reflection is not None else None,
        "phases": cycle.phases,
        "faults": [safe(fault.message, _MAX_LINE) for fault in cycle.faults[:3]],
    }


def calls_of(cycle: CycleRecord) -> dict[str, int]:
    """Return the numbers of a cycle's calls by outcome; they are counted from the results if the record lacks them."""
    return cycle.calls or count_calls(() if cycle.result is None else cycle.result.results)


def _about(cycle: CycleRecord) -> str:
    """Describe a cycle in one line: its first fault, else why its plan was deferred, else its goal, else the beginning
    of its first perception."""
    goal = cycle.action.deferred or cycle.action.goal if cycle.action is not None else ""
    first = cycle.perceptions[0].text[: 4 * _MAX_LINE] if cycle.perceptions else ""
    text = (cycle.faults[0].message if cycle.faults else "") or goal or first
    return safe(" ".join(text.split()), _MAX_LINE)


#: Most bytes of a body. A body smaller than `SMALL` needs no shares.
MOST_BYTES, SMALL = 2 << 20, 128 << 10


#: Bytes of the shortest form of an item of a list.
_LEAST = 512
#: Parts of a cycle in the order in which they get room, each with its share of the room that is left.
_SHARES: tuple[tuple[str, float], ...] = (
    ("phases", 0.1), ("faults", 0.1), ("action", 0.3), ("result", 0.4), ("reflection", 0.2), ("notes", 0.5),
    ("perceptions", 1.0),
)  # fmt: skip
#: By part, the field whose list makes the part large.
_LISTS = {"action": "calls", "result": "results", "reflection": "experiences"}


def shared_out(cycle: CycleRecord, cut: dict[str, tuple[int, int]]) -> dict[str, Any]:
    """Return the fields of a large cycle as JSON, each within its share.

    For each part that was cut, `cut` gets the numbers of present items and of all items.
    """
    small = {name: getattr(cycle, name) for name in cycle.__struct_fields__ if name not in dict(_SHARES)}
    record: dict[str, Any] = {name: _raw(shortened(value, _LEAST)[0]) for name, value in small.items()}
    left, is_shared = MOST_BYTES, not seems_small(cycle, MOST_BYTES)
    for name, share in _SHARES:
        text = _part(cycle, name, int(left * share) if is_shared else MOST_BYTES, cut)
        record[name] = _raw(text)
        left = max(left - len(text), _LEAST)
    return record


def _part(cycle: CycleRecord, name: str, room: int, cut: dict[str, tuple[int, int]]) -> str:
    value = getattr(cycle, name)
    if isinstance(value, (tuple, list)):
        return _items(value, name, room, cut, cycle.cycle_id)
    field = _LISTS.get(name)
    items = getattr(value, field, ()) if field else ()
    if not items or not field:
        return _one(value, name, room, cut)
    most = room * 7 // 8
    text = _items(items, f"{name}.{field}", most, cut, cycle.cycle_id)
    rest = _one(replace(value, **{field: ()}), name, room - min(len(text), most), cut)
    return as_json({**{key: _raw_of(item) for key, item in json.loads(rest).items()}, field: _raw(text)}).decode()


def _one(value: Any, name: str, room: int, cut: dict[str, tuple[int, int]]) -> str:
    text, was_cut = shortened(value, max(room, _LEAST))
    if was_cut:
        cut[name] = (0, 1)
    return text


def _items(items: Sequence[Any], name: str, room: int, cut: dict[str, tuple[int, int]], cycle_id: str) -> str:
    """Return a list as JSON within its room: small items whole, large items cut to equal shares of what is left.

    If there is no room for the shortest form of each item, the last items are left out.
    """
    number = min(len(items), max(room // _LEAST, 1))
    texts: list[str] = []
    whole = 0
    for at, item in enumerate(items[:number]):
        fair = max(room // (number - at), _LEAST)
        text, was_cut = shortened(item, fair) if seems_small(item, fair) else ("", True)
        if was_cut:
            text = shortened(_referring(item, fair, cycle_id), fair + _LEAST)[0]
        whole += not was_cut
        texts.append(text)
        room -= len(text)
    if whole < len(items):
        cut[name] = (number, len(items))
    return f"[{','.join(texts)}]"


def _referring(item: Any, room: int, cycle_id: str) -> Any:
    """Return a short form of an item, which is marked as truncated and refers to the whole."""
    if isinstance(item, CallResult):
        start = shortened(item.output, room // 2)[0]
        reference = f"{cycle_id}/{item.call.id}"
        return replace(item, output={"truncated": True, "reference": reference, "beginning": start})
    if isinstance(item, Perception):
        content = item.content if isinstance(item.content, str) else shortened(item.content, room // 2)[0]
        marked = {"truncated": True, "reference": item.id, "characters": len(content)}
        return replace(item, content=content[: room // 2], evidence=(), attributes=marked)
    return item


def _raw(text: str) -> Raw:
    return Raw(text.encode("ascii"))


def _raw_of(value: Any) -> Raw:
    return _raw(encode(value, limit=1 << 62))
