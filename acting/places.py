"""The index behind the graph: calls as nodes, and for each segment of a path who writes there and who waits there.

Only data and its upkeep; what it means for a call is decided in `graph`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import MappingProxyType
from typing import Any

from acting.paths import Path


class Barrier:
    """Ends when everything that it waits for has ended, well or not."""

    __slots__ = ("blockers", "dependants", "waiting")

    def __init__(self) -> None:
        self.waiting = 0
        self.blockers: list[Node | Barrier] = []
        self.dependants: list[Node | Barrier] = []

    @property
    def ended(self) -> bool:
        return self.waiting == 0


class Node:
    """One call as the graph sees it; the executor's own record extends it."""

    __slots__ = ("blockers", "dependants", "ended", "feeds", "followers", "id", "is_doomed", "is_ready", "missing",
                 "ok", "places", "reads", "waiting", "write")  # fmt: skip

    def __init__(self, id: str) -> None:
        self.id = id
        self.reads: tuple[Path, ...] = ()
        self.write: Path | None = None
        self.waiting = 0
        self.ended = self.ok = self.is_doomed = self.is_ready = False
        self.blockers: list[Node | Barrier] = []
        self.dependants: list[Node | Barrier] = []  # wait for this to end
        self.followers: list[Node] = []  # wait for this to end well
        self.missing: dict[Path, Place] = {}
        self.feeds: list[tuple[Node, Path]] = []
        self.places: Sequence[Place] = ()


class Group:
    """Calls that write here and have perhaps not ended; the readers that arrive together share a barrier."""

    __slots__ = ("barrier", "fresh")

    def __init__(self) -> None:
        self.fresh: list[Node] = []
        self.barrier: Barrier | None = None

    def block(self, reader: Node) -> bool:
        """Make `reader` wait for all that live; False if none does."""
        if self.fresh:
            self.fresh = [node for node in self.fresh if not node.ended]
        if self.barrier is not None and self.barrier.ended:
            self.barrier = None
        if len(self.fresh) == 1 and self.barrier is None:
            link(self.fresh[0], reader)
            return True
        if self.fresh:
            barrier = Barrier()
            for node in self.fresh:
                link(node, barrier)
            if self.barrier is not None:
                link(self.barrier, barrier)
            self.fresh, self.barrier = [], barrier
        if self.barrier is None:
            return False
        link(self.barrier, reader)
        return True


NOBODY: Any = MappingProxyType({})


class Place:
    """One segment of the index by path: who writes exactly here (`own`) or here and below (`sub`), who waits here."""

    __slots__ = ("children", "failed_own", "failed_sub", "live_own", "live_sub", "own", "sub", "unfed", "unfed_sub",
                 "up", "waiters", "waiters_sub")  # fmt: skip

    def __init__(self, up: Place | None) -> None:
        self.up = up
        self.children: dict[str, Place] = {}
        self.own: Group | None = None
        self.sub: Group | None = None
        self.live_own = self.live_sub = self.waiters_sub = self.unfed_sub = 0
        self.failed_own = self.failed_sub = False
        # Made when the first one waits: most places only ever have a writer.
        self.waiters: dict[Node, Path] = NOBODY
        self.unfed: dict[Node, Path] = NOBODY  # waiters that nobody who lives is going to feed


def link(blocker: Node | Barrier, waiter: Node | Barrier) -> None:
    blocker.dependants.append(waiter)
    waiter.blockers.append(blocker)
    waiter.waiting += 1


def upwards(place: Place | None) -> Iterator[Place]:
    while place is not None:
        yield place
        place = place.up


def set_unfed(node: Node, path: Path, place: Place, *, fed: bool) -> None:
    if fed == (node not in place.unfed):
        return
    if fed:
        del place.unfed[node]
    else:
        place.unfed[node] = path
    for above in upwards(place):
        above.unfed_sub += -1 if fed else 1


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
            found = {str(index): item for index, item in enumerate(found)}
        if isinstance(found, dict):
            smaller, larger = (here.children, found) if len(here.children) <= len(found) else (found, here.children)
            stack += [(here.children[key], found[key]) for key in smaller if key in larger]
