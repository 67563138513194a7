"""What a kind of data has come to: the messages of a context folded into one value for each identity; pure.

An identity is a kind, refined by an instance. A message that a call wrote goes to its output path by its output
method; every other one is merged into its kind. What an instance sees is the global messages first, then its own.
Source: the read semantics of references in the call protocol, so that what is shown is what a reference gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from planning.plain import Path, plain
from planning.references import alternatives

MISSING: Final[Any] = type("Missing", (), {"__repr__": lambda self: "MISSING"})()
_NOT_DATA = frozenset({"type", "kind", "schema", "description", "role", "content"})


class Datum(Struct, frozen=True):
    """One data message, whatever its shape was: `payload` is the reader's own copy, `writes` the paths below the kind
    that a call wrote by `method` (none: it is merged)."""

    kind: str
    instance: str | None
    payload: Any
    writes: tuple[Path, ...] = ()
    method: str = "set"


def read_datum(message: Mapping[str, Any]) -> Datum:
    """Read a message of type `data`, `state`, `input`, or any that carries data of its own kind."""
    shape = str(message.get("type") or "data")
    named, instance = message.get("kind"), message.get("_instance")
    kind = named if isinstance(named, str) and named else shape
    payload = plain(_payload(message, shape))
    return Datum(
        kind,
        instance if isinstance(instance, str) else None,
        payload,
        _writes(message, kind, payload),
        str(message.get("_outputMethod")),
    )


def _payload(message: Mapping[str, Any], shape: str) -> Any:
    for key in ("data", shape):
        if key in message:
            return message[key]
    return {key: value for key, value in message.items() if key not in _NOT_DATA and not str(key).startswith("_")}


def _writes(message: Mapping[str, Any], kind: str, payload: Any) -> tuple[Path, ...]:
    """The places of this kind that the call chose: of the first alternative that the payload holds."""
    call = message.get("_call")
    output = call.get("_outputPath") if isinstance(call, Mapping) else None
    if not isinstance(output, str) or message.get("_outputMethod") not in METHODS:
        return ()
    try:
        parts = alternatives(output)
    except ValueError:
        return ()
    for part in parts:
        paths = [tuple(atom[1:].split(".")) for atom in part]
        here = tuple(path[1:] for path in paths if path[0] == kind)
        if here and all(get(payload, path) is not MISSING for path in here):
            return here
    return ()


def fold(data: Iterable[Datum], instance: str | None = None) -> Any:
    """The value of one kind as calls of `instance` read it (None: the global one), or MISSING if nothing is there.

    The payloads stay as they are. All of `data` must be of one kind.
    """
    given: Sequence[Datum] = list(data)
    value: Any = MISSING
    for scope in dict.fromkeys((None, instance)):
        for datum in given:
            if datum.instance == scope:
                value = _taken(value, datum)
    return value


def _taken(value: Any, datum: Datum) -> Any:
    """The value with one message more; a write whose method does not fit what stands there is merged as a whole."""
    if datum.writes:
        # Of several places either all are written or none.
        draft = value if len(datum.writes) == 1 else plain(value) if value is not MISSING else MISSING
        try:
            for path in datum.writes:
                new = METHODS[datum.method](get(draft, path), plain(get(datum.payload, path)))
                if datum.kind == "state" and not path and not isinstance(new, dict):
                    raise ValueError("state is an object")
                draft = put(draft, path, new)
            return draft
        except ValueError:
            pass
    return merge(value, plain(datum.payload))


def get(value: Any, path: Path) -> Any:
    """What stands at `path` inside `value`, or MISSING; null is a value like any other."""
    for segment in path:
        if isinstance(value, dict):
            value = value.get(segment, MISSING)
        elif isinstance(value, list):
            index = _index(segment)
            value = value[index] if index is not None and index < len(value) else MISSING
        else:
            return MISSING
    return value


def put(root: Any, path: Path, value: Any) -> Any:
    """Write `value` at `path` inside `root`, in place, and return the root; what is missing becomes an object.

    Raises: ValueError for a place in an array that is neither in it nor at its end.
    """
    if not path:
        return value
    root = here = root if isinstance(root, (dict, list)) else {}
    for segment in path[:-1]:
        below = get(here, (segment,))
        if not isinstance(below, (dict, list)):
            below = {}
            _set(here, segment, below)
        here = below
    _set(here, path[-1], value)
    return root


def _set(here: Any, segment: str, value: Any) -> None:
    if isinstance(here, dict):
        here[segment] = value
        return
    index = _index(segment)
    if index is None or index > len(here):
        raise ValueError(f"cannot write {segment!r} to an array of {len(here)}")
    here[index : index + 1] = [value]


def merge(old: Any, new: Any) -> Any:
    """Objects merged recursively, anything else replaced; `old` is changed in place where it is an object."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    pairs = [(old, new)]
    while pairs:
        left, right = pairs.pop()
        for key, value in right.items():
            before = left.get(key)
            if isinstance(before, dict) and isinstance(value, dict):
                pairs.append((before, value))
            else:
                left[key] = value
    return old


def _index(segment: str) -> int | None:
    # Not int(): it also reads "+1", "1_0" and digits of other scripts. Nine digits are more than any array has.
    return int(segment) if segment.isascii() and segment.isdigit() and len(segment) < 10 else None


def _object(old: Any, value: Any) -> dict[str, Any]:
    base = {} if old is MISSING else old
    if not isinstance(base, dict) or not isinstance(value, dict):
        raise ValueError("objects are merged with objects")
    return base


def _added(old: Any, values: Any) -> list[Any]:
    base = [] if old is MISSING else old
    if not isinstance(base, list) or not isinstance(values, list):
        raise ValueError("elements are added to arrays")
    base.extend(values)
    return base


#: What each output method makes of what stands there and the value.
METHODS: dict[str, Callable[[Any, Any], Any]] = {
    "set": lambda old, value: value,
    "merge": lambda old, value: merge(_object(old, value), value),
    "assign": lambda old, value: _object(old, value) | value,
    "push": lambda old, value: _added(old, [value]),
    "concat": _added,
}
