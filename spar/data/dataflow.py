"""Index of the readers and writers of paths: which call depends on which. Pure.

A write at a path changes the values at, above and below this path. The index is a tree of segments, so a look-up costs
as much as the path is long, however many other paths there are. The graph of calls, taint and parking use the tree;
`PathIndex` is for a caller that needs only a summary, or whether there is anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar, cast

from msgspec import Struct, field

from spar.data.paths import Path

T = TypeVar("T")
N = TypeVar("N", bound="PathNode")

NOTHING: Final[Any] = MappingProxyType({})  # the children of a leaf: most nodes are leaves


class PathNode(Struct, eq=False):
    """Segment of a path, as the node of a tree."""

    up: Any = None
    children: dict[str, Any] = NOTHING


def child(node: N, segment: str) -> N:
    """Return the node of a segment below; create it if there is none."""
    node_below: N | None = node.children.get(segment)
    if node_below is None:
        node_below = type(node)(node)
        if node.children is NOTHING:
            node.children = {segment: node_below}
        else:
            node.children[segment] = node_below
    return node_below


def descend(node: N, path: Iterable[str]) -> N:
    """Return the node of a path below this one; create it if there is none."""
    for segment in path:
        node = child(node, segment)
    return node


def upwards(node: N | None) -> Iterator[N]:
    """Yield the node and those above it."""
    while node is not None:
        yield node
        node = node.up


class _Entry(PathNode, eq=False):
    """Segment with two summaries: of the values added exactly here (`own`), and of these with all below (`sum`)."""

    own: Any = None
    sum: Any = None


class PathIndex(Struct, Generic[T], eq=False):
    """Values by path; `over(path)` is the summary of those at, above and below it. The path () is above every path.

    Args: merge: makes one summary of an earlier and a later value.
    """

    _merge: Callable[[T, T], T]
    _root: _Entry = field(default_factory=_Entry)

    def add(self, path: Path, value: T) -> None:
        """Add a value, which is not None, at a path."""
        merge = self._merge
        node = descend(self._root, path)
        node.own = value if node.own is None else merge(node.own, value)
        for ancestor in upwards(node):
            ancestor.sum = value if ancestor.sum is None else merge(ancestor.sum, value)

    def over(self, path: Path) -> T | None:
        """Return the summary of all values whose paths overlap with this one; None if there are none."""
        merge = self._merge
        node, summary = self._root, cast("T | None", None)
        for segment in path:
            if node.own is not None:
                summary = node.own if summary is None else merge(summary, node.own)
            below: _Entry | None = node.children.get(segment)
            if below is None:
                return summary
            node = below
        if summary is None or node.sum is None:
            return summary if node.sum is None else node.sum
        return merge(summary, node.sum)

    def at(self, path: Path) -> T | None:
        """Return the summary of the values at exactly this path; None if there are none."""
        node: _Entry | None = self._root
        for segment in path:
            node = node.children.get(segment) if node is not None else None
        return node.own if node is not None else None
