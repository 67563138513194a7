"""Calls as nodes, and the edges between them: which call waits for the end of another one, or for a value.

This module only keeps these records; `graph` decides which call may start.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Literal, Protocol

from spar.data.paths import Path

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


class RequirementNode(Protocol):
    """A place of the index (`IndexNode`) at which a read waits."""

    @property
    def lost(self) -> int: ...
    def writer(self, *but: Node) -> Node | None: ...
    def set_fed(self, read: ReadRequirement, feeder: Node | None) -> None: ...
    def leave(self, read: ReadRequirement) -> None: ...


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


class Node:
    """One call in the graph; the batch's `Step` extends it.

    `why` says why the graph gave the call up; "" while it has not. `state` is one of PROPOSED, HELD (it is ready),
    ATTEMPT, ENDED. The graph sets the other fields when it adds the call.
    """

    __slots__ = ("after", "at", "blockers", "branches", "dependants", "feeds", "followers", "groups", "id", "instance",
                 "lacking", "ok", "reads", "requirements", "state", "waiting", "why", "writes")  # fmt: skip

    waiting: int  # count of the calls and barriers that block it
    after: int  # count of the calls in its `after` that have not ended well
    lacking: int  # count of its open requirements
    reads: Sequence[Path]  # each must be present; reads with alternatives are requirements
    writes: tuple[tuple[Path, ...], ...]
    # Most calls have none of these.
    blockers: list[Node | Barrier]
    dependants: list[Node | Barrier]  # nodes that wait for this to end
    followers: list[Node]  # nodes that wait for this to end well
    feeds: list[tuple[ReadRequirement, RequirementNode]]  # the waiting reads that this call is to write for
    requirements: dict[ReadRequirement, None]
    groups: Sequence[Group]
    branches: Sequence[Sequence[Group]]  # the groups of each alternative, if there are several
    instance: str | None
    ok: bool

    def __init__(self, id: str) -> None:
        self.id = id
        self.at = 0  # the number in the order of arrival; 0: not in the graph
        self.state = PROPOSED
        self.why: Why | Literal[""] = ""

    @property
    def ended(self) -> bool:
        return self.state == ENDED

    def leave(self, chosen: int | None) -> None:
        """Remove an ended call from its groups; record the reason at the paths that it did not write to."""
        for group in self.groups:
            group.live -= 1
        if chosen is None and not self.ok:
            lost = CHOSE_ANOTHER if self.why == "branch" else FAILED
            for group in self.groups:
                group.lost |= lost
        elif self.branches:
            written = set(self.branches[chosen or 0])
            for group in self.groups:
                if group not in written:
                    group.lost |= CHOSE_ANOTHER
        self.groups = self.branches = ()


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
        self.absent: dict[Path, tuple[RequirementNode, ...]] = {}
        self.fed: dict[RequirementNode, Node] = {}

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


class Group:
    """The calls that write to one place and may not have ended. Readers that arrive together share a barrier."""

    __slots__ = ("barrier", "fresh", "live", "lost")

    def __init__(self) -> None:
        self.live = self.lost = 0
        self.fresh: list[Node] = []
        self.barrier: Barrier | None = None

    def block(self, reader: Node | Barrier) -> None:
        """Make `reader` wait for all writers that have not ended; there is at least one."""
        if self.fresh:
            self.fresh = [node for node in self.fresh if node.state != ENDED]
        if self.barrier is not None and self.barrier.ended:
            self.barrier = None
        if len(self.fresh) == 1 and self.barrier is None:
            link(self.fresh[0], reader)
            return
        if self.fresh:
            barrier = Barrier()
            for node in self.fresh:
                link(node, barrier)
            if self.barrier is not None:
                link(self.barrier, barrier)
            self.fresh, self.barrier = [], barrier
        if self.barrier is not None:
            link(self.barrier, reader)

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


def link(blocker: Node | Barrier, waiter: Node | Barrier) -> None:
    blocker.dependants = blocker.dependants or []
    blocker.dependants.append(waiter)
    waiter.blockers = waiter.blockers or []
    waiter.blockers.append(blocker)
    waiter.waiting += 1
