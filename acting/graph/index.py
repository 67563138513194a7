"""Index by path: for each segment of a path, the calls that write there and the reads that wait there.

This module only keeps the data; `graph` decides which call may start.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct, field

from acting.graph.nodes import NOBODY, Barrier, Group, IndexNode, Node, ReadRequirement
from spar.data.paths import MISSING, NOTHING, Path, child, descend, get


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
                group = place.own
                if group is not None and group.live:
                    group.block(waiter)
                    blocked = True
                place = place.children.get(segment)
                if place is None:
                    break
            else:
                for group in (place.own, place.below):
                    if group is not None and group.live:
                        group.block(waiter)
                        blocked = True
        return blocked

    def register(self, node: Node) -> list[tuple[ReadRequirement, IndexNode]]:
        """Record the paths that a call writes to. Return the reads that wait there and have no feeder."""
        groups: list[Group] = []
        fed: list[tuple[ReadRequirement, IndexNode]] = []
        ends = []
        roots = self.roots if node.instance is None else self.instances.setdefault(node.instance, {})
        for paths in node.writes:
            for path in paths:
                place = roots.get(path[0])
                if place is None:
                    place = roots[path[0]] = IndexNode(None)
                for segment in path[1:]:
                    if place.unfed:
                        fed += [(read, place) for read in place.unfed]
                    group = place.below
                    if group is None:
                        group = place.below = Group()
                    group.live += 1
                    group.fresh.append(node)
                    groups.append(group)
                    place = child(place, segment)
                group = place.own
                if group is None:
                    group = place.own = Group()
                group.live += 1
                group.fresh.append(node)
                groups.append(group)
                if place.unfed_sub:
                    fed += unfed_below(place)
            ends.append(len(groups))
        node.groups = groups
        if len(node.writes) > 1:
            node.branches = [groups[start:end] for start, end in zip([0, *ends], ends, strict=False)]
        return fed

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
