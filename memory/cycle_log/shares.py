"""Shares of a large cycle: cuts a record so that it fits into a row.

Phases and faults get room first, then action, result and reflection, then notes, and perceptions last. A list keeps all
its items while there is room for the shortest form of each. An item that is cut is marked (`truncated`) and refers to
the whole: a result to its fact in the journal, a perception to its id.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from msgspec import Raw
from msgspec.json import encode as as_json

from memory.codec import encode, seems_small, shortened
from spar.types import CallResult, CycleRecord, Perception, replace

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
