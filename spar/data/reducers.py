"""Folding of writes into a value: the five output methods, and one instance's view of a kind of data. Pure.

A view has two layers: the global value, which was written for all, and the writes of the instance. The view is stored
between reads and follows changes of the global value. It shares with the global value all parts that the instance did
not touch, and changes only its own copies.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from spar.data.json_safe import copied
from spar.data.paths import MISSING, Path, get, merge, put, reaches

_NAMES: Final[dict[type, str]] = {dict: "an object", list: "an array"}


def _concat(old: Any, value: Any) -> Any:
    base = [] if old is MISSING else old
    base.extend(value)
    return base


def _push(old: Any, value: Any) -> Any:
    return _concat(old, (value,))


#: For each output method: the type of an existing value, the type of the written value, and the function of both.
METHODS: Final[dict[str, tuple[type, type, Callable[[Any, Any], Any]]]] = {
    "set": (object, object, lambda old, value: value),
    "merge": (dict, dict, lambda old, value: merge({} if old is MISSING else old, value)),
    "assign": (dict, dict, lambda old, value: ({} if old is MISSING else old) | value),
    "push": (list, object, _push),
    "concat": (list, list, _concat),
}


def check(root: Any, path: Path, value: Any, method: str) -> None:
    """Check that `value` can be written at `path` inside `root`. Raises: ValueError that says why not."""
    base, kind, _ = METHODS[method]
    if not isinstance(value, kind):
        raise ValueError(f"{method!r} needs {_NAMES[kind]}, the value is {_describe(value)}")
    old = get(root, path)
    if old is MISSING:
        reaches(root, path)
    elif not isinstance(old, base):
        raise ValueError(f"{method!r} needs {_NAMES[base]}, what stands there is {_describe(old)}")


def apply(root: Any, path: Path, value: Any, method: str) -> tuple[Any, Any]:
    """Write into `root`, in place if possible; return the new root and the new value at `path`. Call `check` first."""
    new = METHODS[method][2](get(root, path), value)
    return put(root, path, new), new


class View:
    """View of one kind of data by one instance.

    A write that does not fit any more, because the value that it changed has been replaced for all, is skipped.
    """

    __slots__ = ("_change_count", "_root", "_touched", "_writes")

    def __init__(self) -> None:
        self._writes: list[tuple[Path, Any, str]] = []
        self._root: Any = MISSING
        self._change_count = -1  # how many global changes the root contains
        self._touched: set[str] | None = set()  # first segments that differ from the global value; None: all

    def value(self, base: Any, changes: list[str | None]) -> Any:
        """Return the instance's value.

        Args: base: the global value; changes: the first segments of all global changes so far (None: all).
        """
        if self._change_count != len(changes):
            if self._change_count < 0 or not self._follow(base, changes[self._change_count :]):
                self._fold(base)
            self._change_count = len(changes)
        return self._root

    def write(self, path: Path, value: Any, method: str) -> Any:
        """Write into the value that `value()` returned last; return the new value at `path`. Call `check` first."""
        self._writes.append((path, copied(value), method))
        return self._write(path, value, method)

    def patch(self, value: Any) -> None:
        """Merge a whole message; call `value()` first."""
        self._writes.append(((), copied(value), "patch"))
        self._patch(value)

    def _fold(self, base: Any) -> None:
        self._root = dict(base) if isinstance(base, dict) else _copy_present(base)
        self._touched = set()
        for path, value, method in self._writes:
            content = copied(value)  # later writes must not change the value that is folded again
            if method == "patch":
                self._patch(content)
                continue
            try:
                check(self._root, path, content, method)
            except ValueError:
                self._touch(path[0] if path else None)  # it may fit again later
            else:
                self._write(path, content, method)

    def _follow(self, base: Any, changed: list[str | None]) -> bool:
        """Take over changes outside of the instance's writes; return False if the view must be folded anew."""
        names = set(changed)
        if self._touched is None or None in names or not self._touched.isdisjoint(names):
            return False
        if not isinstance(base, dict) or not isinstance(self._root, dict):
            return False
        for name in names:
            if name is not None and name in base:
                self._root[name] = base[name]
        return True

    def _write(self, path: Path, value: Any, method: str) -> Any:
        if path:
            self._touch(path[0])
        elif method in ("merge", "assign"):
            for name in value:
                self._touch(name)
        else:
            self._touch(None)
        self._root, new = apply(self._root, path, value, method)
        return new

    def _patch(self, value: Any) -> None:
        if self._root is MISSING and isinstance(value, dict):
            self._root = {}
        if isinstance(self._root, dict) and isinstance(value, dict):
            for name in value:
                self._touch(name)
            merge(self._root, value)
        else:
            self._root, self._touched = value, None

    def _touch(self, name: str | None) -> None:
        """Copy the value at the first segment (None: everything) before the instance changes it."""
        if self._touched is None or name in self._touched:
            return
        if self._root is MISSING and name is not None:
            self._root = {}
        if name is None or not isinstance(self._root, dict):
            self._root, self._touched = _copy_present(self._root), None
            return
        if name in self._root:
            self._root[name] = copied(self._root[name])
        self._touched.add(name)


def _copy_present(value: Any) -> Any:
    return value if value is MISSING else copied(value)


def _describe(value: Any) -> str:
    return _NAMES.get(type(value)) or f"a {type(value).__name__}"
