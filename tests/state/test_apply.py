"""The addition of facts to a state: any fact fits any state, prefixes go on, and the cost is that of the fact."""

from __future__ import annotations

from typing import Any, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import to_builtins

from spar import facts
from spar.data.reply import End
from spar.facts import Fact
from spar.journal.in_memory import JournalInMemory
from spar.records.journal import Closing, DeadLetter, Item, Unfinished
from spar.records.session import Reset
from spar.state.apply import ADDITIONS, Ledger, SessionState, fold
from spar.types import CALL_STATUSES, Action, Call, CallResult, Perception, utcnow
from tests.decisions.history import doubt_of
from tests.effort import Effort

_IDS = st.sampled_from(["a", "b", "c"])
_PERCEPTIONS = st.builds(lambda id: Perception(f"says {id}", id=id), _IDS)
_CYCLES = st.none() | st.builds(lambda id: Unfinished(id, "main"), _IDS)
_CALLS = st.builds(lambda id: Call("look", id=id), _IDS)
_BY_FIELD: dict[str, st.SearchStrategy[Any]] = {
    "perception": _PERCEPTIONS,
    "message": st.none() | _PERCEPTIONS,
    "gist": st.none() | _PERCEPTIONS,
    "perceptions": st.lists(_PERCEPTIONS, max_size=2).map(tuple),
    "items": st.lists(_IDS, max_size=2).map(tuple),
    "calls": st.lists(_CALLS, max_size=2).map(tuple),
    "action": st.builds(Action, st.lists(_CALLS, min_size=1, max_size=2).map(tuple)),
    "result": st.builds(CallResult, _CALLS, st.sampled_from(CALL_STATUSES)),
    "values": st.none(),
    "item": st.builds(lambda id: Item(id, Perception("x")), _IDS),
    "letter": st.builds(lambda id: DeadLetter(id, Item(id, Perception("x")), utcnow(), "it failed"), _IDS),
    "doubt": _IDS.map(doubt_of),
    "reset": st.just(Reset("reset", "main", 1, utcnow())),
    "entries": st.just(()),
    "cut": st.none(),
    "again": st.none(),
    "use": st.none(),
    "answer": st.none(),
    "closing": st.builds(lambda done: Closing("acted", done=done), st.lists(_IDS, max_size=2).map(tuple)),
    "changes": st.just(()),
    "cursors": st.just({}),
    "end": st.builds(End, st.sampled_from(["ok", "error"])),
    "amounts": st.dictionaries(st.sampled_from(["calls", "requests"]), st.integers(0, 3)),
}
KINDS = list(ADDITIONS)


def of_kind(kind: type[Fact]) -> st.SearchStrategy[Fact]:
    """Facts of a kind about few runs, cycles and calls, so that they meet; other fields by their type."""
    fields = {
        name: _BY_FIELD[name] if name in _BY_FIELD else _IDS if hint is str else st.from_type(hint)
        for name, hint in _hints(kind).items()
        if name not in ("session", "options", "defaults", "output")
    }
    if kind is facts.WorkHandedOut:
        fields["cycle"] = _CYCLES
    if kind is facts.CycleClosed:
        fields["calls"] = st.integers(0, 2)
    return st.builds(kind, session=st.just("main"), **fields)


def _hints(kind: type[Fact]) -> dict[str, Any]:
    return get_type_hints(kind)


HISTORIES = st.lists(st.one_of([of_kind(kind) for kind in KINDS]), max_size=30)


@given(HISTORIES, st.integers(0, 30))
def test_a_prefix_and_the_rest_add_up_to_the_whole_whatever_was_told(history: list[Fact], at: int) -> None:
    whole = fold("main", history)
    before = fold("main", history[:at])
    assert fold("main", history[at:], before) == whole


@given(HISTORIES)
def test_a_state_is_plain_values_and_names_once_what_is_open_and_nothing_of_a_run_that_ended(
    history: list[Fact],
) -> None:
    state = fold("main", history)
    to_builtins(state)  # raises for a task, timer, callback or lock
    assert not state.run or state.run in state.runs
    for run_id, run in state.runs.items():
        queues = [run_id in state.waiting, run_id in state.steers]
        assert sum(queues) == (run.place is not None)
    assert not state.interrupting or state.interrupting in state.waiting
    assert not state.interrupted.keys() & state.suspects.keys()
    assert state.interrupted_runs == sum(bool(piece.run) for piece in state.pieces)
    fold("main", [facts.RunFinished(session="main", run=run, end=End("ok")) for run in ("a", "b", "c")], state)
    assert [state.runs, state.waiting, state.steers, state.run, state.interrupting] == [{}, {}, {}, "", ""]


