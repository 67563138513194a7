"""Blackboard that calls read and write while they run: data by kind, folded from messages.

The board is made from the context's messages and the state, in order; each result is written at its path and
told as a message. What carries an `_instance` is seen by that instance alone, over what was written for all; who
names no instance sees nothing of any.

It owns what it holds: what is put in was copied before (`json_safe`, and not cut: state is the caller's own) and what
is taken out is copied here, so no tool can change what another one sees.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from spar.data.json_safe import UNBOUNDED, copied, plain
from spar.data.paths import (
    MARK,
    MISSING,
    BadReferenceError,
    Expression,
    Path,
    get,
    merge,
    nest,
    parse,
    parse_write,
    put,
)
from spar.data.reducers import METHODS, View, apply, check


class Board:
    """Data by kind: `look` and `has` read it, `write`, `spread` and `patch` change it."""

    __slots__ = ("_about", "_changes", "_copy", "_kinds", "_patches", "_views")

    def __init__(
        self,
        context: Iterable[Mapping[str, Any]] = (),
        state: Mapping[str, Any] | None = None,
        *,
        copy: Callable[[Any], Any] | None = None,
    ) -> None:
        self._copy = copy or _plain  # of what messages hold; `copied` for those that are plain
        self._kinds: dict[str, Any] = {}
        self._patches: dict[str, list[Any]] = {}
        self._views: dict[tuple[str, str], View] = {}
        self._changes: dict[str, list[str | None]] = {}  # of the kinds that an instance has a view of
        self._about: dict[tuple[str, str | None], dict[str, Any]] = {}  # what the messages speak of, in order
        for message in context:
            self._take(message)
        if state is not None:
            self.patch("state", plain(state, UNBOUNDED))

    @property
    def state(self) -> dict[str, Any]:
        """A copy of the global state; empty if nothing was written."""
        return self.state_of(None)

    def state_of(self, instance: str | None) -> dict[str, Any]:
        """A copy of the state as the instance sees it."""
        found = self._value("state", instance)
        return copied(found) if isinstance(found, dict) else {}

    def has(self, path: Path, instance: str | None = None) -> bool:
        return get(self._value(path[0], instance), path[1:]) is not MISSING

    def knows(self, expression: Expression, instance: str | None = None) -> bool:
        """Return whether one of its alternatives is present."""
        return any(all(self.has(path, instance) for path in paths) for paths in expression.alternatives)

    def look(self, expression: Expression, instance: str | None = None) -> Any:
        """A copy of what the leftmost alternative that is present says.

        Raises: BadReferenceError if none is.
        """
        for paths in expression.alternatives:
            for path in paths:
                found = get(self._value(path[0], instance), path[1:])
                if found is MISSING:
                    break
            else:
                return copied(found)
        raise BadReferenceError(f"nothing stands at {str(expression)!r}")

    def write(self, path: Path, value: Any, method: str = "set", instance: str | None = None) -> Any:
        """Write a value that the board may keep; returns what then stands at `path`.

        Raises: ValueError when the method does not fit what stands there; nothing is changed then.
        """
        kind, inside = path[0], path[1:]
        if instance is not None:
            view = self._made_view(kind, instance)
            self._check(path, value, method, instance)
            return view.write(inside, value, method)
        if method == "set" and inside:  # most are, and `put` checks what there is to check
            self._kinds[kind], new = put(self._value(kind), inside, value), value
        else:
            self._kinds[kind], new = apply(self._check(path, value, method, None), inside, value, method)
        if self._changes:
            self._note(kind, inside[0] if inside else None)
        return new

    def spread(self, paths: Sequence[Path], value: Any, method: str = "set", instance: str | None = None) -> list[Any]:
        """Write one value to each of `paths`, of which none leads to another; returns what then stands at each.

        Raises: as `write`; nothing is changed then, at none of them.
        """
        for path in paths[1:]:
            self._check(path, value, method, instance)
        copies = [copied(value) for _ in paths[1:]]
        return [self.write(*each, method, instance) for each in zip(paths, (value, *copies), strict=True)]

    def patch(self, kind: str, value: Any, instance: str | None = None) -> None:
        """Merge a whole message, which is plain, into its kind; a global one is folded when the kind is next read."""
        if instance is None:
            self._patches.setdefault(kind, []).append(value)
            if self._changes:
                self._note(kind, None)
        else:
            view = self._made_view(kind, instance)
            self._value(kind, instance)
            view.patch(copied(value))

    def messages_of(self, kinds: Iterable[str], instance: str | None = None) -> list[dict[str, Any]]:
        """The data of these kinds as an activity is handed it: a message for each that there is, folded and copied.

        A kind may be written `kind` or `†kind`, a part of it as a path. Nothing of an instance tells that it is
        one's. Raises: BadReferenceError for a path that cannot be read.
        """
        found = []
        for name in dict.fromkeys(kinds):
            path = parse(name) if name[:1] == MARK else (name,)
            value = get(self._value(path[0], instance), path[1:])
            if value is not MISSING:
                message = message_of(path[0], nest(path[1:], copied(value)))
                for scope in (None,) if instance is None else (None, instance):
                    message |= copied(self._about.get((path[0], scope), {}))
                found.append(message)
        return found

    def messages(self) -> list[dict[str, Any]]:
        """A message for each kind and instance that the context spoke of, in order of appearance: folded and copied,
        with the schema and the description that it was given last."""
        return [
            message_of(kind, copied(value), instance) | copied(about)
            for (kind, instance), about in self._about.items()
            if (value := self._value(kind, instance)) is not MISSING
        ]

    # -- inside

    def _value(self, kind: str, instance: str | None = None) -> Any:
        if self._patches:
            self._fold(kind)
        value = self._kinds.get(kind, MISSING)
        if instance is None or (kind, instance) not in self._views:
            return value
        return self._views[kind, instance].value(value, self._changes[kind])

    def _fold(self, kind: str) -> None:
        waiting = self._patches.pop(kind, None)
        if waiting is not None:
            value = self._kinds.get(kind, MISSING)
            for each in waiting:
                value = merge(value, copied(each))
            self._kinds[kind] = value

    def _check(self, path: Path, value: Any, method: str, instance: str | None) -> Any:
        """The value of the path's kind, in which this can be written."""
        root = self._value(path[0], instance)
        if path == ("state",) and (not isinstance(value, dict) or METHODS[method][0] is list):
            raise ValueError(f"state is an object: {method!r} of a {type(value).__name__} would make it something else")
        check(root, path[1:], value, method)
        return root

    def _made_view(self, kind: str, instance: str) -> View:
        if (kind, instance) not in self._views:
            self._views[kind, instance] = View()
            self._changes.setdefault(kind, [])
        return self._views[kind, instance]

    def _note(self, kind: str, name: str | None) -> None:
        changes = self._changes.get(kind)
        if changes is not None:
            changes.append(name)

    def _take(self, message: Mapping[str, Any]) -> None:
        if not isinstance(message, Mapping) or not isinstance(message.get("type"), str):
            raise TypeError(f"a context message is an object with a 'type', found {type(message).__name__}")
        instance = message.get("_instance")
        if instance is not None and not isinstance(instance, str):
            raise TypeError(f"the '_instance' of a context message is a text, found {type(instance).__name__}")
        kind, payload = read_message(message)
        payload = self._copy(payload)
        about = self._about.setdefault((kind, instance), {})
        about.update({key: self._copy(message[key]) for key in ("schema", "description") if key in message})
        if not self._took_write(message, kind, payload, instance):
            self.patch(kind, payload, instance)

    def _took_write(self, message: Mapping[str, Any], kind: str, payload: Any, instance: str | None) -> bool:
        """Return whether an earlier tick wrote this, in which case it was folded in the way it was written."""
        call, method = message.get("_call"), message.get("_outputMethod")
        told = call.get("_outputPath") if isinstance(call, Mapping) else None
        if not isinstance(told, str) or not isinstance(method, str) or method not in METHODS:
            return False
        try:
            written = parse_write(told)
        except BadReferenceError:
            return False
        for alternative in written.alternatives:
            here = [path for path in alternative if path[0] == kind]
            values = [get(payload, path[1:]) for path in here]
            if here and all(value is not MISSING for value in values):
                try:
                    for path, value in zip(here, values, strict=True):
                        self._check(path, value, method, instance)
                except ValueError:
                    return False
                for path, value in zip(here, values, strict=True):
                    self.write(path, value, method, instance)
                return True
        return False


