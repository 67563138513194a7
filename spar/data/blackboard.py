"""Blackboard that calls read and write while they run: data by kind, folded from messages.

The board is built from the context's messages and the state, in order; each result is written at its path and described
by a message. Data with an `_instance` is visible to that instance only, as a layer over the global data; a caller
without an instance sees no instance's data.

The board owns its data: values are copied before they come in (`json_safe`, and not cut, because the state belongs to
the caller) and copied here when they go out, so no tool can change data that another tool reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from spar.checks import SCALARS
from spar.data.json_safe import UNBOUNDED, copied, plain
from spar.data.json_safe.slices import Copying, copied_in_slices, is_large
from spar.data.paths import (
    MARK,
    MISSING,
    BadReferenceError,
    Expression,
    Path,
    get,
    merge,
    nest,
    overlaps,
    parse,
    parse_write,
    put,
)
from spar.data.reducers import METHODS, View, apply, check


class LateCopy:
    """Copy of a large value, made in slices; `value` is there when `advance` has returned True.

    Args: copying: makes the copy; path: where the value stands on its board.
    """

    __slots__ = ("_copying", "path", "value")

    def __init__(self, copying: Copying, path: Path = ()) -> None:
        self.path, self.value, self._copying = path, MISSING, copying

    def advance(self) -> bool:
        """Make the next slice of the copy; return whether the copy is whole."""
        if self.value is MISSING:
            try:
                next(self._copying)
            except StopIteration as stop:
                self.value = stop.value
        return self.value is not MISSING


def with_copies(value: Any) -> Any:
    """Return the value with each `LateCopy` in its containers replaced by the copy, which is whole."""
    if type(value) is dict:
        return {key: with_copies(item) for key, item in value.items()}
    if type(value) is list:
        return [with_copies(item) for item in value]
    return value.value if type(value) is LateCopy else value


class Board:
    """Data by kind: `look` and `has` read it, `write`, `spread` and `patch` change it.

    A large value is copied in slices; what would change it meanwhile makes the rest of the copy at once.
    """

    __slots__ = ("_about", "_changes", "_copies", "_copy", "_kinds", "_patches", "_views")

    def __init__(
        self,
        context: Iterable[Mapping[str, Any]] = (),
        state: Mapping[str, Any] | None = None,
        *,
        copy: Callable[[Any], Any] | None = None,
    ) -> None:
        self._copy = copy or _plain  # copies the content of messages; `copied` is enough for plain content
        self._kinds: dict[str, Any] = {}
        self._patches: dict[str, list[tuple[Any, bool]]] = {}  # whether a value is the board's own already
        self._views: dict[tuple[str, str], View] = {}
        self._changes: dict[str, list[str | None]] = {}  # of the kinds with a view
        self._about: dict[tuple[str, str | None], dict[str, Any]] = {}  # schema and description of the messages
        self._copies: list[LateCopy] = []  # those that are being made
        for message in context:
            self.add(message)
        if state is not None:
            self.patch("state", plain(state, UNBOUNDED), is_own=True)

    @property
    def state(self) -> dict[str, Any]:
        """Return the global state, which is the board's own; empty if nothing was written."""
        state = self._value("state")
        return state if isinstance(state, dict) else {}

    def has(self, path: Path, instance: str | None = None) -> bool:
        return self._at(path, instance) is not MISSING

    def knows(self, expression: Expression, instance: str | None = None) -> bool:
        """Return whether one of the expression's alternatives is present."""
        return any(all(self.has(path, instance) for path in paths) for paths in expression.alternatives)

    def look(self, expression: Expression, instance: str | None = None) -> Any:
        """Return a copy of the value of the leftmost alternative that is present.

        Raises: BadReferenceError if none is.
        """
        return copied(self._find(expression, instance)[1])

    def look_late(self, expression: Expression, instance: str | None, late: list[LateCopy]) -> Any:
        """Return a copy as `look` does; for a large value a `LateCopy`, also put into `late`, that the caller is to
        bring to its end."""
        path, value = self._find(expression, instance)
        if type(value) in SCALARS:
            return value
        if not is_large(value):
            return copied(value)
        self._copies = [copy for copy in self._copies if copy.value is MISSING]
        self._copies.append(copy := LateCopy(copied_in_slices(value), path))
        late.append(copy)
        return copy

    def write(self, path: Path, value: Any, method: str = "set", instance: str | None = None) -> Any:
        """Write a value, which the board then owns; return the new value at `path`.

        Raises: ValueError when the method does not fit the present value; nothing is changed then.
        """
        kind = path[0]
        if (
            method == "set"
            and instance is None
            and len(path) == 2
            and not (self._copies or self._changes or self._patches)
            and type(root := self._kinds.get(kind)) is dict
        ):
            root[path[1]] = value  # the usual case
            return value
        inside = path[1:]
        if self._copies:
            self._finish_copies(path)
        if instance is not None:
            view = self._view_of(kind, instance)
            self._check(path, value, method, instance)
            return view.write(inside, value, method)
        if method == "set" and inside:  # `put` makes the necessary checks
            self._kinds[kind], new = put(self._value(kind), inside, value), value
        else:
            self._kinds[kind], new = apply(self._check(path, value, method, None), inside, value, method)
        if self._changes:
            self._note_change(kind, inside[0] if inside else None)
        return new

    def spread(self, paths: Sequence[Path], value: Any, method: str = "set", instance: str | None = None) -> list[Any]:
        """Write one value to each of `paths`, none of which leads to another; return the new value at each.

        Raises: as `write`; then nothing is changed at any of them.
        """
        for path in paths[1:]:
            self._check(path, value, method, instance)
        copies = [copied(value) for _ in paths[1:]]
        return [self.write(path, item, method, instance) for path, item in zip(paths, (value, *copies), strict=True)]

    def patch(self, kind: str, value: Any, instance: str | None = None, *, is_own: bool = False) -> None:
        """Merge a whole plain message into its kind; a global one is folded when the kind is next read.

        Args: is_own: whether nobody else has the value.
        """
        if instance is None:
            self._patches.setdefault(kind, []).append((value, is_own))
            if self._changes:
                self._note_change(kind, None)
        else:
            self._finish_copies((kind,))
            view = self._view_of(kind, instance)
            self._value(kind, instance)
            view.patch(copied(value))

    def messages_of(self, kinds: Iterable[str], instance: str | None = None) -> list[dict[str, Any]]:
        """Return the data of these kinds for an activity: one message for each kind that is present, folded and copied.

        A kind may be written `kind` or `†kind`, and a part of it as a path. A message does not tell whether its data
        belongs to an instance. Raises: BadReferenceError for a path that cannot be parsed.
        """
        messages = []
        for name in dict.fromkeys(kinds):
            path = parse(name) if name[:1] == MARK else (name,)
            value = self._at(path, instance)
            if value is not MISSING:
                message = message_of(path[0], nest(path[1:], copied(value)))
                for scope in (None,) if instance is None else (None, instance):
                    message |= copied(self._about.get((path[0], scope), {}))
                messages.append(message)
        return messages

    def messages(self) -> list[dict[str, Any]]:
        """Return one message for each kind and instance of the context, in order of appearance: folded and copied, with
        the last schema and description."""
        return [
            message_of(kind, copied(value), instance) | copied(about)
            for (kind, instance), about in self._about.items()
            if (value := self._value(kind, instance)) is not MISSING
        ]

    # -- inside

    def _find(self, expression: Expression, instance: str | None) -> tuple[Path, Any]:
        """Return the value that `look` copies, and its path."""
        only = expression.only
        if only is not None and (value := self._at(only, instance)) is not MISSING:
            return only, value
        for paths in expression.alternatives:
            for path in paths:
                value = self._at(path, instance)
                if value is MISSING:
                    break
            else:
                return path, value
        raise BadReferenceError(f"nothing stands at {str(expression)!r}")

    def _at(self, path: Path, instance: str | None) -> Any:
        """Return the value at a path, which is the board's own; MISSING if there is none."""
        kind = path[0]
        if len(path) == 2 and instance is None and not self._patches and type(root := self._kinds.get(kind)) is dict:
            return root.get(path[1], MISSING)  # the usual case
        return get(self._value(kind, instance), path[1:])

    def _finish_copies(self, path: Path) -> None:
        """Make the rest of each copy whose value a write to `path` changes."""
        for copy in self._copies:
            if overlaps(copy.path, path):
                while not copy.advance():
                    pass

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
            self._finish_copies((kind,))
            value = self._kinds.get(kind, MISSING)
            for patch, is_own in waiting:
                value = merge(value, patch if is_own else copied(patch))
            self._kinds[kind] = value

    def _check(self, path: Path, value: Any, method: str, instance: str | None) -> Any:
        """Return the value of the path's kind after checking that the write is possible. Raises: ValueError."""
        root = self._value(path[0], instance)
        if path == ("state",) and (not isinstance(value, dict) or METHODS[method][0] is list):
            raise ValueError(f"state is an object: {method!r} of a {type(value).__name__} would make it something else")
        check(root, path[1:], value, method)
        return root

    def _view_of(self, kind: str, instance: str) -> View:
        if (kind, instance) not in self._views:
            self._views[kind, instance] = View()
            self._changes.setdefault(kind, [])
        return self._views[kind, instance]

    def _note_change(self, kind: str, name: str | None) -> None:
        changes = self._changes.get(kind)
        if changes is not None:
            changes.append(name)

    def add(self, message: Mapping[str, Any], *, is_own: bool = False) -> None:
        """Add the next message of the context.

        Args: is_own: whether nobody else has the message, so that it need not be copied.
        """
        if not isinstance(message, Mapping) or not isinstance(message.get("type"), str):
            raise TypeError(f"a context message is an object with a 'type', found {type(message).__name__}")
        instance = message.get("_instance")
        if instance is not None and not isinstance(instance, str):
            raise TypeError(f"the '_instance' of a context message is a text, found {type(instance).__name__}")
        kind, payload = read_message(message)
        copy = _same if is_own else self._copy
        payload = copy(payload)
        about = self._about.setdefault((kind, instance), {})
        about.update({key: copy(message[key]) for key in ("schema", "description") if key in message})
        if not self._repeat_write(message, kind, payload, instance):
            self.patch(kind, payload, instance, is_own=True)

    def _repeat_write(self, message: Mapping[str, Any], kind: str, payload: Any, instance: str | None) -> bool:
        """Write a message of an earlier tick again with its output method; return False if it is not such a message."""
        call, method = message.get("_call"), message.get("_outputMethod")
        output_path = call.get("_outputPath") if isinstance(call, Mapping) else None
        if not isinstance(output_path, str) or not isinstance(method, str) or method not in METHODS:
            return False
        try:
            expression = parse_write(output_path)
        except BadReferenceError:
            return False
        for alternative in expression.alternatives:
            paths_of_kind = [path for path in alternative if path[0] == kind]
            values = [get(payload, path[1:]) for path in paths_of_kind]
            if paths_of_kind and all(value is not MISSING for value in values):
                try:
                    for path, value in zip(paths_of_kind, values, strict=True):
                        self._check(path, value, method, instance)
                except ValueError:
                    return False
                for path, value in zip(paths_of_kind, values, strict=True):
                    self.write(path, value, method, instance)
                return True
        return False


