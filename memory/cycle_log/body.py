"""Bodies of rows: the record of a cycle without its repetitions, and the record that is read back from it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from msgspec import Struct, ValidationError, field

from memory.codec import read, unsealed
from memory.cycle_log.compact import with_repetition
from spar.types import Action, ActionResult, CycleRecord, Fault, Perception, Reflection, count_calls, replace

_PARTS: dict[str, tuple[Any, Any]] = {
    "perceptions": (tuple[Perception, ...], ()),
    "action": (Action | None, None),
    "result": (ActionResult | None, None),
    "reflection": (Reflection | None, None),
    "phases": (dict[str, float], {}),
    "faults": (tuple[Fault, ...], ()),
}


class CycleBody(Struct, frozen=True, omit_defaults=True):
    """Body of a row. `cut` gives, for each part that was cut, the numbers of present items and of all items.

    `form` is 0 for a record as it is, 1 for one in the form of `compact`, 2 for such a one whose calls are counted.
    `is_end` says that no fact contains the cycle's end: the cycle and `besides` are added to the counts of its agent.
    """

    record: Any
    links: tuple[str, ...] = ()
    truncated: bool = False
    cut: dict[str, tuple[int, int]] = field(default_factory=dict)
    has_pieces: bool = False
    form: int = 0
    is_end: bool = False
    besides: dict[str, Any] | None = None


def without_repetition(cycle: CycleRecord) -> tuple[CycleRecord, tuple[str, ...]]:
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
    except Exception:  # values of users may raise when they are compared
        return False


def whole(plain: dict[str, Any], cycle_id: str, put_back: Callable[[Any], Any]) -> CycleRecord:
    """Return the whole record of a parsed body. A part that cannot be read is left out, which a fault says.

    Args: put_back: returns a value with the long texts that are stored apart.
    """
    record, faults = plain.get("record") or {}, []
    if form := plain.get("form"):
        record = with_repetition(record)
        record = {**put_back({**record, "notes": ()}), "notes": record["notes"]}
    record = dict(record)
    for name, (kind, empty) in _PARTS.items():
        try:
            record[name] = read(record.get(name, empty), kind)
        except (ValidationError, RecursionError) as error:
            record[name] = empty
            message = f"{name} of cycle {cycle_id} cannot be read: {error}"
            faults.append(Fault("unreadable", message, "memory", detail={"cut": {name: [0, 1]}}))
    if plain.get("truncated") or plain.get("cut"):
        cut = {str(name): [int(number) for number in of] for name, of in (plain.get("cut") or {}).items()}
        parts = ", ".join(f"{name} ({left} of {of} items)" if of > 1 else name for name, (left, of) in cut.items())
        message = f"cycle {cycle_id} was too large to be kept whole; cut: {parts or 'some of its parts'}"
        detail = {"truncated": True, "reference": cycle_id, "cut": cut}
        faults.append(Fault("truncated", message, "memory", retryable=False, detail=detail))
    parts_read = {name: record.pop(name) for name in _PARTS}
    parts_read["faults"] = (*parts_read["faults"], *faults)
    cycle: CycleRecord = replace(read(record, CycleRecord), **parts_read)
    if form == 2:
        cycle = replace(cycle, calls=count_calls(() if cycle.result is None else cycle.result.results))
    return linked(cycle, plain.get("links") or ())


def linked(cycle: CycleRecord, links: Any) -> CycleRecord:
    action, result, reflection = cycle.action, cycle.result, cycle.reflection
    if action is not None and "action.perceptions" in links:
        action = replace(action, perceptions=cycle.perceptions)
    if result is not None and "result.action" in links:
        result = replace(result, action=action)
    if reflection is not None and "reflection.result" in links:
        reflection = replace(reflection, result=result)
    return replace(cycle, action=action, result=result, reflection=reflection)


def parsed(text: str) -> dict[str, Any]:
    """Return the outermost object of a body, parsed and not yet typed. Raises: ValueError."""
    return read(json.loads(unsealed(text)), dict[str, Any])
