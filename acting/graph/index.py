"""The index behind the graph: for each segment of a path who writes there and who waits there.

Only data and its upkeep; what it means for a call is decided in `graph`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from acting.graph.nodes import NOBODY, Barrier, Group, Need, Node
from spar.data.dataflow import NOTHING, PathNode, child, descend, upwards
from spar.data.paths import MISSING, Path, get


class Index:
    """The places of all paths, those of each instance apart: who writes where one reads, who waits where one writes.

    What is read by an instance stands in two places: its own, and the one for all.
    """

    __slots__ = ("_instances", "_roots")

    def __init__(self) -> None:
        self._roots: dict[str, Place] = {}
        self._instances: dict[str, dict[str, Place]] = {}

    def block(self, waiter: Node | Barrier, path: Path, instance: str | None) -> bool:
        """Make `waiter` wait for those who live and write where `path` reads; False if there are none."""
        blocked = False
        own = None if instance is None else self._instances.get(instance)
        for roots in (self._roots,) if own is None else (self._roots, own):
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

    def register(self, node: Node, alternatives: tuple[tuple[Path, ...], ...]) -> list[tuple[Need, Place]]:
        """Note who writes here; returns the readers that wait for just that and that nobody else feeds."""
        groups: list[Group] = []
        fed: list[tuple[Need, Place]] = []
        ends = []
        roots = self._roots if node.instance is None else self._instances.setdefault(node.instance, {})
        for paths in alternatives:
            for path in paths:
                place = roots.get(path[0])
                if place is None:
                    place = roots[path[0]] = Place(None)
                for segment in path[1:]:
                    if place.unfed:
                        fed += [(need, place) for need in place.unfed]
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

    def watch(self, need: Need, path: Path) -> tuple[Place, ...]:
        """Let `need` wait for a value at `path`, as yet unfed; the places where it does."""
        places: tuple[Place, ...] = (walk(self._roots, path),)
        instance = need.node.instance
        if instance is not None:
            places = (*places, walk(self._instances.setdefault(instance, {}), path))
        need.absent[path] = places
        for place in places:
            place.enter(need, path)
        return places

    def awaiting(self, path: Path, value: object, instance: str | None) -> list[tuple[Need, Path]]:
        """Who waits for what is there now that `value` stands at `path`, and at which path each."""
        roots = self._roots if instance is None else self._instances.get(instance, NOBODY)
        place: Place | None = roots.get(path[0])
        if place is None or not place.waiters_sub:
            return []
        found: list[tuple[Need, Path]] = []
        for segment in path[1:]:
            if place.waiters:
                found += place.waiters.items()
            place = place.children.get(segment)
            if place is None:
                return found
        return [*found, *(item for below in present(place, value) for item in below.waiters.items())]


class Place(PathNode):
    """One segment of the index by path: who writes exactly here (`own`) or further in (`below`), who waits here."""

    __slots__ = ("below", "own", "unfed", "unfed_sub", "waiters", "waiters_sub")

    def __init__(self, up: Place | None = None) -> None:
        self.up: Place | None = up
        self.children: dict[str, Place] = NOTHING
        # Made when there is one: most places only ever have a writer.
        self.own: Group | None = None
        self.below: Group | None = None
        self.waiters: dict[Need, Path] = NOBODY
        self.unfed: dict[Need, None] = NOBODY  # waiters that have nobody on record who is going to feed them
        self.waiters_sub = self.unfed_sub = 0  # here and further in

    def groups(self) -> Iterator[Group]:
        """Those of all who write what is read here."""
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

    def enter(self, need: Need, path: Path) -> None:
        """`need` waits here, as yet unfed."""
        if self.waiters is NOBODY:
            self.waiters, self.unfed = {}, {}
        self.waiters[need] = path
        self.unfed[need] = None
        above: Place | None = self
        while above is not None:  # not `upwards`: this is the longest way of a call that comes before its writer
            above.waiters_sub += 1
            above.unfed_sub += 1
            above = above.up

    def leave(self, need: Need) -> None:
        del self.waiters[need]
        unfed = 0 if need.fed.pop(self, None) else 1
        if unfed:
            del self.unfed[need]
        above: Place | None = self
        while above is not None:
            above.waiters_sub -= 1
            above.unfed_sub -= unfed
            above = above.up

    def set_fed(self, need: Need, feeder: Node | None) -> None:
        """Put on record who is going to feed a waiter."""
        if feeder is None:
            if need.fed.pop(self, None) is None:
                return
            self.unfed[need], change = None, 1
        else:
            feeder.feeds = feeder.feeds or []
            feeder.feeds.append((need, self))
            was = need.fed.get(self)
            need.fed[self] = feeder
            if was is not None:
                return
            del self.unfed[need]
            change = -1
        above: Place | None = self
        while above is not None:
            above.unfed_sub += change
            above = above.up


def walk(roots: dict[str, Place], path: Path) -> Place:
    """The place of `path`, made if there is none."""
    place = roots.get(path[0])
    if place is None:
        place = roots[path[0]] = Place()
    return descend(place, path[1:])


def present(place: Place, value: Any) -> Iterator[Place]:
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


def unfed_below(place: Place) -> list[tuple[Need, Place]]:
    """Those who wait here or further in and whom nobody feeds."""
    found: list[tuple[Need, Place]] = []
    stack = [place]
    while stack:
        here = stack.pop()
        if here.unfed_sub:
            found += [(need, here) for need in here.unfed]
            if here.unfed_sub > len(here.unfed):
                stack += here.children.values()
    return found
