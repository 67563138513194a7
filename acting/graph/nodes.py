"""Calls as the graph sees them, and what ties them together: who waits for whose end, and for what value.

Only records and their upkeep; what it means for a call is decided in `graph`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import MappingProxyType
from typing import Any, Final, Literal, Protocol

from spar.data.paths import Path

Why = Literal["bad_reference", "dep_failed", "branch", "cycle"]

# What became of those who were to write somewhere and have not: bits, of which the higher tells more.
CHOSE_ANOTHER: Final = 1
FAILED: Final = 2

NOBODY: Final[Any] = MappingProxyType({})
NONE: Final[Any] = ()


class RequirementNode(Protocol):
    """A segment of the index by path (`index`) as a read that waits there sees it."""

    @property
    def lost(self) -> int: ...
    def writer(self, *but: Node) -> Node | None: ...
    def set_fed(self, read: ReadRequirement, feeder: Node | None) -> None: ...
    def leave(self, read: ReadRequirement) -> None: ...


class Barrier:
    """Ends when everything that it waits for has ended, well or not."""

    __slots__ = ("blockers", "dependants", "waiting")

    def __init__(self) -> None:
        self.waiting = 0
        self.blockers: list[Node | Barrier] = NONE
        self.dependants: list[Node | Barrier] = NONE

    @property
    def ended(self) -> bool:
        return self.waiting == 0


class Gate(Barrier):
    """A barrier before one alternative of a read: when it ends, the read is looked at again."""

    __slots__ = ("requirement",)

    def __init__(self, read: ReadRequirement) -> None:
        super().__init__()
        self.requirement = read


class Node:
    """One call as the graph sees it; the executor's own record extends it.

    `why` says why the graph gave it up, empty while it has not. The graph sets the rest when it takes the call in.
    """

    __slots__ = ("after", "at", "blockers", "branches", "dependants", "ended", "feeds", "followers",
                 "groups", "id", "instance", "is_doomed", "is_ready", "lacking", "ok", "reads",
                 "requirements", "waiting", "why", "writes")  # fmt: skip

    waiting: int  # calls and barriers that block it
    after: int  # those of them that it named
    lacking: int  # its open requirements
    reads: Sequence[Path]  # each must be present; reads with alternatives are requirements
    writes: tuple[tuple[Path, ...], ...]
    # These most calls do not have.
    blockers: list[Node | Barrier]
    dependants: list[Node | Barrier]  # wait for this to end
    followers: list[Node]  # wait for this to end well
    feeds: list[tuple[ReadRequirement, RequirementNode]]  # it is to write what they lack
    requirements: dict[ReadRequirement, None]
    groups: Sequence[Group]
    branches: Sequence[Sequence[Group]]  # the groups of each alternative, if there are several
    instance: str | None
    ok: bool
    is_doomed: bool
    is_ready: bool

    def __init__(self, id: str) -> None:
        self.id = id
        self.at = 0  # its number in the order of arrival; 0: it is not in the graph
        self.ended = False
        self.why: Why | Literal[""] = ""

    def leave(self, chosen: int | None) -> None:
        """It has ended and writes nowhere any more: leave a note where it has not."""
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
    """A read that has to be waited for by value: one path that is missing, or several alternatives.

    `absent` are its paths at which nothing stands, with the places where it waits for them; `fed` says of such a
    place who that lives is to write there, as far as that was looked for.
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
        """Return whether it is for one path, and goes away once that is present."""
        return not self.gates

    @property
    def gate(self) -> Gate | None:
        """Return the gate that it waits for before it can be judged; None if there is none."""
        return next((gate for gate in self.gates if gate is not None and gate.waiting), None)

    @property
    def is_hopeless(self) -> bool:
        """Return whether nobody who lives can still bring what it lacks."""
        if self.gate is not None:
            return False
        return all(any(self._is_lost(path) for path in paths) for paths in self.alternatives)

    def find_feeders(self) -> None:
        """Somebody who lives and writes there, for each place that has none on record."""
        for places in self.absent.values():
            for place in places:
                if place not in self.fed:
                    place.set_fed(self, place.writer(self.node))

    def close(self) -> None:
        """It waits no longer."""
        for places in self.absent.values():
            for place in places:
                place.leave(self)
        self.absent = {}
        self.is_open = False

    def _is_lost(self, path: Path) -> bool:
        places = self.absent.get(path)
        return places is not None and not any(place in self.fed for place in places)

    def losses(self) -> Iterator[tuple[int, Path]]:
        """The paths that nobody will bring, each with what became of those who were to."""
        for path, places in self.absent.items():
            if self._is_lost(path):
                yield max(place.lost for place in places), path


class Group:
    """Calls that write here and have perhaps not ended; the readers that arrive together share a barrier."""

    __slots__ = ("barrier", "fresh", "live", "lost")

    def __init__(self) -> None:
        self.live = self.lost = 0
        self.fresh: list[Node] = []
        self.barrier: Barrier | None = None

    def block(self, reader: Node | Barrier) -> None:
        """Make `reader` wait for all that live, of whom there are some."""
        if self.fresh:
            self.fresh = [node for node in self.fresh if not node.ended]
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
        """One of those who live, other than `but`; the one that came last, if it is easily found."""
        found: Node | None = None
        stack: list[list[Any]] = [self.fresh]
        if self.barrier is not None and not self.barrier.ended:
            stack.append(self.barrier.blockers)
        while stack:
            writers = stack.pop()
            passed = 0
            for each in reversed(writers):
                if each.ended:
                    passed += 1
                elif isinstance(each, Barrier):
                    stack.append(each.blockers)
                elif each not in but:
                    found = each
                    break
            if passed > 8:  # the next one who looks need not pass them
                writers[:] = [each for each in writers if not each.ended]
            if found is not None:
                break
        return found


def link(blocker: Node | Barrier, waiter: Node | Barrier) -> None:
    blocker.dependants = blocker.dependants or []
    blocker.dependants.append(waiter)
    waiter.blockers = waiter.blockers or []
    waiter.blockers.append(blocker)
    waiter.waiting += 1