def _same(value: Any) -> Any:
    return value


def _plain(value: Any) -> Any:
    return plain(value, UNBOUNDED)


def message_of(kind: str, data: Any, instance: str | None = None) -> dict[str, Any]:
    """Return a wire message: `state` and `input` have a form of their own, all else is data of a kind."""
    wire = {"type": kind, kind: data} if kind in ("state", "input") else {"type": "data", "kind": kind, "data": data}
    if instance is not None:
        wire["_instance"] = instance
    return wire


def write_messages(paths: Sequence[Path], value: Any, instance: str | None = None) -> list[dict[str, Any]]:
    """Return the messages about one value written to some paths: one message for each kind, with one object for each
    segment."""
    if len(paths) == 1:
        path = paths[0]
        value = {path[1]: value} if len(path) == 2 else nest(path[1:], value)
        return [message_of(path[0], value, instance)]
    kinds: dict[str, Any] = {}
    for path in paths:
        kinds[path[0]] = merge(kinds.get(path[0], MISSING), nest(path[1:], value))
    return [message_of(kind, data, instance) for kind, data in kinds.items()]


def read_message(message: Mapping[str, Any]) -> tuple[str, Any]:
    """Return kind and payload of a message in any of its forms; not copied."""
    shape = message["type"]
    named = message.get("kind")
    kind = named if isinstance(named, str) else str(shape)
    for key in ("data", shape):
        if key in message:
            return kind, message[key]
    flat = {key: value for key, value in message.items() if key not in _NOT_DATA and not str(key).startswith("_")}
    return kind, flat


_NOT_DATA = frozenset({"type", "kind", "schema", "description", "role", "content"})
