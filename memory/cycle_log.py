"""The tape: every cycle as a row, listed by its summary, read back whole.

An action carries its perceptions, a result its action, a reflection its result. Written as they are, everything
would stand on the tape four times; what is the same is left out, noted in `links` and put back when read. What many
cycles hold in common, such as what a model was asked before, is kept once (`memory.pieces`).

A cycle that is too large for a row is cut by shares: phases and faults first, then calls and results, then notes, what
was perceived last. A list keeps all its items as long as there is room for the shortest form of each; an item that is
cut says so (`truncated`) and refers to the whole: a result to the fact of the journal, from which it is read back while
that is kept, a perception to its id. A `Fault` of the kind `truncated` in what is read names each part that was cut.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Raw, Struct, ValidationError, field
from msgspec.json import encode as as_json

from memory import events, pieces
from memory.codec import (
    decode,
    encode,
    is_safe,
    read,
    safe,
    sealed,
    seconds,
    seems_small,
    shortened,
    unsealed,
)
from memory.inserts import insert_all
from memory.sqlite import seals
from spar.data.scrub import mask_json, masked, may_hold
from spar.errors import ContractError
from spar.types import (
    Action,
    ActionResult,
    CallResult,
    CycleRecord,
    Fault,
    Perception,
    Reflection,
    count_calls,
    replace,
)

if TYPE_CHECKING:
    from apsw import Connection

_LATER = ""  # in the place of a summary: made from the body when somebody asks, which few rows are ever asked for
_ROW_OVERHEAD = 300  # bytes of columns and index entries beside the texts
_MAX_LINE = 200  # characters of the goal and of a fault in a list of cycles
#: Bytes of a body. Below `_SMALL` nothing has to be shared out.
MOST_BYTES, _SMALL = 2 << 20, 128 << 10
#: Characters of a cycle that the event loop encodes itself.
_FEW = 1_000
#: Bytes of the shortest form of an item of a list.
_LEAST = 512
_PARTS: dict[str, tuple[Any, Any]] = {
    "perceptions": (tuple[Perception, ...], ()),
    "action": (Action | None, None),
    "result": (ActionResult | None, None),
    "reflection": (Reflection | None, None),
    "phases": (dict[str, float], {}),
    "faults": (tuple[Fault, ...], ()),
}
#: The parts of a cycle in the order in which they get room, with the share of what is left that each may take.
_SHARES: tuple[tuple[str, float], ...] = (
    ("phases", 0.1), ("faults", 0.1), ("action", 0.3), ("result", 0.4), ("reflection", 0.2), ("notes", 0.5),
    ("perceptions", 1.0),
)  # fmt: skip
#: Which field of a part is the list that makes it large.
_LISTS = {"action": "calls", "result": "results", "reflection": "experiences"}

UPSERT = """
INSERT INTO cycle (id, started_at, bytes, outcome, session, agent, duration, summary, body)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET started_at = excluded.started_at, bytes = excluded.bytes, outcome = excluded.outcome,
    session = excluded.session, agent = excluded.agent, duration = excluded.duration, summary = excluded.summary,
    body = excluded.body
