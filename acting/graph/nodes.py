"""Calls as nodes, the edges between them, and the places of paths where calls write and reads wait.

This module only keeps these records; `graph` decides which call may start.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Literal

from msgspec import Struct

from spar.data.paths import Path, PathNode, upwards
from spar.types.slotted import slotted

Why = Literal["bad_reference", "dep_failed", "branch", "cycle"]

#: The states of a call, in this order. The graph holds a proposed call until it is ready; then other holds do.
PROPOSED: Final = 0
HELD: Final = 1
ATTEMPT: Final = 2
ENDED: Final = 3
#: The state of a call after an event, by its state before.
MOVES: Final[Mapping[str, Mapping[int, int]]] = {
    "ready": {PROPOSED: HELD},
    "refused": {PROPOSED: ENDED, HELD: ENDED},
    "begun": {HELD: ATTEMPT},
    "begun again": {ATTEMPT: ATTEMPT},
    "completed": {ATTEMPT: ENDED},
    # Its batch starts no further call: running ones finish.
    "stopped": {PROPOSED: ENDED, HELD: ENDED, ATTEMPT: ATTEMPT},
    # Its batch is cancelled: a running call is cancelled and may be in doubt.
    "cut off": {PROPOSED: ENDED, HELD: ENDED, ATTEMPT: ENDED},
}

# Why calls that were to write to a path ended without doing so: bits; the higher bit is the more important reason.
CHOSE_ANOTHER: Final = 1
FAILED: Final = 2

NOBODY: Final[Any] = MappingProxyType({})
NONE: Final[Any] = ()


class Barrier:
    """A node that ends when all calls and barriers that it waits for have ended, well or not."""

    __slots__ = ("blockers", "dependants", "waiting")

    def __init__(self) -> None:
        self.waiting = 0
        self.blockers: list[Node | Barrier] = NONE
        self.dependants: list[Node | Barrier] = NONE

    @property
    def ended(self) -> bool:
        return self.waiting == 0


class Gate(Barrier):
    """A barrier before one alternative of a read: when it ends, the read is judged again."""

    __slots__ = ("requirement",)

    def __init__(self, read: ReadRequirement) -> None:
        super().__init__()
        self.requirement = read


class Node(Struct, eq=False, gc=False):
    """One call in the graph; the batch's `Step` extends it.

    `at` is the number in the order of arrival, 0 while the call is not in the graph. `why` says why the graph gave the
    call up; "" while it has not. `state` is one of PROPOSED, HELD (it is ready), ATTEMPT, ENDED. The garbage collector
    finds no cycle of references through a node: what leads back to it must go when it ends.
    """

    id: str
    at: int = 0
    state: int = PROPOSED
    why: Why | Literal[""] = ""
    instance: str | None = None
    ok: bool = False
    chosen: int | None = None  # index of the alternative of its output path that it has written
    waiting: int = 0  # count of the calls and barriers that block it
    after: int = 0  # count of the calls in its `after` that have not ended well
    lacking: int = 0  # count of its open requirements
    reads: Sequence[Path] = ()  # each must be present; reads with alternatives are requirements
    writes: tuple[tuple[Path, ...], ...] = ()
    # Most calls have none of these.
    blockers: list[Node | Barrier] = NONE
    dependants: list[Node | Barrier] = NONE  # nodes that wait for this to end
    followers: list[Node] = NONE  # nodes that wait for this to end well
    feeds: list[tuple[ReadRequirement, IndexNode]] = NONE  # the waiting reads that this call is to write for
    requirements: dict[ReadRequirement, None] = NONE

    @property
    def ended(self) -> bool:
        return self.state == ENDED


class ReadRequirement:
    """A read that waits for a value: at one path without a value, or at one of several alternatives.

    `absent` are its paths without a value, each with the places of the index where the read waits. `fed` has for such a
    place a call that has not ended and is to write there (its *feeder*), as far as one was looked for.
    """

    __slots__ = ("absent", "alternatives", "fed", "gates", "is_open", "node")

    def __init__(self, node: Node, alternatives: tuple[tuple[Path, ...], ...]) -> None:
        self.node = node
        self.alternatives = alternatives
        self.is_open = True
        self.gates: Sequence[Gate | None] = ()
        self.absent: dict[Path, tuple[IndexNode, ...]] = {}
        self.fed: dict[IndexNode, Node] = {}

    @property
    def is_plain(self) -> bool:
        """Return whether the read is for one path only, and ends when a value is there."""
        return not self.gates

    @property
    def gate(self) -> Gate | None:
        """Return the first gate that has not ended; None if the read can be judged."""
        return next((gate for gate in self.gates if gate is not None and gate.waiting), None)

    @property
    def is_hopeless(self) -> bool:
        """Return whether no call that has not ended can still write a value that this read needs."""
        if self.gate is not None:
            return False
        return all(any(self._is_lost(path) for path in paths) for paths in self.alternatives)

    def find_feeders(self) -> None:
        """Find a feeder for each place that has none."""
        for places in self.absent.values():
            for place in places:
                if place not in self.fed:
                    place.set_fed(self, place.writer(self.node))

    def close(self) -> None:
        """Stop waiting."""
        for places in self.absent.values():
            for place in places:
                place.leave(self)
        self.absent = {}
        self.is_open = False

    def _is_lost(self, path: Path) -> bool:
        places = self.absent.get(path)
        return places is not None and not any(place in self.fed for place in places)

    def losses(self) -> Iterator[tuple[int, Path]]:
        """Yield the paths that no call will write any more, each with the reason (bits) of the calls that were to."""
        for path, places in self.absent.items():
            if self._is_lost(path):
                yield max(place.lost for place in places), path


@slotted
class Group(Struct, eq=False, gc=False):
    """The calls that write to one place, of which some may have ended. Readers that arrive together share a barrier.

    As with a node, no cycle of references goes through it.
    """

    fresh: list[Node] = []
    barrier: Barrier | None = None
    lost: int = 0

    def block(self, reader: Node | Barrier) -> bool:
        """Make `reader` wait for all writers that have not ended; return whether there are any."""
        fresh, barrier = self.fresh, self.barrier
        if barrier is not None and barrier.ended:
            barrier = self.barrier = None
        if fresh and (len(fresh) > 1 or fresh[0].state == ENDED):
            fresh = self.fresh = [node for node in fresh if node.state != ENDED]
        if len(fresh) == 1 and barrier is None:
            link(fresh[0], reader)
            return True
        if fresh:
            shared = Barrier()
            for node in fresh:
                link(node, shared)
            if barrier is not None:
                link(barrier, shared)
            self.fresh, barrier = [], shared
            self.barrier = barrier
        if barrier is None:
            return False
        link(barrier, reader)
        return True

    def writer(self, *but: Node) -> Node | None:
        """Return a writer that has not ended, other than `but`: the last one, if it is easy to find."""
        living: Node | None = None
        stack: list[list[Any]] = [self.fresh]
        if self.barrier is not None and not self.barrier.ended:
            stack.append(self.barrier.blockers)
        while stack:
            writers = stack.pop()
            passed = 0
            for candidate in reversed(writers):
                if candidate.ended:
                    passed += 1
                elif isinstance(candidate, Barrier):
                    stack.append(candidate.blockers)
                elif candidate not in but:
                    living = candidate
                    break
            if passed > 8:  # so that the next search need not pass the ended ones
                writers[:] = [candidate for candidate in writers if not candidate.ended]
            if living is not None:
                break
        return living


@slotted
class IndexNode(PathNode, eq=False):
    """One segment of a path in the index: the calls that write here (`own`) or below, the reads that wait here."""

    # Created on demand: most places only ever have a writer.
    own: Group | None = None
    below: Group | None = None
    waiters: dict[ReadRequirement, Path] = NOBODY
    unfed: dict[ReadRequirement, None] = NONE  # waiting reads without a feeder
    waiters_sub: int = 0  # count of the waiting reads here and below; `unfed_sub` likewise
    unfed_sub: int = 0

    def groups(self) -> Iterator[Group]:
        """Yield the groups of all calls whose writes a read of this place sees."""
        for place in upwards(self.up):
            if place.own is not None:
                yield place.own
        for group in (self.own, self.below):
            if group is not None:
                yield group

    def writer(self, *but: Node) -> Node | None:
        """Return a call other than `but` that has not ended and whose write a read of this place sees."""
        return next(filter(None, (group.writer(*but) for group in self.groups())), None)

    @property
    def lost(self) -> int:
        bits = 0
        for group in self.groups():
            bits |= group.lost
        return bits

    def enter(self, read: ReadRequirement, path: Path) -> None:
        """Record that `read` waits here, without a feeder yet."""
        if self.waiters is NOBODY:
            self.waiters, self.unfed = {}, {}
        self.waiters[read] = path
        self.unfed[read] = None
        above: IndexNode | None = self
        while above is not None:  # a plain loop instead of `upwards`, because this is a hot path
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
        """Record the feeder of a waiting read; None if it has none any more."""
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


def link(blocker: Node | Barrier, waiter: Node | Barrier) -> None:
    if blocker.dependants:
        blocker.dependants.append(waiter)
    else:
        blocker.dependants = [waiter]
    if waiter.blockers:
        waiter.blockers.append(blocker)
    else:
        waiter.blockers = [blocker]
    waiter.waiting += 1
