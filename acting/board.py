"""What calls read and write while they run: data by kind, folded from messages. Pure apart from itself.

The board is made from the context's messages and the state, in order; each result is written at its path and
told as a message. It owns what it holds: what is put in was copied before (`outputs.plain`) and what is taken
out is copied here, so no tool can change what another one sees.

Messages of one instance (`_instance`) are invisible to calls without one, which is every call so far.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from acting.outputs import plain
from acting.paths import MISSING, BadReferenceError, Path, get, merge, nest, parse, put, render

_UNBOUNDED = 1 << 62  # what the caller gives is not cut: state is his own


class Board:
    """Data by kind: `look` and `has` read it, `write` and `patch` change it."""

    __slots__ = ("_kinds", "_patches")

    def __init__(self, context: Iterable[Mapping[str, Any]] = (), state: Mapping[str, Any] | None = None) -> None:
        self._kinds: dict[str, Any] = {}
        self._patches: dict[str, list[Any]] = {}
        for message in context:
            self._take(message)
        if state is not None:
            self.patch("state", plain(state, _UNBOUNDED))

    @property
    def state(self) -> dict[str, Any]:
        """A copy of the global state; empty if nothing was written."""
        found = self._value("state")
        return plain(found, _UNBOUNDED) if isinstance(found, dict) else {}

    def has(self, path: Path) -> bool:
        return get(self._value(path[0]), path[1:]) is not MISSING

    def look(self, path: Path) -> Any:
        """A copy of what stands at `path`. Raises: BadReferenceError if nothing does."""
        found = get(self._value(path[0]), path[1:])
        if found is MISSING:
            raise BadReferenceError(f"nothing stands at {render(path)!r}")
        return plain(found, _UNBOUNDED)

    def write(self, path: Path, value: Any, method: str = "set") -> Any:
        """Write a value that the board may keep; returns what then stands at `path`.

        Raises: ValueError when the method does not fit what stands there; nothing is changed then.
        """
        root = self._value(path[0])
        old = get(root, path[1:])
        new = _METHODS[method](old, value)
        if path == ("state",) and not isinstance(new, dict):
            raise ValueError(f"state is an object: a {type(value).__name__} cannot replace it")
        self._kinds[path[0]] = put(root, path[1:], new)
        return new

    def patch(self, kind: str, value: Any) -> None:
        """Merge a whole message into its kind; folded when the kind is next read."""
        self._patches.setdefault(kind, []).append(value)

    def _value(self, kind: str) -> Any:
        waiting = self._patches.pop(kind, None)
        if waiting is not None:
            value = self._kinds.get(kind, MISSING)
            for each in waiting:
                value = merge(value, plain(each, _UNBOUNDED))
            self._kinds[kind] = value
        return self._kinds.get(kind, MISSING)

    def _take(self, message: Mapping[str, Any]) -> None:
        if not isinstance(message, Mapping) or not isinstance(message.get("type"), str):
            raise TypeError(f"a context message is an object with a 'type', found {type(message).__name__}")
        if message.get("_instance") is not None:
            return
        kind, payload = _read(message)
        payload = plain(payload, _UNBOUNDED)
        call, method = message.get("_call"), message.get("_outputMethod")
        if isinstance(call, Mapping) and isinstance(call.get("_outputPath"), str) and method in _METHODS:
            # An earlier tick wrote this: it is folded in the way it was written.
            try:
                path = parse(call["_outputPath"])
                value = get(payload, path[1:])
                if path[0] == kind and value is not MISSING:
                    self.write(path, value, method)
                    return
            except ValueError:
                pass
        self.patch(kind, payload)


def message_of(kind: str, data: Any, instance: str | None = None) -> dict[str, Any]:
    """A wire message: `state` and `input` have a form of their own, everything else is data of a kind."""
    wire = {"type": kind, kind: data} if kind in ("state", "input") else {"type": "data", "kind": kind, "data": data}
    if instance is not None:
        wire["_instance"] = instance
    return wire


def write_message(path: Path, value: Any) -> dict[str, Any]:
    """The message that tells of a write: the value in an object for each segment of its path."""
    return message_of(path[0], nest(path[1:], value))


def _read(message: Mapping[str, Any]) -> tuple[str, Any]:
    """Kind and payload of a message in any of its shapes."""
    shape = message["type"]
    named = message.get("kind")
    kind = named if isinstance(named, str) else str(shape)
    for key in ("data", shape):
        if key in message:
            return kind, message[key]
    flat = {key: value for key, value in message.items() if key not in _NOT_DATA and not str(key).startswith("_")}
    return kind, flat


_NOT_DATA = frozenset({"type", "kind", "schema", "description", "role", "content"})


def _object(old: Any, value: Any, method: str) -> dict[str, Any]:
    base = {} if old is MISSING else old
    for name, found in (("what stands there", base), ("the value", value)):
        if not isinstance(found, dict):
            raise ValueError(f"{method!r} needs objects, {name} is a {type(found).__name__}")
    return base


def _array(old: Any, method: str) -> list[Any]:
    base = [] if old is MISSING else old
    if not isinstance(base, list):
        raise ValueError(f"{method!r} needs an array, what stands there is a {type(base).__name__}")
    return base


def _concat(old: Any, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"'concat' needs an array, the value is a {type(value).__name__}")
    base = _array(old, "concat")
    base.extend(value)
    return base


def _push(old: Any, value: Any) -> list[Any]:
    base = _array(old, "push")
    base.append(value)
    return base


# What each output method makes of what stands there and the value.
_METHODS: dict[str, Callable[[Any, Any], Any]] = {
    "set": lambda old, value: value,
    "merge": lambda old, value: merge(_object(old, value, "merge"), value),
    "assign": lambda old, value: _object(old, value, "assign") | value,
    "push": _push,
    "concat": _concat,
}