"""

_INTO = """INSERT OR IGNORE INTO cycle
    (seq, id, started_at, bytes, outcome, session, agent, duration, summary, body)"""


class CycleBody(Struct, frozen=True, omit_defaults=True):
    """The body of a row. `cut` says of each part that was cut how many of how many items are there.

    `is_end` says that no fact tells of the cycle's end: it and `besides` are to be added to the counts of its agent.
    """

    record: Any
    links: tuple[str, ...] = ()
    truncated: bool = False
    cut: dict[str, tuple[int, int]] = field(default_factory=dict)
    has_pieces: bool = False
    is_end: bool = False
    besides: dict[str, Any] | None = None


class CycleRow(NamedTuple):
    """A cycle as it will be written: its columns, and the pieces of it that stand elsewhere."""

    columns: tuple[Any, ...]
    pieces: dict[str, str]


def row(cycle: CycleRecord) -> CycleRow:
    """Return the cycle as it will be written. Raises: ContractError when it is none."""
    if not isinstance(cycle, CycleRecord) or not isinstance(cycle.started_at, datetime):
        raise ContractError(f"only a CycleRecord with a time can be recorded, found {cycle!r:.200}")
    cycle, links = _without_repetition(cycle)
    found = pieces.Pieces()
    if cycle.notes:
        cycle = replace(cycle, notes=tuple([found.without(note) for note in cycle.notes]))
    if seems_small(cycle, _SMALL):
        text = encode(CycleBody(cycle, links, has_pieces=bool(found.texts)), limit=1 << 62)
    else:
        cut: dict[str, tuple[int, int]] = {}
        record = _shared_out(cycle, cut)
        text = as_json(CycleBody(record, links, bool(cut), cut, bool(found.texts))).decode("ascii")
    text = mask_json(text)
    calls = _calls(cycle)
    summary = mask_json(encode(_summary(cycle), limit=1 << 62)) if calls["failed"] else _LATER
    return CycleRow(_columns(cycle, summary, sealed(text)), found.texts)


def _columns(cycle: CycleRecord, summary: str, body: str) -> tuple[Any, ...]:
    duration = float(cycle.duration) if math.isfinite(cycle.duration) else None
    size = len(body) + _ROW_OVERHEAD
    names: tuple[str, ...] = cycle.cycle_id, cycle.outcome, cycle.session, cycle.agent
    if not is_safe("".join(names)):
        names = tuple(map(safe, names))
    return (names[0], seconds(cycle.started_at), size, *names[1:], duration, summary, body)


def size_of(row: CycleRow) -> int:
    """About how many bytes a row takes, what it has in common with others counted in."""
    return int(row.columns[2]) + sum(map(len, row.pieces.values()))


def insert(connection: Connection, row: CycleRow) -> None:
    """Write it. A cycle whose id is known is replaced: a chain of steps is recorded again as it grows."""
    _keep_pieces(connection, row)
    connection.execute(UPSERT, row.columns)
    if (sealing := seals.of(connection)) is not None:
        sealing.tops.pop("cycle", None)  # to be read again


def prepared(
    cycle: CycleRecord, *, is_end: bool = False, besides: dict[str, Any] | None = None
) -> CycleRow | CycleRecord:
    """Encode a cycle that holds but a few words, in a few microseconds: the writer's thread then has little to do but
    to write, and need not fight with the event loop for the interpreter. Any other stays what it is, for `write`,
    which also masks what is encoded here."""
    try:
        if not _holds_little(cycle):
            return cycle
        raw = as_json(CycleBody(cycle, is_end=is_end, besides=besides))
        if not raw.isascii():
            return cycle
        return CycleRow(_columns(cycle, _LATER, sealed(raw.decode())), {})
    except Exception:  # a field that is not what it should be, or a lone surrogate
        return cycle


def _holds_little(cycle: CycleRecord) -> bool:
    """Return whether a cycle made no calls, nothing went wrong and nothing was noted, and its texts are short.

    It is done for each cycle: what is taken for empty here is all that there is besides texts and numbers.
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
    for each in cycle.perceptions:
        if type(each.content) is not str or any(_of_perception(each)):
            return False
        left -= sum(map(len, _texts_of_perception(each))) + len(each.key or "") + len(each.subject or "")
        if left < 0:
            return False
    return left >= 0


#: What is empty in a cycle that holds little.
_of_cycle = attrgetter("notes", "faults")
_of_action = attrgetter("calls", "perceptions", "answers", "output")
_of_result = attrgetter("action", "results", "state", "messages", "errors", "fault")
_of_reflection = attrgetter("result", "successes", "failures", "abilities", "experiences")
_of_perception = attrgetter("attributes", "evidence")
_texts_of_action = attrgetter("goal", "id", "reason", "deferred")
_texts_of_perception = attrgetter("content", "source", "kind", "id", "session", "intent")


def write(connection: Connection, cycles: Sequence[CycleRow | CycleRecord]) -> None:
    """Write these, and encode those that are not. Called in the writer's thread, so that a large cycle holds up no
    loop; never raises for what a cycle holds: the others of its transaction must not suffer for it."""
    for kind, some in groupby(cycles, type):
        if kind is CycleRow:
            _insert_all(connection, [row.columns for row in some if isinstance(row, CycleRow)])
            continue
        for cycle in some:  # one by one, so that no more than one large one is held encoded
            insert(connection, cycle if isinstance(cycle, CycleRow) else _surely(cycle))


def _without_secrets(rows: Sequence[tuple[Any, ...]]) -> Sequence[tuple[Any, ...]]:
    """Mask the bodies of rows that were encoded alone: they are searched together, which is much quicker."""
    if not may_hold("\n".join([row[-1] for row in rows])):
        return rows
    bodies = [sealed(mask_json(unsealed(row[-1]))) for row in rows]
    return [(*row[:-1], body) for row, body in zip(rows, bodies, strict=True)]


def _insert_all(connection: Connection, rows: Sequence[tuple[Any, ...]]) -> None:
    """Write rows that have no pieces, and tell them to who keeps their seals."""
    rows = _without_secrets(rows)
    sealing = seals.of(connection)
    if sealing is None:
        connection.executemany(UPSERT, rows)
        return
    first = sealing.tops.get("cycle", 0) or _last(connection)
    numbered = [(number, *row) for number, row in enumerate(rows, first + 1)]
    before = connection.total_changes()
    with sealing.unhooked:
        insert_all(connection, _INTO, numbered)
    if connection.total_changes() - before == len(rows):
        sealing.wrote("cycle", numbered)
    else:  # some are known
        connection.executemany(UPSERT, rows)
    sealing.tops["cycle"] = first + len(rows)


