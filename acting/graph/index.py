"""Index by path: for each segment of a path, the calls that write there and the reads that wait there.

This module only keeps the data; `graph` decides which call may start.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct, field

from acting.graph.nodes import CHOSE_ANOTHER, FAILED, NOBODY, Barrier, Group, IndexNode, Node, ReadRequirement
from spar.data.paths import MISSING, NOTHING, Path, child, descend, get, upwards


class Index(Struct, eq=False):
    """The places of all paths; each instance has its own.

    A read by an instance concerns two places: that of the instance, and the common one.
    """

    roots: dict[str, IndexNode] = field(default_factory=dict)
    instances: dict[str, dict[str, IndexNode]] = field(default_factory=dict)

    def block(self, waiter: Node | Barrier, path: Path, instance: str | None) -> bool:
        """Make `waiter` wait for the calls that have not ended and write to `path`, above or below it. Return False if
        there are none."""
        blocked = False
        own_roots = None if instance is None else self.instances.get(instance)
        for roots in (self.roots,) if own_roots is None else (self.roots, own_roots):
            place = roots.get(path[0])
            if place is None:
                continue
            for segment in path[1:]:
                if place.own is not None and place.own.block(waiter):
                    blocked = True
                place = place.children.get(segment)
                if place is None:
                    break
            else:
                if place.own is not None and place.own.block(waiter):
                    blocked = True
                if place.below is not None and place.below.block(waiter):
                    blocked = True
        return blocked

    def register(self, node: Node) -> list[tuple[ReadRequirement, IndexNode]]:
        """Record the paths that a call writes to. Return the reads that wait there and have no feeder."""
        fed: list[tuple[ReadRequirement, IndexNode]] = []
        roots = self._roots_of(node)
        for paths in node.writes:
            for path in paths:
                place = roots.get(path[0])
                if place is None:
                    place = roots[path[0]] = IndexNode(None)
                for segment in path[1:]:
                    if place.unfed:
                        fed += [(read, place) for read in place.unfed]
                    if place.below is None:
                        place.below = Group()
                    place.below.fresh.append(node)
                    place = child(place, segment)
                if place.own is None:
                    place.own = Group()
                place.own.fresh.append(node)
                if place.unfed_sub:
                    fed += unfed_below(place)
        return fed

    def lose(self, node: Node) -> None:
        """Record at the paths that an ended call has not written to why that is so."""
        roots = self._roots_of(node)
        written: set[Group] = set()
        lost = CHOSE_ANOTHER if node.why == "branch" else FAILED
        if node.ok or node.chosen is not None:
            written.update(groups_of(roots, node.writes[node.chosen or 0]))
            lost = CHOSE_ANOTHER
        for paths in node.writes:
            for group in groups_of(roots, paths):
                if group not in written:
                    group.lost |= lost

    def _roots_of(self, node: Node) -> dict[str, IndexNode]:
        return self.roots if node.instance is None else self.instances.setdefault(node.instance, {})

    def watch(self, read: ReadRequirement, path: Path) -> tuple[IndexNode, ...]:
        """Let `read` wait for a value at `path`, without a feeder yet. Return the places where it waits."""
        places: tuple[IndexNode, ...] = (walk(self.roots, path),)
        instance = read.node.instance
        if instance is not None:
            places = (*places, walk(self.instances.setdefault(instance, {}), path))
        read.absent[path] = places
        for place in places:
            place.enter(read, path)
        return places

    def awaiting(self, path: Path, value: object, instance: str | None) -> list[tuple[ReadRequirement, Path]]:
        """Return the requirements that `value` at `path` satisfies, each with its path."""
        roots = self.roots if instance is None else self.instances.get(instance, NOBODY)
        place: IndexNode | None = roots.get(path[0])
        if place is None or not place.waiters_sub:
            return []
        satisfied: list[tuple[ReadRequirement, Path]] = []
        for segment in path[1:]:
            if place.waiters:
                satisfied += place.waiters.items()
            place = place.children.get(segment)
            if place is None:
                return satisfied
        return [*satisfied, *(item for below in present(place, value) for item in below.waiters.items())]

    def close(self) -> None:
        """Take the tree apart: its nodes refer to those above them, which would keep them in memory."""
        stack = [node for roots in (self.roots, *self.instances.values()) for node in roots.values()]
        while stack:
            node = stack.pop()
            stack += [below for below in node.children.values() if below.children]
            node.children = NOTHING


def walk(roots: dict[str, IndexNode], path: Path) -> IndexNode:
    """Return the place of `path`; create it if there is none."""
    place = roots.get(path[0])
    if place is None:
        place = roots[path[0]] = IndexNode()
    return descend(place, path[1:])


def groups_of(roots: dict[str, IndexNode], paths: Sequence[Path]) -> Iterator[Group]:
    """Yield the groups of those who write to these paths; create those that are missing."""
    for path in paths:
        place = walk(roots, path)
        place.own = place.own or Group()
        yield place.own
        for above in upwards(place.up):
            above.below = above.below or Group()
            yield above.below


def present(place: IndexNode, value: Any) -> Iterator[IndexNode]:
    """Yield the places at and below `place` where reads wait and where `value` has a value."""
    stack = [(place, value)]
    while stack:
        here, content = stack.pop()
        if here.waiters:
            yield here
        if here.waiters_sub == len(here.waiters):
            continue
        if isinstance(content, list):
            content = {key: item for key in here.children if (item := get(content, (key,))) is not MISSING}
        if isinstance(content, dict):
            smaller, larger = (
                (here.children, content) if len(here.children) <= len(content) else (content, here.children)
            )
            stack += [(here.children[key], content[key]) for key in smaller if key in larger]


def unfed_below(place: IndexNode) -> list[tuple[ReadRequirement, IndexNode]]:
    """Return the waiting reads without a feeder, here and below."""
    unfed: list[tuple[ReadRequirement, IndexNode]] = []
    stack = [place]
    while stack:
        here = stack.pop()
        if here.unfed_sub:
            unfed += [(read, here) for read in here.unfed]
            if here.unfed_sub > len(here.unfed):
                stack += here.children.values()
    return unfed
