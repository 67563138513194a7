"""Search for calls that can never start: they wait for themselves, or for a value that no call will write. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Final

from acting.graph.nodes import Barrier, Node, Why
from spar.checks import shorten
from spar.data.paths import Path, render

#: Nodes that can never start, the kind of reason, and a sentence with the id or the path.
Stuck = tuple[list[Any], Why, str]

# By the reason why no call wrote there: there was no such call, CHOSE_ANOTHER, FAILED, both.
_VERDICTS: Final[tuple[tuple[Why, str], ...]] = (
    ("bad_reference", "nothing stands at {!r} and no call writes it"),
    ("branch", "the call that could have written {!r} took another branch"),
    ("dep_failed", "the call that was to write {!r} did not end well"),
    ("dep_failed", "the call that was to write {!r} did not end well"),
)


class Deadlocks:
    """Finder of the calls of one batch that can never start; used when nothing runs and nothing more arrives.

    Args: known: all calls by id; awaited: the calls that wait for an id that no call has; suspects: takes the calls
        whose values may never come; reconsider: compares a call's reads with the values that are there now, and makes
        it ready if nothing blocks it; start: makes a call ready even if it still waits for something.
    """

    def __init__(
        self,
        known: Mapping[str, Node],
        awaited: dict[str, list[Node]],
        suspects: Callable[[], Iterable[Node]],
        reconsider: Callable[[Node], None],
        has: Callable[[Path, str | None], bool],
        start: Callable[[Node], None],
    ) -> None:
        self._known, self._awaited, self._suspects, self._reconsider = known, awaited, suspects, reconsider
        self._has, self._start = has, start
        self._left: deque[Node] = deque()  # waiting calls that have not been examined yet

    def next(self) -> Stuck | None:
        """Return the next calls to give up, or none after making one ready; None when no call waits."""
        while self._awaited:
            id, nodes = self._awaited.popitem()
            waiting = [node for node in nodes if not node.ended]
            if waiting:
                return _give_up(waiting, "bad_reference", f"no call has the id {shorten(id)} that it is to run after")
        for node in self._suspects():
            self._reconsider(node)
            if node.state:
                return [], "bad_reference", ""
            reason_found = verdict(node)
            if reason_found is not None:
                return _give_up([node], *reason_found)
        return self._resolve_cycle()

    def _resolve_cycle(self) -> Stuck | None:
        """Resolve a cycle of waiting calls in which a read has alternatives or an old value.

        The first call of the cycle that has all its values starts; if there is none, the last call is given up.
        """
        while self._left and not _is_waiting(self._left[0]):
            self._left.popleft()
        if not self._left:
            self._left.extend(filter(_is_waiting, self._known.values()))
        if not self._left:
            return None
        cycle = cycle_from(self._left[0])
        for member in sorted(cycle, key=lambda member: member.at):
            if could_start(member, self._has):
                for read in member.requirements:
                    read.close()
                self._start(member)
                return [], "dep_failed", ""
        last = max(cycle, key=lambda member: member.at)
        return _give_up([last], "cycle", "it waits for itself through others, and no alternative to that came")


def verdict(node: Node) -> tuple[Why, str] | None:
    """Return why a value of `node` will never come, by the path with the most important reason; None if it may come."""
    losses = [loss for read in node.requirements if read.is_open and read.is_hopeless for loss in read.losses()]
    if not losses:
        return None
    bits, path = max(losses, key=lambda loss: loss[0])
    return _VERDICTS[bits][0], _VERDICTS[bits][1].format(render(path))


def could_start(node: Node, has: Callable[[Path, str | None], bool]) -> bool:
    """Return whether all values of a call are there, so that it waits only to keep the plan's order."""
    return (
        node.after == 0
        and all(has(path, node.instance) for path in node.reads)
        and all(
            any(all(has(path, node.instance) for path in paths) for paths in read.alternatives)
            for read in node.requirements
        )
    )


def cycle_from(start: Node) -> list[Node]:
    """Return a cycle of calls that wait for one another, found by following from `start` the calls that are awaited."""
    trail: dict[Node, None] = {}
    node: Node | None = start
    while node is not None and node not in trail:
        trail[node] = None
        node = awaited_by(node)
    members = list(trail)
    return members if node is None else members[members.index(node) :]


def awaited_by(node: Node) -> Node | None:
    """Return a call that has not ended and that `node` waits for."""
    gates = [gate for read in node.requirements if read.is_open and (gate := read.gate) is not None]
    stack: list[Node | Barrier] = [*gates]
    feeders = (feeder for read in node.requirements if read.is_open for feeder in read.fed.values())
    stack += [blocker for blocker in chain(node.blockers, feeders) if not blocker.ended][:1]
    while stack:
        blocker_or_barrier = stack.pop()
        if isinstance(blocker_or_barrier, Node):
            return blocker_or_barrier
        stack += [blocker for blocker in blocker_or_barrier.blockers if not blocker.ended]
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


def _before(node: Node | Barrier) -> Sequence[Node | Barrier]:
    if isinstance(node, Barrier) or not node.requirements:
        return node.blockers
    return [*node.blockers, *(feeder for read in node.requirements if read.is_plain for feeder in read.fed.values())]


def _behind(node: Node | Barrier) -> Sequence[Node | Barrier]:
    # Gates are not followed: reads with alternatives close no cycle.
    if isinstance(node, Barrier) or not (node.followers or node.feeds):
        return node.dependants
    fed = [read.node for read, place in node.feeds if read.is_plain and read.fed.get(place) is node]
    return [*node.dependants, *node.followers, *fed]


def _give_up(nodes: list[Node], why: Why, sentence: str) -> Stuck:
    for node in nodes:
        node.why = why
    return nodes, why, sentence


def _is_waiting(node: Node) -> bool:
    return not node.state