def _last(connection: Connection) -> int:
    """Return the greatest number that a cycle ever had."""
    found = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'cycle'").get
    return found if isinstance(found, int) else 0


def _surely(cycle: CycleRecord) -> CycleRow:
    try:
        return row(cycle)
    except Exception as error:  # a value that changes while it is read, or a stranger's object
        fault = Fault("unreadable", f"cycle {cycle.cycle_id} could not be encoded: {error}", "memory")
        head = replace(cycle, perceptions=(), action=None, result=None, reflection=None, notes=(), faults=(fault,))
        return row(head)


def _keep_pieces(connection: Connection, row: CycleRow) -> None:
    if row.pieces:
        last = connection.execute("SELECT max(seq) FROM cycle").get
        pieces.write(connection, row.pieces, (last if isinstance(last, int) else 0) + 1)


def _shared_out(cycle: CycleRecord, cut: dict[str, tuple[int, int]]) -> dict[str, Any]:
    """Return the fields of a large cycle as JSON, each within its share; `cut` gets the parts that are not whole."""
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
    """A list within its room: the small items whole, what is left shared by the large ones, at last fewer of them."""
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
    """An item in its short form, which says so and where the whole is."""
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


def summaries(
    connection: Connection,
    limit: int,
    before: str | datetime | None,
    outcome: str | None,
    session: str | None,
    *,
    is_failed: bool = False,
) -> list[dict[str, Any]]:
    """Return summaries of cycles, the newest first. `before` is a time or the id of a cycle that was already seen;
    `is_failed`: only cycles that failed or whose calls did."""
    conditions, bindings = ["1"], list[Any]()
    if isinstance(before, datetime):
        conditions.append("started_at < ?")
        bindings.append(seconds(before))
    elif before is not None:
        conditions.append("(started_at, id) < (SELECT started_at, id FROM cycle WHERE id = ?)")
        bindings.append(safe(before))
    if is_failed:  # the summary of a cycle whose calls failed is written with it
        failed_calls = "iif(summary = '', 0, json_extract(summary, '$.failed_calls') > 0)"
        conditions.append(f"(outcome = 'failed' OR {failed_calls})")
    for name, value in (("outcome", outcome), ("session", session)):
        if value is not None:
            conditions.append(f"{name} = ?")
            bindings.append(safe(value))
    found = connection.execute(
        "SELECT id, agent, session, started_at, duration, outcome, summary, iif(summary = '', body, '') FROM cycle "
        f"WHERE {' AND '.join(conditions)} ORDER BY started_at DESC, id DESC LIMIT ?",
        (*bindings, limit),
    )
    return [_line(*columns) for columns in found]


def find(connection: Connection, cycle_id: str) -> CycleRecord | None:
    """Return the cycle with this id, or whose id alone begins so. Raises: LookupError when several do."""
    exact = connection.execute("SELECT body FROM cycle WHERE id = ?", (safe(cycle_id),)).get
    if exact is not None:
        return _completed(connection, str(exact), cycle_id)
    if not cycle_id:
        return None
    start = safe(cycle_id)
    found = connection.execute(
        "SELECT id, body FROM cycle WHERE id >= ? AND id < ? ORDER BY id LIMIT 3", (start, start + "\U0010ffff")
    )
    hits = [(str(name), str(body)) for name, body in found]
    if len(hits) > 1:
        raise LookupError(
            f"several cycles begin with {cycle_id!r}: {', '.join(name for name, _ in hits)} …; give more of the id"
        )
    return _completed(connection, hits[0][1], hits[0][0]) if hits else None


def _completed(connection: Connection, body: str, cycle_id: str) -> CycleRecord:
    """Return the record, completed by the parts that stand elsewhere."""
    cycle, plain = _whole(body, cycle_id), _object(body)
    missed: list[str] = []
    if plain.get("has_pieces"):
        notes = pieces.with_pieces(connection, list(cycle.notes), missed.append)
        cycle = replace(cycle, notes=tuple(notes))
    if "result.results" in (plain.get("cut") or {}) and cycle.result is not None:
        ends = {call: text for call, kind, text, _ in events.of_work(connection, safe(cycle_id)) if kind == "ended"}
        results = tuple([_with_output(result, ends.get(result.call.id)) for result in cycle.result.results])
        cycle = _linked(replace(cycle, result=replace(cycle.result, results=results)), plain.get("links") or ())
    if missed:
        told = f"{len(missed)} parts of the notes of cycle {cycle_id} cannot be found or read; see: spar verify"
        cycle = replace(cycle, faults=(*cycle.faults, Fault("unreadable", told, "memory")))
    return cycle


