"""Folding of writes into a value: the five output methods, and one instance's view of a kind. Pure.

A value of an instance is folded in two passes: what was written for all, then what was written for the instance.
The view is kept between reads and follows what is written for all. It shares with the global value what the
instance itself did not touch, and changes only what it has copied.
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


#: For each output method: what must stand there if anything does, what the value must be, and what it makes of both.
METHODS: Final[dict[str, tuple[type, type, Callable[[Any, Any], Any]]]] = {
    "set": (object, object, lambda old, value: value),
    "merge": (dict, dict, lambda old, value: merge({} if old is MISSING else old, value)),
    "assign": (dict, dict, lambda old, value: ({} if old is MISSING else old) | value),
    "push": (list, object, _push),
    "concat": (list, list, _concat),
}


def check(root: Any, path: Path, value: Any, method: str) -> None:
    """Return whether `value` can be written at `path` inside `root`. Raises: ValueError that says why not."""
    base, kind, _ = METHODS[method]
    if not isinstance(value, kind):
        raise ValueError(f"{method!r} needs {_NAMES[kind]}, the value is {_described(value)}")
    old = get(root, path)
    if old is MISSING:
        reaches(root, path)
    elif not isinstance(old, base):
        raise ValueError(f"{method!r} needs {_NAMES[base]}, what stands there is {_described(old)}")


def apply(root: Any, path: Path, value: Any, method: str) -> tuple[Any, Any]:
    """Write into `root`, in place where it can be; the new root and what then stands at `path`. After `check`."""
    new = METHODS[method][2](get(root, path), value)
    return put(root, path, new), new


class View:
    """View of one kind of data by one instance.

    A write that no longer fits, because what it added to was since replaced for all, is passed over.
    """

    __slots__ = ("_own", "_root", "_seen", "_touched")

    def __init__(self) -> None:
        self._own: list[tuple[Path, Any, str]] = []
        self._root: Any = MISSING
        self._seen = -1  # how many of the changes made for all are in the root
        self._touched: set[str] | None = set()  # first segments that differ from the global value; None: everything

    def value(self, base: Any, changes: list[str | None]) -> Any:
        """The value over the global one, `base`, whose changes are told by first segment (None: everything)."""
        if self._seen != len(changes):
            if self._seen < 0 or not self._follow(base, changes[self._seen :]):
                self._fold(base)
            self._seen = len(changes)
        return self._root

    def write(self, path: Path, value: Any, method: str) -> Any:
        """Write in the value that `value()` just gave; what then stands there. After `check`."""
        self._own.append((path, copied(value), method))
        return self._write(path, value, method)

    def patch(self, value: Any) -> None:
        """Merge a whole message; after `value()`."""
        self._own.append(((), copied(value), "patch"))
        self._patch(value)

    def _fold(self, base: Any) -> None:
        self._root = dict(base) if isinstance(base, dict) else _own(base)
        self._touched = set()
        for path, value, method in self._own:
            kept = copied(value)  # what is added to later must not change what is folded again
            if method == "patch":
                self._patch(kept)
                continue
            try:
                check(self._root, path, kept, method)
            except ValueError:
                self._touch(path[0] if path else None)  # it may come to fit again
            else:
                self._write(path, kept, method)

    def _follow(self, base: Any, changed: list[str | None]) -> bool:
        """Take over changes elsewhere than where the instance wrote; False if it must be folded anew."""
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
        """Make what stands at the first segment (None: everything) the instance's own before it is changed."""
        if self._touched is None or name in self._touched:
            return
        if self._root is MISSING and name is not None:
            self._root = {}
        if name is None or not isinstance(self._root, dict):
            self._root, self._touched = _own(self._root), None
            return
        if name in self._root:
            self._root[name] = copied(self._root[name])
        self._touched.add(name)


def _own(value: Any) -> Any:
    return value if value is MISSING else copied(value)


def _described(value: Any) -> str:
    return _NAMES.get(type(value)) or f"a {type(value).__name__}"
