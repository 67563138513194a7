"""What becomes of the work that a dead process left: each piece of it goes to one place, in each drawn history."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

import pytest

from spar import facts
from spar.decisions.resume import Remaining, completed, in_hand, recover
from spar.facts import Fact
from spar.records.journal import MOST_ATTEMPTS, Item, Unfinished
from spar.state.apply import SessionState, apply
from spar.types import Action, Call, Perception, replace
from tests.decisions.history import START, History

#: Drawn histories, and the steps after which the process of each dies.
HISTORIES, STEPS = 1_000, 20


def restarted(remaining: Remaining) -> tuple[SessionState, list[Fact]]:
    """Return the state of a session in the next process, and the facts that led to it; runs are accepted when they are
    given to it."""
    state, told = SessionState("main"), list[Fact]()
    for fact in recover(remaining, {"main": state}, START, lambda: "again"):
        run = fact.run if isinstance(fact, facts.WorkHandedOut | facts.MessagePlaced | facts.MessageAbsorbed) else ""
        if run and run not in state.runs:
            apply(state, facts.MessageAccepted(session="main", item=state.items[run]))
        if not isinstance(fact, facts.CycleReopened):
            apply(state, fact)
        told.append(fact)
    return state, told


def left_by(state: SessionState, draw: random.Random) -> Remaining:
    """Return what the journal has of a session when its process dies."""
    cycles = [piece.cycle for piece in state.pieces if piece.cycle is not None]
    cycle = state.cycle
    if cycle is not None and cycle.opened is not None:
        cycles.append(completed(cycle.opened.unfinished, cycle))
    held = [id for id in state.items if draw.random() < 0.2]
    return Remaining("main", dict(state.items), cycles, held)


def homes_of(state: SessionState) -> list[str]:
    """Return the ids of accepted work, once for each place that it is in."""
    of_pieces = [item for piece in state.pieces for item in {*piece.items, piece.run} if item]
    return [*state.pushed, *state.waiting, *state.steers, *state.retries, *of_pieces]


def test_in_each_history_all_work_of_a_dead_process_is_in_one_place_of_the_next() -> None:
    for seed in range(HISTORIES):
        history = History(random.Random(seed))
        for _ in range(STEPS):
            history.step()
        remaining = left_by(history.state, history.draw)
        state, told = restarted(remaining)
        done = {item for fact in told if isinstance(fact, facts.CycleWritten) for item in fact.closing.done}
        homes = homes_of(state)
        assert sorted(homes) == sorted({*homes}), seed
        assert {*homes} == state.items.keys(), seed
        assert remaining.items.keys() <= {*state.items, *state.put_aside, *done}, seed
        assert not state.put_aside.keys() & state.items.keys(), seed
        again = left(dict(state.items), [piece.cycle for piece in state.pieces if piece.cycle is not None])
        assert list(recover(again, {"main": state}, START, str)) == [], seed  # all of it is in hand


def left(items: dict[str, Item], cycles: Sequence[Unfinished] = (), **fields: Any) -> Remaining:
    return Remaining("main", items, cycles, **fields)


def item(id: str, **fields: Any) -> Item:
    return Item(id, Perception(id, id=id), at=START, **fields)


def run(id: str, **fields: Any) -> Item:
    return item(id, kind="run", **fields)


def kinds(told: Iterable[Fact]) -> list[str]:
    return [type(fact).__name__ for fact in told]


PLANNED = Unfinished("c", "main", (Perception("p", id="p"),), ("p",), action=Action((Call("look", id="1"),)))
CASES: dict[str, tuple[Remaining, list[str]]] = {
    "a perception": (left({"p": item("p")}), ["WorkChanged", "PerceptionAccepted"]),
    "a perception that the pipeline has seen": (left({"p": item("p", is_sensed=True)}),
                                                ["WorkChanged", "WorkHandedOut"]),
    "a message": (left({"r": run("r")}), ["WorkChanged", "MessagePlaced"]),
    "a message that cycles have worked on": (left({"r": run("r", past=("0",))}),
                                             ["WorkChanged", "WorkHandedOut"]),
    "a message that had joined a run": (left({"r": run("r"), "s": run("s", into="r")}),
                                        ["WorkChanged", "MessagePlaced", "WorkChanged", "MessageAbsorbed"]),
    "work that is not due": (left({"p": item("p", due_at=START + timedelta(seconds=9))}),
                             ["WorkChanged", "RetryPlanned"]),
    "work that failed too often": (left({"p": item("p", attempts=MOST_ATTEMPTS)}), ["WorkChanged", "PutAside"]),
    "a cycle that had planned": (left({"p": item("p")}, [PLANNED]), ["WorkChanged", "WorkHandedOut"]),
    "a cycle that had not": (left({"p": item("p")}, [replace(PLANNED, action=None)]),
                             ["WorkChanged", "CycleWritten", "WorkHandedOut"]),
    "a cycle that cannot be read": (left({"p": item("p"), "q": item("q")}, [replace(PLANNED, damage="torn")]),
                                    ["PutAside", "PutAside", "CycleWritten"]),
    "a cycle whose run has ended": (left({}, [replace(PLANNED, items=("r",), run_id="r")]), ["CycleWritten"]),
    "a call that continued without a cycle": (
        left({}, [replace(PLANNED, cycle_id="c/1", items=(), effect="once")]), ["CallDoubted", "CallAttached"]),
    "one that may be made again": (
        left({}, [replace(PLANNED, cycle_id="c/1", items=(), effect="idempotent")]),
        ["CycleReopened", "Planned", "WorkHandedOut", "CallAttached"]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_is_left_goes_on_as_it_says(name: str) -> None:
    remaining, told = CASES[name]
    assert kinds(restarted(remaining)[1]) == told


def test_what_was_current_when_a_process_died_is_tried_alone_and_the_attempt_is_told() -> None:
    _, [changed, handed_out] = restarted(left({"p": item("p")}, held={"p"}))
    assert isinstance(changed, facts.WorkChanged)
    assert isinstance(handed_out, facts.WorkHandedOut)
    assert (changed.item.attempts, handed_out.is_suspect) == (1, True)


def test_what_the_next_cycle_of_a_suspect_session_would_take_is_tried_alone() -> None:
    work = {"p": item("p"), "r": run("r"), "later": run("later")}
    work |= {"due": item("due", due_at=START + timedelta(seconds=9)), "other": run("other", session="other")}
    work = {name: replace(each, at=START + timedelta(seconds=at)) for at, (name, each) in enumerate(work.items())}
    told = recover(left(work), {}, START + timedelta(seconds=5), str, lambda session: session == "main")
    homes = [(type(fact).__name__, fact.is_suspect if isinstance(fact, facts.WorkHandedOut) else None)
             for fact in told if not isinstance(fact, facts.WorkChanged)]  # fmt: skip
    assert homes == [
        ("WorkHandedOut", True), ("WorkHandedOut", True), ("MessagePlaced", None), ("RetryPlanned", None),
        ("MessagePlaced", None),
    ]  # fmt: skip


def test_what_this_process_works_on_is_left_alone() -> None:
    state = SessionState("main", items={"p": item("p")}, detached={"c/1": "once"})
    assert in_hand([state]) == {"p", "c/1"}
    detached = replace(PLANNED, cycle_id="c/1", effect="once")
    remaining = left({"p": item("p"), "r": run("r")}, [detached], ended={"r"})
    assert list(recover(remaining, {"main": state}, START, str)) == []