def _plain(value: Any) -> Any:
    return plain(value, UNBOUNDED)


def message_of(kind: str, data: Any, instance: str | None = None) -> dict[str, Any]:
    """A wire message: `state` and `input` have a form of their own, everything else is data of a kind."""
    wire = {"type": kind, kind: data} if kind in ("state", "input") else {"type": "data", "kind": kind, "data": data}
    if instance is not None:
        wire["_instance"] = instance
    return wire


def write_messages(paths: Sequence[Path], value: Any, instance: str | None = None) -> list[dict[str, Any]]:
    """The messages that tell of one value written to some paths, in an object for each segment: one for each kind."""
    if len(paths) == 1:
        kind, *inside = paths[0]
        for segment in reversed(inside):
            value = {segment: value}
        return [message_of(kind, value, instance)]
    kinds: dict[str, Any] = {}
    for path in paths:
        kinds[path[0]] = merge(kinds.get(path[0], MISSING), nest(path[1:], value))
    return [message_of(kind, told, instance) for kind, told in kinds.items()]


def read_message(message: Mapping[str, Any]) -> tuple[str, Any]:
    """Kind and payload of a message in any of its shapes; not copied."""
    shape = message["type"]
    named = message.get("kind")
    kind = named if isinstance(named, str) else str(shape)
    for key in ("data", shape):
        if key in message:
            return kind, message[key]
    flat = {key: value for key, value in message.items() if key not in _NOT_DATA and not str(key).startswith("_")}
    return kind, flat


_NOT_DATA = frozenset({"type", "kind", "schema", "description", "role", "content"})
