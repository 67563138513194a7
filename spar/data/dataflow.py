"""Index of the readers and writers of paths: which call depends on which. Pure.

What is written at a path changes what is read there, above it and below it. The index is a tree of segments, so that
a look at one path costs as much as the path is long, however many others there are. The graph of calls, taint and
parking share it; whoever only asks whether, or for a summary, uses `PathIndex`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar, cast

from msgspec import Struct

from spar.data.paths import Path

T = TypeVar("T")
N = TypeVar("N", bound="PathNode")

NOTHING: Final[Any] = MappingProxyType({})  # in the place of children that there are none of: most nodes are leaves


class PathNode(Struct, eq=False):
    """One segment of a path, in a tree of them."""

    up: Any = None
    children: dict[str, Any] = NOTHING


def child(node: N, segment: str) -> N:
    """Return the node of a segment below, made if there is none."""
    found: N | None = node.children.get(segment)
    if found is None:
        found = type(node)(node)
        if node.children is NOTHING:
            node.children = {segment: found}
        else:
            node.children[segment] = found
    return found


def descend(node: N, path: Iterable[str]) -> N:
    """Return the node of a path below this one, made if there is none."""
    for segment in path:
        node = child(node, segment)
    return node


def upwards(node: N | None) -> Iterator[N]:
    """Yield the node and those above it."""
    while node is not None:
        yield node
        node = node.up


class _Entry(PathNode, eq=False):
    """A segment with the summary of what was added exactly here, and of that with all that is below."""

    own: Any = None
    sum: Any = None


class PathIndex(Generic[T]):
    """Values by path; `over(path)` is the summary of those at, above and below it. The path () is above every path.

    Args: merge: makes one summary of two, of the earlier and the later value.
    """

    __slots__ = ("_merge", "_root")

    def __init__(self, merge: Callable[[T, T], T]) -> None:
        self._merge = merge
        self._root = _Entry()

    def add(self, path: Path, value: T) -> None:
        """Note a value, which is not None, at a path."""
        merge = self._merge
        node = descend(self._root, path)
        node.own = value if node.own is None else merge(node.own, value)
        for each in upwards(node):
            each.sum = value if each.sum is None else merge(each.sum, value)

    def over(self, path: Path) -> T | None:
        """Return the summary of all values whose paths overlap with this one; None if there are none."""
        merge = self._merge
        node, found = self._root, cast("T | None", None)
        for segment in path:
            if node.own is not None:
                found = node.own if found is None else merge(found, node.own)
            below: _Entry | None = node.children.get(segment)
            if below is None:
                return found
            node = below
        if found is None or node.sum is None:
            return found if node.sum is None else node.sum
        return merge(found, node.sum)

    def at(self, path: Path) -> T | None:
        """Return the summary of the values at exactly this path; None if there are none."""
        node: _Entry | None = self._root
        for segment in path:
            node = node.children.get(segment) if node is not None else None
        return node.own if node is not None else None


class Readers(Generic[T]):
    """Values by the paths that they read, each handed out once."""

    __slots__ = ("_root",)

    def __init__(self) -> None:
        self._root = _Entry()

    def add(self, path: Path, reader: T) -> None:
        """Note who reads at a path."""
        node = descend(self._root, path)
        if node.own is None:
            node.own = []
        node.own.append(reader)

    def take(self, path: Path) -> list[T]:
        """Return those that read what is written at this path, and forget them there."""
        node, found = self._root, list[T]()
        for segment in path:
            found += self._taken(node)
            below = node.children.get(segment)
            if below is None:
                return found
            node = below
        stack = [node]
        while stack:
            node = stack.pop()
            found += self._taken(node)
            stack += node.children.values()
            node.children = NOTHING
        return found

    @staticmethod
    def _taken(node: _Entry) -> list[T]:
        found, node.own = node.own, None
        return found or []


def dependants(
    begun: Iterable[str], calls: Iterable[tuple[str, Iterable[str], Iterable[Path], Iterable[Path]]]
) -> set[str]:
    """Return the ids of the calls that depend on those in `begun`, directly or through others.

    Args: calls: each with its id, the ids that it runs after, the paths that it reads and those that it writes.
    """
    readers: Readers[str] = Readers()
    followers: dict[str, list[str]] = {}
    writes: dict[str, Iterable[Path]] = {}
    for id, after, read, written in calls:
        writes[id] = written
        for path in read:
            readers.add(path, id)
        for other in after:
            followers.setdefault(other, []).append(id)
    found: set[str] = set()
    waiting = list(begun)
    seen = set(waiting)
    while waiting:
        id = waiting.pop()
        reached = followers.pop(id, [])
        for path in writes.get(id, ()):
            reached = [*reached, *readers.take(path)]
        for other in reached:
            if other not in seen:
                seen.add(other)
                found.add(other)
                waiting.append(other)
    return found
