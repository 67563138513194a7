"""The index behind the graph: for each segment of a path who writes there and who waits there.

Only data and its upkeep; what it means for a call is decided in `graph`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct, field

from acting.graph.nodes import NOBODY, Barrier, Group, Node, ReadRequirement
from spar.data.dataflow import NOTHING, PathNode, child, descend, upwards
from spar.data.paths import MISSING, Path, get


class Index(Struct, eq=False):
    """The places of all paths, those of each instance apart: who writes where one reads, who waits where one writes.

    What is read by an instance stands in two places: its own, and the one for all.
    """

    roots: dict[str, IndexNode] = field(default_factory=dict)
    instances: dict[str, dict[str, IndexNode]] = field(default_factory=dict)

    def block(self, waiter: Node | Barrier, path: Path, instance: str | None) -> bool:
        """Make `waiter` wait for those who live and write where `path` reads; False if there are none."""
        blocked = False
        own = None if instance is None else self.instances.get(instance)
        for roots in (self.roots,) if own is None else (self.roots, own):
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

    def register(
        self, node: Node, alternatives: tuple[tuple[Path, ...], ...]
    ) -> list[tuple[ReadRequirement, IndexNode]]:
        """Note who writes here; returns the readers that wait for just that and that nobody else feeds."""
        groups: list[Group] = []
        fed: list[tuple[ReadRequirement, IndexNode]] = []
        ends = []
        roots = self.roots if node.instance is None else self.instances.setdefault(node.instance, {})
        for paths in alternatives:
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
        node.writes, node.groups = alternatives, groups
        if len(alternatives) > 1:
            node.branches = [groups[start:end] for start, end in zip([0, *ends], ends, strict=False)]
        return fed

    def watch(self, read: ReadRequirement, path: Path) -> tuple[IndexNode, ...]:
        """Let `read` wait for a value at `path`, as yet unfed; the places where it does."""
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
        found: list[tuple[ReadRequirement, Path]] = []
        for segment in path[1:]:
            if place.waiters:
                found += place.waiters.items()
            place = place.children.get(segment)
            if place is None:
                return found
        return [*found, *(item for below in present(place, value) for item in below.waiters.items())]

    def close(self) -> None:
        """Take the tree apart, whose nodes know those above them."""
        stack = [node for roots in (self.roots, *self.instances.values()) for node in roots.values()]
        while stack:
            node = stack.pop()
            stack += [each for each in node.children.values() if each.children]
            node.children = NOTHING


class IndexNode(PathNode, eq=False):
    """One segment of the index by path: who writes exactly here (`own`) or further in (`below`), who waits here."""

    # Made when there is one: most places only ever have a writer.
    own: Group | None = None
    below: Group | None = None
    waiters: dict[ReadRequirement, Path] = NOBODY
    unfed: dict[ReadRequirement, None] = NOBODY  # waiters that have nobody on record who is going to feed them
    waiters_sub: int = 0  # here and further in
    unfed_sub: int = 0

    def groups(self) -> Iterator[Group]:
        """Yield the groups of all who write what is read here."""
        for place in upwards(self.up):
            if place.own is not None:
                yield place.own
        for group in (self.own, self.below):
            if group is not None:
                yield group

    def writer(self, *but: Node) -> Node | None:
        """Somebody who lives and writes what is read here, other than `but`."""
        for group in self.groups():
            if group.live:
                found = group.writer(*but)
                if found is not None:
                    return found
        return None

    @property
    def lost(self) -> int:
        bits = 0
        for group in self.groups():
            bits |= group.lost
        return bits

    def enter(self, read: ReadRequirement, path: Path) -> None:
        """Note that `read` waits here, as yet unfed."""
        if self.waiters is NOBODY:
            self.waiters, self.unfed = {}, {}
        self.waiters[read] = path
        self.unfed[read] = None
        above: IndexNode | None = self
        while above is not None:  # not `upwards`: this is the longest way of a call that comes before its writer
            above.waiters_sub += 1
            above.unfed_sub += 1
            above = above.up

    def leave(self, read: ReadRequirement) -> None:
        del self.waiters[read]
        unfed = 0 if read.fed.pop(self, None) else 1
        if unfed:
            del self.unfed[read]
        above: IndexNode | None = self
        while above is not None:
            above.waiters_sub -= 1
            above.unfed_sub -= unfed
            above = above.up

    def set_fed(self, read: ReadRequirement, feeder: Node | None) -> None:
        """Put on record who is going to feed a waiter."""
        if feeder is None:
            if read.fed.pop(self, None) is None:
                return
            self.unfed[read], change = None, 1
        else:
            feeder.feeds = feeder.feeds or []
            feeder.feeds.append((read, self))
            was = read.fed.get(self)
            read.fed[self] = feeder
            if was is not None:
                return
            del self.unfed[read]
            change = -1
        above: IndexNode | None = self
        while above is not None:
            above.unfed_sub += change
            above = above.up


def walk(roots: dict[str, IndexNode], path: Path) -> IndexNode:
    """The place of `path`, made if there is none."""
    place = roots.get(path[0])
    if place is None:
        place = roots[path[0]] = IndexNode()
    return descend(place, path[1:])


def present(place: IndexNode, value: Any) -> Iterator[IndexNode]:
    """The places at and below `place` that somebody waits at and at which `value` has something."""
    stack = [(place, value)]
    while stack:
        here, found = stack.pop()
        if here.waiters:
            yield here
        if here.waiters_sub == len(here.waiters):
            continue
        if isinstance(found, list):
            found = {key: item for key in here.children if (item := get(found, (key,))) is not MISSING}
        if isinstance(found, dict):
            smaller, larger = (here.children, found) if len(here.children) <= len(found) else (found, here.children)
            stack += [(here.children[key], found[key]) for key in smaller if key in larger]


def unfed_below(place: IndexNode) -> list[tuple[ReadRequirement, IndexNode]]:
    """Return the waiting requirements here or further in that nobody feeds."""
    found: list[tuple[ReadRequirement, IndexNode]] = []
    stack = [place]
    while stack:
        here = stack.pop()
        if here.unfed_sub:
            found += [(read, here) for read in here.unfed]
            if here.unfed_sub > len(here.unfed):
                stack += here.children.values()
    return found
