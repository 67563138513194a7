"""Bodies of rows: the record of a cycle without its repetitions, and the record that is read back from it.

In a record, fields that have their default are left out, and a part that is repeated stands once. The record of a cycle
of a model has a call in its action, its result, its lesson and its messages, and most fields of each have their
default. A repeated text or object is a reference to its first place, by its number among all texts and objects, counted
as they stand.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

from msgspec import Struct, ValidationError, field
from msgspec.structs import fields

from memory.codec import read, unsealed
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
        record = with_repeats(record)
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


#: Key of a reference to an earlier part.
SAME: Final = "$="
#: Characters of a text that is counted, and of the JSON of an object that is worth a reference.
_LONG: Final = 24
#: Makers of defaults that are the same each time.
_CONSTANT: Final = (list, dict, tuple, set, frozenset)


def without_defaults(value: Any) -> Any:
    """Return a value of structures as objects that lack the fields with their default."""
    if isinstance(value, Struct):
        plain = {}
        for name, default in _defaults(type(value)):
            item = getattr(value, name)
            if type(item) is not type(default) or item != default:
                plain[name] = without_defaults(item)
        return plain
    if isinstance(value, dict):
        return {key: without_defaults(item) for key, item in value.items()}
    return [without_defaults(item) for item in value] if isinstance(value, (list, tuple)) else value


@cache
def _defaults(kind: type[Struct]) -> tuple[tuple[str, Any], ...]:
    """Return the fields of a structure with their defaults; one without a constant default has `NODEFAULT`."""
    rows = []
    for one in fields(kind):
        maker: Any = one.default_factory
        rows.append((one.name, maker() if maker in _CONSTANT else one.default))
    return tuple(rows)


def without_repeats(plain: Any) -> Any:
    """Return parsed JSON with references in the place of parts that stand earlier. Raises: ValueError for a value in
    which an object has the key of references."""
    return _Once(plain).of(plain)


class _Once:
    """Parts of one value, each with the number of its content, which equal parts share. Each is looked at twice, so
    that the work does not grow with the depth."""

    def __init__(self, plain: Any) -> None:
        self._contents: dict[Any, int] = {}
        self._objects: dict[int, tuple[int, int]] = {}  # content and about the characters, by the identity of an object
        self._places: dict[Any, int] = {}
        self._count = 0
        self._learn(plain)

    def _learn(self, value: Any) -> tuple[int, int]:
        """Return the number of a value's content, and about how many characters it has as JSON."""
        content: Any = type(value), repr(value) if isinstance(value, float) else value  # -0.0 is not 0.0
        if isinstance(value, dict):
            items = [(key, *self._learn(item)) for key, item in value.items()]
            content = dict, *[item[:2] for item in items]
            length = sum(len(key) + size + 4 for key, _, size in items)
        elif isinstance(value, list):
            learnt = [self._learn(item) for item in value]
            content, length = (list, *[number for number, _ in learnt]), sum(size + 1 for _, size in learnt)
        else:
            length = len(value) if isinstance(value, str) else 4
        number = self._contents.setdefault(content, len(self._contents))
        if isinstance(value, dict):
            self._objects[id(value)] = number, length
        return number, length

    def of(self, value: Any) -> Any:
        if isinstance(value, str) and len(value) >= _LONG:
            return self._reference(value, len(value)) or value
        if isinstance(value, list):
            return [self.of(item) for item in value]
        if not isinstance(value, dict):
            return value
        if SAME in value:
            raise ValueError(f"an object has the key {SAME!r}")
        return self._reference(*self._objects[id(value)]) or {key: self.of(item) for key, item in value.items()}

    def _reference(self, part: str | int, length: int) -> dict[str, int] | None:
        """Return a reference to an earlier part; None for a new or a short one, which is counted."""
        if length >= _LONG and part in self._places:
            return {SAME: self._places[part]}
        self._places[part] = self._count
        self._count += 1
        return None


def with_repeats(plain: Any) -> Any:
    """Return parsed JSON with its references replaced. Raises: IndexError for a reference to nothing."""
    parts = list[Any]()

    def of(value: Any) -> Any:
        if isinstance(value, str):
            if len(value) >= _LONG:
                parts.append(value)
            return value
        if isinstance(value, list):
            return [of(item) for item in value]
        if not isinstance(value, Mapping):
            return value
        if value.keys() == {SAME}:
            return parts[value[SAME]]
        whole: dict[str, Any] = {}
        parts.append(whole)
        for key, item in value.items():
            whole[key] = of(item)
        return whole

    return of(plain)
