"""The tape: every cycle as a row, listed by its summary, read back whole.

An action carries its perceptions, a result its action, a reflection its result. Written as they are, everything
would stand on the tape four times; what is the same is left out, noted in `links` and put back when read.
"""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from msgspec import Struct, ValidationError

from memory.codec import encode, read, safe, sealed, unsealed
from memory.experiences import seconds
from spar.errors import ContractError
from spar.types import Action, ActionResult, CycleRecord, Fault, Perception, Reflection, replace

if TYPE_CHECKING:
    from apsw import Connection

_LATER = ""  # in the place of a summary: made from the body when somebody asks, which few rows are ever asked for
_ROW_OVERHEAD = 300  # bytes of columns and index entries beside the texts
_MAX_LINE = 200  # characters of the goal and of a fault in a list of cycles
_PARTS: dict[str, tuple[Any, Any]] = {
    "perceptions": (tuple[Perception, ...], ()),
    "action": (Action | None, None),
    "result": (ActionResult | None, None),
    "reflection": (Reflection | None, None),
    "phases": (dict[str, float], {}),
    "faults": (tuple[Fault, ...], ()),
}

UPSERT = """
INSERT INTO cycle (id, started_at, bytes, outcome, session, agent, duration, summary, body)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET started_at = excluded.started_at, bytes = excluded.bytes, outcome = excluded.outcome,
    session = excluded.session, agent = excluded.agent, duration = excluded.duration, summary = excluded.summary,
    body = excluded.body
"""


class Taped(Struct, frozen=True):
    """What stands in a row's body. `truncated` is set when something had to be cut."""

    record: CycleRecord
    links: tuple[str, ...] = ()
    truncated: bool = False


def row(cycle: CycleRecord) -> tuple[Any, ...]:
    """The cycle as it will be written. Raises: ContractError when it is none."""
    if not isinstance(cycle, CycleRecord) or not isinstance(cycle.started_at, datetime):
        raise ContractError(f"only a CycleRecord with a time can be recorded, found {cycle!r:.200}")
    body = sealed(encode(_without_repetition(cycle)))
    duration = float(cycle.duration) if math.isfinite(cycle.duration) else None
    size = len(body) + _ROW_OVERHEAD
    names = (safe(cycle.outcome), safe(cycle.session), safe(cycle.agent))
    return (safe(cycle.cycle_id), seconds(cycle.started_at), size, *names, duration, _LATER, body)


def size_of(columns: tuple[Any, ...]) -> int:
    """About how many bytes a row takes."""
    return int(columns[2])


def insert(connection: Connection, columns: tuple[Any, ...]) -> None:
    """Write it. A cycle whose id is known is replaced: a chain of steps is recorded again as it grows."""
    connection.execute(UPSERT, columns)


def summaries(
    connection: Connection, limit: int, before: str | datetime | None, outcome: str | None, session: str | None
) -> list[dict[str, Any]]:
    """The newest first. `before` is a time or the id of a cycle that was already seen."""
    conditions, bindings = ["1"], list[Any]()
    if isinstance(before, datetime):
        conditions.append("started_at < ?")
        bindings.append(seconds(before))
    elif before is not None:
        conditions.append("(started_at, id) < (SELECT started_at, id FROM cycle WHERE id = ?)")
        bindings.append(safe(before))
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
    """The cycle with this id, or whose id alone begins so. Raises: LookupError when several do."""
    exact = connection.execute("SELECT body FROM cycle WHERE id = ?", (safe(cycle_id),)).get
    if exact is not None:
        return _whole(str(exact), cycle_id)
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
    return _whole(hits[0][1], hits[0][0]) if hits else None


def _without_repetition(cycle: CycleRecord) -> Taped:
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
    return Taped(cycle, tuple(links))


def _same(one: object, other: object) -> bool:
    try:
        return one is other or bool(one == other)
    except Exception:  # a stranger's values may not like to be compared
        return False


def _whole(body: str, cycle_id: str) -> CycleRecord:
    """What was recorded. A part that cannot be read is left out and said so in `faults`."""
    plain = _object(body)
    record, faults = dict(plain.get("record") or {}), []
    for name, (kind, empty) in _PARTS.items():
        try:
            record[name] = read(record.get(name, empty), kind)
        except (ValidationError, RecursionError) as error:
            record[name] = empty
            faults.append(Fault("unreadable", f"{name} of cycle {cycle_id} cannot be read: {error}", "memory"))
    if plain.get("truncated"):
        faults.append(Fault("truncated", f"cycle {cycle_id} was too large to be kept whole", "memory", retryable=False))
    parts = {name: record.pop(name) for name in _PARTS}
    parts["faults"] = (*parts["faults"], *faults)
    cycle: CycleRecord = replace(read(record, CycleRecord), **parts)
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
    """The outermost object of a body, parsed and not yet typed. Raises: ValueError."""
    return read(json.loads(unsealed(text)), dict[str, Any])


def _summary(cycle: CycleRecord) -> dict[str, Any]:
    results = cycle.result.results if cycle.result is not None else ()
    return {
        "goal": safe(cycle.action.goal, _MAX_LINE) if cycle.action is not None else "",
        "about": _about(cycle),
        "perceptions": len(cycle.perceptions),
        "calls": len(cycle.action.calls) if cycle.action is not None else 0,
        "failed_calls": sum(1 for item in results if item.status not in ("ok", "skipped")),
        "status": cycle.result.status if cycle.result is not None else None,
        "score": cycle.reflection.score if cycle.reflection is not None else None,
        "phases": cycle.phases,
        "faults": [safe(fault.message, _MAX_LINE) for fault in cycle.faults[:3]],
    }


def _about(cycle: CycleRecord) -> str:
    """What a cycle was about, in one line: what failed, else the goal, else the beginning of what was perceived."""
    goal = cycle.action.goal if cycle.action is not None else ""
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
        **told,
    }