def _with_output(result: CallResult, fact: str | None) -> CallResult:
    """A result whose output was cut with what the journal knows of it."""
    output = result.output
    if fact is None or not (isinstance(output, dict) and output.get("truncated") is True and "reference" in output):
        return result
    return replace(result, output=masked(decode(fact, dict[str, Any]).get("output")))


def _without_repetition(cycle: CycleRecord) -> tuple[CycleRecord, tuple[str, ...]]:
    links = []
    action, result, reflection = cycle.action, cycle.result, cycle.reflection
    if action is not None and action.perceptions and _same(action.perceptions, cycle.perceptions):
        links.append("action.perceptions")
        action = replace(action, perceptions=())
    if result is not None and result.action is not None and _same(result.action, cycle.action):
        links.append("result.action")
        result = replace(result, action=None)
    if reflection is not None and reflection.result is not None and _same(reflection.result, cycle.result):
        links.append("reflection.result")
        reflection = replace(reflection, result=None)
    if links:
        cycle = replace(cycle, action=action, result=result, reflection=reflection)
    return cycle, tuple(links)


def _same(one: object, other: object) -> bool:
    try:
        return one is other or bool(one == other)
    except Exception:  # a stranger's values may not like to be compared
        return False


def _whole(body: str, cycle_id: str) -> CycleRecord:
    """Return the whole record. A part that cannot be read is left out and said so in `faults`."""
    plain = _object(body)
    record, faults = dict(plain.get("record") or {}), []
    for name, (kind, empty) in _PARTS.items():
        try:
            record[name] = read(record.get(name, empty), kind)
        except (ValidationError, RecursionError) as error:
            record[name] = empty
            faults.append(Fault("unreadable", f"{name} of cycle {cycle_id} cannot be read: {error}", "memory"))
    if plain.get("truncated") or plain.get("cut"):
        cut = {str(name): [int(number) for number in of] for name, of in (plain.get("cut") or {}).items()}
        parts = ", ".join(f"{name} ({kept} of {of} items)" if of > 1 else name for name, (kept, of) in cut.items())
        told = f"cycle {cycle_id} was too large to be kept whole; cut: {parts or 'some of its parts'}"
        detail = {"truncated": True, "reference": cycle_id, "cut": cut}
        faults.append(Fault("truncated", told, "memory", retryable=False, detail=detail))
    found = {name: record.pop(name) for name in _PARTS}
    found["faults"] = (*found["faults"], *faults)
    cycle: CycleRecord = replace(read(record, CycleRecord), **found)
    return _linked(cycle, plain.get("links") or ())


def _linked(cycle: CycleRecord, links: Any) -> CycleRecord:
    action, result, reflection = cycle.action, cycle.result, cycle.reflection
    if action is not None and "action.perceptions" in links:
        action = replace(action, perceptions=cycle.perceptions)
    if result is not None and "result.action" in links:
        result = replace(result, action=action)
    if reflection is not None and "reflection.result" in links:
        reflection = replace(reflection, result=result)
    return replace(cycle, action=action, result=result, reflection=reflection)


def _object(text: str) -> dict[str, Any]:
    """Return the outermost object of a body, parsed and not yet typed. Raises: ValueError."""
    return read(json.loads(unsealed(text)), dict[str, Any])


def _summary(cycle: CycleRecord) -> dict[str, Any]:
    calls = _calls(cycle)
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


def _calls(cycle: CycleRecord) -> dict[str, int]:
    """Count how its calls went; of a record that does not say so by its results."""
    return cycle.calls or count_calls(() if cycle.result is None else cycle.result.results)


def _about(cycle: CycleRecord) -> str:
    """Describe a cycle in one line: what failed, else why its plan was put off, else the goal, else the beginning of
    what was perceived."""
    goal = cycle.action.deferred or cycle.action.goal if cycle.action is not None else ""
    first = cycle.perceptions[0].text[: 4 * _MAX_LINE] if cycle.perceptions else ""
    text = (cycle.faults[0].message if cycle.faults else "") or goal or first
    return safe(" ".join(text.split()), _MAX_LINE)


def _line(
    cycle_id: Any, agent: Any, session: Any, started_at: Any, duration: Any, outcome: Any, summary: Any, body: Any
) -> dict[str, Any]:
    told = _object(summary) if summary else _summary(_whole(str(body), str(cycle_id)))
    return {
        "cycle_id": cycle_id,
        "agent": agent,
        "session": session,
        "started_at": datetime.fromtimestamp(started_at, UTC),
        "duration": duration,
        "outcome": outcome,
        "deferred": "",  # a summary that an older release wrote does not say so
        **told,
    }
