"""Calls that can never start: they wait for themselves, or for what nobody will bring, and why not. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Final

from acting.graph.nodes import Barrier, Node, Why
from spar.data.paths import Path, render

# By what became of those who were to write there: nothing is known of them, CHOSE_ANOTHER, FAILED, both.
_VERDICTS: Final[tuple[tuple[Why, str], ...]] = (
    ("bad_reference", "nothing stands at {!r} and no call writes it"),
    ("branch", "the call that could have written {!r} took another branch"),
    ("dep_failed", "the call that was to write {!r} did not end well"),
    ("dep_failed", "the call that was to write {!r} did not end well"),
)


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