def _crowded(number: int) -> SessionState:
    """A session in which so many messages, perceptions, retries and pieces of interrupted work wait."""
    following: list[Fact] = []
    for index in range(number):
        run, other = f"run-{index}", f"item-{index}"
        message = Perception(run, id=f"message-{index}")
        following += [
            facts.MessageAccepted(session="main", item=Item(run, message, "run")),
            facts.MessagePlaced(session="main", run=run, place="queue"),
            facts.PerceptionAccepted(session="main", perception=Perception(other, id=other)),
            facts.RetryPlanned(session="main", item=Item(f"late-{index}", Perception("x"), due_at=utcnow())),
            facts.WorkHandedOut(session="main", work=f"piece-{index}"),
            facts.CallDoubted(session="main", doubt=doubt_of(f"doubt-{index}")),
        ]
    return fold("main", following)


ABOUT_THE_LAST: list[Fact] = [
    facts.MessagePlaced(session="main", run="run-9", place="front"),
    facts.RunBegan(session="main", run="run-9"),
    facts.MessageAbsorbed(session="main", run="run-8", into="run-9"),
    facts.WorkTaken(session="main", cycle="c", run="run-9", items=("item-9", "run-9")),
    facts.CycleOpened(session="main", cycle="c", run="run-9"),
    facts.CycleClosed(session="main", cycle="c", run="run-9", plan="made", requests=1),
    facts.WorkTaken(session="main", cycle="d", work="piece-9"),
    facts.CycleClosed(session="main", cycle="d", is_put_back=True),
    facts.RunFinished(session="main", run="run-7", end=End("error")),
    facts.MessageDropped(session="main", run="run-6"),
    facts.DoubtAnswered(session="main", doubt=doubt_of("doubt-9")),
    facts.RunFinished(session="main", run="run-9", end=End("ok")),
]


def test_what_an_addition_costs_does_not_depend_on_how_much_waits() -> None:
    def steps(number: int) -> int:
        state = _crowded(number)
        with Effort() as counted:
            fold("main", ABOUT_THE_LAST, state)
        return counted.steps

    assert steps(2_000) == steps(10)


@pytest.mark.parametrize("kind", KINDS)
def test_a_fact_of_a_run_or_cycle_that_is_over_changes_nothing_of_others(kind: type[Fact]) -> None:
    @settings(max_examples=20)
    @given(of_kind(kind))
    def check(fact: Fact) -> None:
        if kind is facts.MessageAccepted:
            return
        message = facts.MessageAccepted(session="main", item=Item("open", Perception("hello"), "run"))
        state = fold("main", [message, fact])
        assert state.runs["open"] == fold("main", [message]).runs["open"]

    check()


def test_a_ledger_drops_the_state_of_a_session_once_nothing_of_it_is_open_and_nobody_works_on_it() -> None:
    ledger = Ledger("a")
    ledger.journal = JournalInMemory()
    held = ledger.hold("held")
    for key in ("held", "free"):
        ledger.tell(facts.CallDoubted(session=key, doubt=doubt_of("c/1")))
    assert ledger.states.keys() == {"held", "free"}
    for key in ("held", "free"):
        ledger.tell(facts.DoubtAnswered(session=key, doubt=doubt_of("c/1")))
    assert ledger.states == {"held": held}
    ledger.release("held")
    assert not ledger.states


def test_work_that_is_handed_out_twice_does_not_keep_new_runs_waiting_once_it_was_taken() -> None:
    state = fold("main", [facts.MessageAccepted(session="main", item=Item("r", Perception("r"), "run"))])
    for is_suspect in (False, True):
        fold("main", [facts.WorkHandedOut(session="main", work="w", run="r", is_suspect=is_suspect)], state)
    assert (list(state.interrupted), list(state.suspects), state.runs["r"].pieces) == ([], ["w"], ("w",))
    fold("main", [facts.WorkTaken(session="main", cycle="c", run="r", work="w")], state)
    assert (state.interrupted_runs, state.runs["r"].pieces) == (0, ())


def test_a_fact_that_the_journal_refuses_changes_no_state_and_leads_to_nothing() -> None:
    class Full:
        def append(self, fact: facts.Fact, agent: str) -> None:
            raise OSError("no room")

    ledger, followed = Ledger("main"), list[facts.Fact]()
    ledger.following[facts.WorkChanged] = followed.append
    item = Item("i", Perception("x"))
    ledger.journal = Full()
    with pytest.raises(OSError, match="no room"):
        ledger.tell(facts.WorkChanged(session="main", item=item))
    assert (ledger.states, followed) == ({}, [])

    ledger.journal = JournalInMemory()
    ledger.tell(facts.WorkChanged(session="main", item=item))
    assert ledger.states["main"].items == {"i": item}
    assert len(followed) == 1
