"""What becomes of the work that a dead process left: each piece of it goes to one place, in each drawn history."""

from __future__ import annotations

import random
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import pytest

from spar import facts
from spar.decisions.resume import completed, open_work, recover
from spar.facts import Fact
from spar.records.journal import MOST_ATTEMPTS, Item, Unfinished
from spar.state.apply import SessionState, apply, fold
from spar.types import Action, Call, Perception, replace
from tests.decisions.history import START, History

#: Drawn histories, and the steps after which the process of each dies.
HISTORIES, STEPS = 1_000, 20


def restarted(left: SessionState, *, is_suspect: bool = False) -> tuple[SessionState, list[Fact]]:
    """Return the state of a session in the next process, and the facts that led to it; runs are accepted when they are
    given to it."""
    state, told = SessionState("main"), list[Fact]()
    for fact in recover(left, open_work([left]), {"main": state}, "main", START, lambda: "again",
                        is_suspect=is_suspect):  # fmt: skip
        run = fact.run if isinstance(fact, facts.WorkHandedOut | facts.MessagePlaced | facts.MessageAbsorbed) else ""
        if run and run not in state.runs:
            apply(state, facts.MessageAccepted(session="main", item=state.items[run]))
        if not isinstance(fact, facts.CycleReopened):
            apply(state, fact)
        told.append(fact)
    return state, told


def left_by(state: SessionState, draw: random.Random) -> SessionState:
    """Return what the facts in the journal add up to when the process of a session dies."""
    cycles = [piece.cycle for piece in state.pieces if piece.cycle is not None]
    cycle = state.cycle
    if cycle is not None and cycle.opened is not None:
        cycles.append(completed(cycle.opened.unfinished, cycle))
    items = [replace(item, attempts=item.attempts + (draw.random() < 0.2)) for item in state.items.values()]
    return left(items, cycles)


def homes_of(state: SessionState) -> list[str]:
    """Return the ids of accepted work, once for each place that it is in."""
    of_pieces = [item for piece in state.pieces for item in {*piece.items, piece.run} if item]
    return [*state.pushed, *state.waiting, *state.steers, *state.retries, *of_pieces]


def test_in_each_history_all_work_of_a_dead_process_is_in_one_place_of_the_next() -> None:
    for seed in range(HISTORIES):
        history = History(random.Random(seed))
        for _ in range(STEPS):
            history.step()
        before = left_by(history.state, history.draw)
        state, told = restarted(before)
        done = {item for fact in told if isinstance(fact, facts.CycleWritten) for item in fact.closing.done}
        homes = homes_of(state)
        assert sorted(homes) == sorted({*homes}), seed
        assert {*homes} == state.items.keys(), seed
        assert before.items.keys() <= {*state.items, *state.put_aside, *done}, seed
        assert not state.put_aside.keys() & state.items.keys(), seed
        again = left_by(state, history.draw)
        assert open_work([again]) == open_work([state]), seed  # all of it is in hand


def left(items: Iterable[Item] = (), cycles: Iterable[Unfinished] = ()) -> SessionState:
    told = [facts.WorkHandedOut(session="main", work=cycle.id, run=cycle.run_id or "", cycle=cycle) for cycle in cycles]
    return fold("main", [*told, *[facts.WorkChanged(session="main", item=item) for item in items]])


def item(id: str, **fields: Any) -> Item:
    return Item(id, Perception(id, id=id), at=START, **fields)


def run(id: str, **fields: Any) -> Item:
    return item(id, kind="run", **fields)


def kinds(told: Iterable[Fact]) -> list[str]:
    return [type(fact).__name__ for fact in told]


PLANNED = Unfinished("c", "main", (Perception("p", id="p"),), ("p",), action=Action((Call("look", id="1"),)))
CASES: dict[str, tuple[SessionState, list[str]]] = {
    "a perception": (left([item("p")]), ["WorkChanged", "PerceptionAccepted"]),
    "a perception that the pipeline has seen": (left([item("p", is_sensed=True)]),
                                                ["WorkChanged", "WorkHandedOut"]),
    "a message": (left([run("r")]), ["WorkChanged", "MessagePlaced"]),
    "a message that cycles have worked on": (left([run("r", past=("0",))]),
                                             ["WorkChanged", "WorkHandedOut"]),
    "a message that had joined a run": (left([run("r"), run("s", into="r")]),
                                        ["WorkChanged", "MessagePlaced", "WorkChanged", "MessageAbsorbed"]),
    "work that is not due": (left([item("p", due_at=START + timedelta(seconds=9))]),
                             ["WorkChanged", "RetryPlanned"]),
    "work that failed too often": (left([item("p", attempts=MOST_ATTEMPTS)]), ["WorkChanged", "PutAside"]),
    "a cycle that had planned": (left([item("p")], [PLANNED]), ["WorkChanged", "WorkHandedOut"]),
    "a cycle that had not": (left([item("p")], [replace(PLANNED, action=None)]),
                             ["WorkChanged", "CycleWritten", "WorkHandedOut"]),
    "a cycle that cannot be read": (left([item("p"), item("q")], [replace(PLANNED, damage="torn")]),
                                    ["PutAside", "PutAside", "CycleWritten"]),
    "a cycle whose run has ended": (left((), [replace(PLANNED, items=("r",), run_id="r")]), ["CycleWritten"]),
    "a call that continued without a cycle": (
        left((), [replace(PLANNED, cycle_id="c/1", items=(), effect="once")]), ["CallDoubted", "CallAttached"]),
    "one that may be made again": (
        left((), [replace(PLANNED, cycle_id="c/1", items=(), effect="idempotent")]),
        ["CycleReopened", "Planned", "WorkHandedOut", "CallAttached"]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_is_left_goes_on_as_it_says(name: str) -> None:
    remaining, told = CASES[name]
    assert kinds(restarted(remaining)[1]) == told


def test_what_was_current_when_a_process_died_is_tried_alone() -> None:
    _, [_, handed_out] = restarted(left([item("p", attempts=1)]))
    assert isinstance(handed_out, facts.WorkHandedOut)
    assert handed_out.is_suspect


def test_what_the_next_cycle_of_a_suspect_session_would_take_is_tried_alone() -> None:
    work = [item("p"), run("r"), run("later"), item("due", due_at=START + timedelta(seconds=9))]
    work = [replace(each, at=START + timedelta(seconds=at - 4)) for at, each in enumerate(work)]
    _, told = restarted(left(work), is_suspect=True)
    assert kinds(told)[1::2] == ["WorkHandedOut", "WorkHandedOut", "MessagePlaced", "RetryPlanned"]
    assert [fact.is_suspect for fact in told if isinstance(fact, facts.WorkHandedOut)] == [True, True]


def test_what_this_process_works_on_is_left_alone() -> None:
    state = SessionState("main", items={"p": item("p")}, detached={"c/1": "once"})
    assert open_work([state]) == {"p", "c/1"}
    before = left([item("p"), run("r")], [replace(PLANNED, cycle_id="c/1", effect="once")])
    told = recover(before, {"r"}, {"main": state}, "main", START, str)
    assert kinds(told) == ["WorkChanged", "MessagePlaced"]
