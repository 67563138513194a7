"""Calls that can never start: they wait for themselves, or for what nobody will bring, and why not. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, Final

from acting.graph.nodes import Barrier, Node, Why
from acting.graph.requirements import Requirements
from spar.checks import shorten
from spar.data.paths import Path, render

#: Nodes that can never start, of the class that was added, why, and of which id or path.
Stuck = tuple[list[Any], Why, str]

# By what became of those who were to write there: nothing is known of them, CHOSE_ANOTHER, FAILED, both.
_VERDICTS: Final[tuple[tuple[Why, str], ...]] = (
    ("bad_reference", "nothing stands at {!r} and no call writes it"),
    ("branch", "the call that could have written {!r} took another branch"),
    ("dep_failed", "the call that was to write {!r} did not end well"),
    ("dep_failed", "the call that was to write {!r} did not end well"),
)


class Deadlocks:
    """The calls of one batch that can never start, found one after another once nothing runs and nothing more arrives.

    Args: known: all calls by id; awaited: those that wait for an id that no call has; offer: makes a call ready that
        lacks nothing any more, if that is so; start: makes one ready whatever it still waits for.
    """

    def __init__(
        self,
        known: Mapping[str, Node],
        awaited: dict[str, list[Node]],
        requirements: Requirements,
        has: Callable[[Path, str | None], bool],
        offer: Callable[[Node], None],
        start: Callable[[Node], None],
    ) -> None:
        self._known, self._awaited, self._requirements = known, awaited, requirements
        self._has, self._offer, self._start = has, offer, start
        self._left: deque[Node] = deque()  # calls that were seen to wait and have not been looked at

    def next(self) -> Stuck | None:
        """Give up the next calls, or make one ready and name none; None when no call waits."""
        while self._awaited:
            id, nodes = self._awaited.popitem()
            waiting = [node for node in nodes if not node.ended]
            if waiting:
                return _given_up(waiting, "bad_reference", f"no call has the id {shorten(id)} that it is to run after")
        for node in self._requirements.suspects():
            self._reconsider(node)
            if node.is_ready:
                return [], "bad_reference", ""
            found = verdict(node)
            if found is not None:
                return _given_up([node], *found)
        return self._untie()

    def _reconsider(self, node: Node) -> None:
        """See what nobody told: a write may have taken away what it once had, or made an instance's value fit again."""
        requirements = self._requirements
        for read in list(node.requirements):
            for path in list(read.absent):
                is_there = path in read.absent and self._has(path, node.instance)
                if is_there and requirements.arrived(read, path):
                    self._offer(node)
        if not node.is_ready:
            requirements.note_missing(node)
            requirements.judge(node)
            for read in node.requirements:
                read.find_feeders()

    def _untie(self) -> Stuck | None:
        """Resolve a knot of calls that wait for one another, of which at least one read has alternatives, or an old
        value stands at it: the first of them that has all it reads starts; else the one that came last is given up.
        """
        while self._left and not _is_waiting(self._left[0]):
            self._left.popleft()
        if not self._left:
            self._left.extend(filter(_is_waiting, self._known.values()))
        if not self._left:
            return None
        knot = knot_from(self._left[0])
        for member in sorted(knot, key=lambda each: each.at):
            if could_start(member, self._has):
                for read in member.requirements:
                    read.close()
                self._start(member)
                return [], "dep_failed", ""
        last = max(knot, key=lambda each: each.at)
        return _given_up([last], "cycle", "it waits for itself through others, and no alternative to that came")


def verdict(node: Node) -> tuple[Why, str] | None:
    """Why what `node` reads will never come, by that of its paths of which most is known; None if it may."""
    losses = [loss for read in node.requirements if read.is_open and read.is_hopeless for loss in read.losses()]
    if not losses:
        return None
    bits, path = max(losses, key=lambda loss: loss[0])
    return _VERDICTS[bits][0], _VERDICTS[bits][1].format(render(path))


def could_start(node: Node, has: Callable[[Path, str | None], bool]) -> bool:
    """Return whether all that it reads is there, and it waits only for the order of the program to be kept."""
    return (
        node.after == 0
        and all(has(path, node.instance) for path in node.reads)
        and all(
            any(all(has(path, node.instance) for path in paths) for paths in read.alternatives)
            for read in node.requirements
        )
    )


def knot_from(start: Node) -> list[Node]:
    """Calls that wait for one another in a circle, to which one comes from `start` from call to awaited call."""
    trail: dict[Node, None] = {}
    node: Node | None = start
    while node is not None and node not in trail:
        trail[node] = None
        node = awaited_by(node)
    members = list(trail)
    return members if node is None else members[members.index(node) :]


def awaited_by(node: Node) -> Node | None:
    """One of those that live for whom `node` waits."""
    gates = [gate for read in node.requirements if read.is_open and (gate := read.gate) is not None]
    stack: list[Node | Barrier] = [*gates]
    feeders = (feeder for read in node.requirements if read.is_open for feeder in read.fed.values())
    stack += [blocker for blocker in chain(node.blockers, feeders) if not blocker.ended][:1]
    while stack:
        each = stack.pop()
        if isinstance(each, Node):
            return each
        stack += [blocker for blocker in each.blockers if not blocker.ended]
    return None


def reaches(node: Node, waiters: list[Node]) -> bool:
    """Return whether one of `waiters` is among what `node` itself waits for, directly or not.

    Searches back from the node and forward from the waiters in turns, so that it costs the smaller of the two:
    a plan given in reverse order has a long way forward and none back.
    """
    back: list[Node | Barrier] = [node]
    forward: list[Node | Barrier] = list(waiters)
    before: set[Node | Barrier] = {node}
    behind: set[Node | Barrier] = set(waiters)
    if node in behind:
        return True
    while back and forward:
        for near in _before(back.pop()):
            if near in behind:
                return True
            if near not in before and not near.ended:
                before.add(near)
                back.append(near)
        for far in _behind(forward.pop()):
            if far in before:
                return True
            if far not in behind and not far.ended:
                behind.add(far)
                forward.append(far)
    return False


def _before(each: Node | Barrier) -> Sequence[Node | Barrier]:
    if isinstance(each, Barrier) or not each.requirements:
        return each.blockers
    return [
        *each.blockers,
        *(feeder for read in each.requirements if read.is_plain for feeder in read.fed.values()),
    ]


def _behind(each: Node | Barrier) -> Sequence[Node | Barrier]:
    # A gate leads on to nobody: reads with alternatives close no circle.
    if isinstance(each, Barrier) or not (each.followers or each.feeds):
        return each.dependants
    fed = [read.node for read, place in each.feeds if read.is_plain and read.fed.get(place) is each]
    return [*each.dependants, *each.followers, *fed]


def _given_up(nodes: list[Node], why: Why, sentence: str) -> Stuck:
    for node in nodes:
        node.why = why
    return nodes, why, sentence


def _is_waiting(node: Node) -> bool:
    return not (node.ended or node.is_ready)
