"""The format of the database rises only when all live nodes know it, and goes only when none of them writes it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from memory.postgres.cluster.decisions import Node, Partition, View, format_of, format_step, plan

#: Releases: the lowest and the highest format that each knows.
RELEASES = ((1, 1), (1, 2), (2, 3))


class Live(NamedTuple):
    """Live node: what its release knows, the format that it writes, and the one that its row says."""

    lowest: int
    highest: int
    format: int
    row: int

    @property
    def node(self) -> Node:
        return Node("", 1.0, highest=self.highest, format=self.row)


class State(NamedTuple):
    """Formats whose tables are there, and the live nodes, sorted."""

    formats: tuple[int, ...]
    nodes: tuple[Live, ...]

    @property
    def view(self) -> View:
        return View(0.0, {str(index): live.node for index, live in enumerate(self.nodes)}, (), self.formats)


def stepped(state: State) -> State:
    """Return the state after what comes next for the format."""
    step = format_step(state.view)
    if step == "rise":
        return state._replace(formats=(*state.formats, state.formats[-1] + 1))
    return state._replace(formats=state.formats[-1:]) if step == "remove" else state


def looked(live: Live, formats: tuple[int, ...]) -> Live:
    """Return a node after its look at the database; the row says what it wrote before."""
    return live._replace(row=live.format, format=format_of(formats, live.lowest, live.highest) if live.format else 0)


def followers(state: State, most: int) -> Iterator[State]:
    """Return all states that may come next: a node begins, ends or looks, or the format changes."""
    yield stepped(state)
    if len(state.nodes) < most:
        for lowest, highest in RELEASES:
            format = format_of(state.formats, lowest, highest)
            yield State(state.formats, tuple(sorted((*state.nodes, Live(lowest, highest, format, format)))))
    for index, live in enumerate(state.nodes):
        others = (*state.nodes[:index], *state.nodes[index + 1 :])
        yield State(state.formats, others)
        yield State(state.formats, tuple(sorted((*others, looked(live, state.formats)))))


def test_in_no_order_of_events_does_a_node_write_what_is_not_there_or_what_another_does_not_know() -> None:
    begin = State((1,), ())
    seen, waiting = {begin}, [begin]
    while waiting:
        for state in followers(waiting.pop(), 3):
            assert state.formats[-1] <= 3, "nobody knows a later one"
            if state not in seen:
                seen.add(state)
                waiting.append(state)
    assert {state.formats for state in seen} == {(1,), (1, 2), (2,), (2, 3), (3,)}
    for formats, nodes in seen:
        writing = [live for live in nodes if live.format]
        assert all(live.format in formats for live in writing)
        assert all(live.lowest <= formats[-1] <= live.highest for live in writing if live.format == live.row)
        assert all(live.format <= other.highest for live in writing for other in writing)


def test_the_format_gets_as_high_as_all_live_nodes_know() -> None:
    for releases in ([(1, 1), (1, 2)], [(1, 2)], [(1, 2), (2, 3)], [(2, 3)], [(1, 1)], [(1, 1), (2, 3)]):
        state = State((1,), tuple(Live(*release, *[format_of((1,), *release)] * 2) for release in releases))
        for _ in range(9):
            state = stepped(state)
            state = state._replace(nodes=tuple(looked(live, state.formats) for live in state.nodes))
        assert state.formats == (min(highest for _, highest in releases),)


@pytest.mark.parametrize(
    ("formats", "nodes", "step"),
    [
        ((1,), (), ""),
        ((1,), ((2, 1),), "rise"),
        ((1,), ((2, 1), (2, 1)), "rise"),
        ((1,), ((1, 1), (2, 1)), ""),  # one does not know the next
        ((1,), ((3, 0), (2, 1)), "rise"),  # one knows only later ones: it waits
        ((2,), ((1, 0), (3, 2)), ""),  # one that is outdated lives still
        ((1, 2), ((2, 1), (2, 2)), ""),  # one writes the former format still
        ((1, 2), ((2, 2), (2, 2)), "remove"),
        ((1, 2), ((1, 0), (2, 2)), "remove"),
        ((1, 2), (), "remove"),
        ((1, 2), ((3, 2),), "remove"),  # before the next one
        ((2,), ((3, 1),), ""),  # it has not looked yet
    ],
)
def test_what_comes_next_for_the_format(
    formats: tuple[int, ...], nodes: tuple[tuple[int, int], ...], step: str
) -> None:
    live = {str(index): Node("", 1.0, highest=highest, format=format) for index, (highest, format) in enumerate(nodes)}
    gone = {"over": Node("", 0.0, highest=1), "cut off": Node("", 1.0, is_connected=False, highest=1)}
    assert format_step(View(0.5, {**live, **gone}, (), formats)) == step


def test_a_node_that_does_not_know_the_format_takes_nothing_and_keeps_nothing_from_the_others() -> None:
    nodes = {"old": Node("old", 1.0, format=0), "new": Node("new", 1.0, highest=2, format=2)}
    free = View(0.0, nodes, tuple(map(Partition, range(256))), (2,))
    assert plan(free, "old").take == ()
    assert len(plan(free, "new").take) == 256
