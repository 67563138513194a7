"""The tables of decisions: each names every case, and each case is decided as it says."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from typing import Any, get_args

import pytest

from spar.data.reply import End
from spar.decisions.finish import (
    BACKOFF,
    CONSEQUENCES,
    MOST_FAILURES,
    VERDICTS,
    Ending,
    Limits,
    Progress,
    Stage,
    consequence,
    judge,
    retry,
)
from spar.decisions.next_step import Turn, next_step
from spar.decisions.pause import PAUSES, Occasion, pause
from spar.decisions.place import PLACES, RoomRules, place
from spar.decisions.resume import ANSWERS, answered, notice_of, resumption
from spar.facts import (
    AgentPaused,
    CycleClosed,
    MessageAccepted,
    MessagePlaced,
    PlanOutcome,
    PutAside,
    RetryPlanned,
    WorkHandedOut,
)
from spar.records.journal import MOST_ATTEMPTS, Answer, Doubt, Item, Unfinished
from spar.state.apply import SessionState, apply, fold
from spar.state.work import RunState
from spar.types import QUEUE_MODES, Action, Call, Fault, Perception, QueueMode, replace

START = datetime(2026, 1, 1, tzinfo=UTC)


def test_each_table_names_every_case() -> None:
    assert CONSEQUENCES.keys() == set(get_args(Ending))
    assert all(row.keys() == set(get_args(Stage)) for row in CONSEQUENCES.values())
    assert VERDICTS.keys() == set(get_args(PlanOutcome))
    assert ANSWERS.keys() == set(get_args(Answer))
    assert PAUSES.keys() == set(get_args(Occasion))
    assert PLACES.keys() == set(itertools.product(QUEUE_MODES, (False, True)))


@pytest.mark.parametrize("mode", QUEUE_MODES)
def test_a_message_that_waits_already_is_no_work_that_keeps_itself_waiting(mode: QueueMode) -> None:
    state, item = SessionState("main"), Item("r", Perception("hello"), "run")
    for fact in (MessageAccepted(session="main", item=item), MessagePlaced(session="main", run="r", place="queue")):
        apply(state, fact)
    (placed,) = place(state, "r", mode, RoomRules(cap=1))
    assert isinstance(placed, MessagePlaced)
    assert (placed.run, placed.place, placed.outcome) == ("r", "queue", "")


@pytest.mark.parametrize("ending", get_args(Ending))
def test_interrupted_work_is_put_back_only_before_its_plan_and_never_when_people_called_it_off(ending: Ending) -> None:
    for progress, piece in itertools.product(get_args(Progress), ("", "item", "cycle")):
        what = consequence(progress, ending, piece)
        if what == "again":
            assert (progress, bool(piece)) == ("noticing", True)
            assert ending != "called off"
        if progress == "acting":  # what was attempted is not attempted again
            assert what == ("next start" if ending == "stopped" else "done")


@pytest.mark.parametrize("attempts", range(1, MOST_ATTEMPTS + 2))
def test_failed_work_waits_twice_as_long_each_time_and_is_put_aside_after_the_last_attempt(attempts: int) -> None:
    item = Item("p", Perception("p"), attempts=attempts, fault=Fault("failed", "it broke"))
    fact = retry(item, START)
    if attempts < MOST_ATTEMPTS:
        due_at = START + timedelta(seconds=BACKOFF.delay(attempts))
        assert fact == RetryPlanned(session="main", item=replace(item, due_at=due_at))
    else:
        reason = f"{attempts} attempts failed; the last: it broke"
        assert fact == PutAside(session="main", item=item, reason=reason)


def closed(plan: PlanOutcome, **fields: Any) -> CycleClosed:
    return CycleClosed(session="main", cycle="c", run="r", plan=plan, **fields)


CASES = {
    "an answer": ({}, closed("made", answers=True, output="hi"), {}, End("ok", output="hi")),
    "no answer, but the last one": ({"output": "before"}, closed("made", answers=True), {},
                                    End("ok", output="before")),
    "calls alone": ({}, closed("made"), {}, None),
    "an answer about failed calls": ({}, closed("made", answers=True, output="hi", has_failed=True), {}, None),
    "a second answer about them": ({"verifies": False}, closed("made", answers=True, output="hi", has_failed=True), {},
                                   End("ok", output="hi")),
    "a failed plan": ({}, closed("failed", error="down"), {}, None),
    "the last of several failed plans": ({"failures": MOST_FAILURES - 1}, closed("failed", error="down"), {},
                                         End("error", "down")),
    "a plan that must not be tried again": ({}, closed("failed", error="no", is_final=True), {}, End("error", "no")),
    "a refusal": ({}, closed("refused", error="a hook refused it"), {}, End("error", "a hook refused it")),
    "an actor that must not go on": ({"output": "so far"}, closed("barred", error="denied"), {},
                                     End("error", "denied", "so far")),
    "a stop of the agent": ({}, closed("cut"), {"timeout": 1.0}, None),
    "an abort": ({}, closed("cut", error="aborted"), {}, End("error", "aborted")),
    "a provider that is waited for": ({}, closed("deferred", error="busy", waits=5.0), {"patience": 6.0}, None),
    "no more patience": ({"waited": 3.0}, closed("deferred", error="busy", waits=5.0), {"patience": 6.0},
                         End("error", "waited for 8 s (runs.patience): busy")),
    "nothing yet": ({}, closed("none"), {}, None),
    "a time limit": ({}, closed("none"), {"timeout": 10.0}, End("error", "took longer than 10 s")),
    "a limit of calls": ({"used": {"calls": 2}, "output": "so far"}, closed("made", calls=1),
                         {"most": {"calls": 3}},
                         End("error", "it took 3 calls, and a run may take 3 (runs.calls)", "so far")),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_run_ends_as_its_verdict_says(name: str) -> None:
    fields, fact, limits, end = CASES[name]
    assert judge(RunState(Perception("go"), **fields), fact, elapsed=20.0, limits=Limits(**limits)) == end


def state_with(**fields: Any) -> SessionState:
    runs = {name: RunState(Perception(name), place="queue") for name in ("r", "w", "i")}
    return SessionState("main", runs=runs, **fields)


def piece(work: str, **fields: Any) -> WorkHandedOut:
    return WorkHandedOut(session="main", work=work, **fields)


def pieces(*handed_out: WorkHandedOut) -> dict[str, Any]:
    state = fold("main", handed_out)
    return {"interrupted": state.interrupted, "suspects": state.suspects, "interrupted_runs": state.interrupted_runs}


WAITING = type(SessionState("main").waiting)({"w": None})
OF_RUN, OF_NONE = piece("x", run="i", cycle=Unfinished("x", "main")), piece("y")
SUSPECT, SUSPECT_RUN = piece("z", is_suspect=True), piece("z", run="i", is_suspect=True)
STEPS = {
    "nothing": ({}, Turn(), "rest"),
    "a perception": ({"pushed": {"p": Perception("p")}}, Turn(may_begin=False), "begin"),
    "a message": ({"waiting": WAITING}, Turn(), "begin"),
    "a message without a slot": ({"waiting": WAITING}, Turn(may_begin=False), "slot"),
    "a message that others may join": ({"waiting": WAITING}, Turn(quiet=1.0), "quiet"),
    "a run": ({"run": "r"}, Turn(), "continue"),
    "a run and a message": ({"run": "r", "waiting": WAITING}, Turn(), "continue"),
    "resumable calls": ({}, Turn(is_resuming=True), "continue"),
    "an interrupted run": (pieces(OF_RUN), Turn(), "begin"),
    "an interrupted run without a slot": (pieces(OF_RUN), Turn(may_begin=False), "slot"),
    "an interrupted run before a message": ({"waiting": WAITING, **pieces(OF_RUN)}, Turn(may_begin=False), "slot"),
    "interrupted work of no run": (pieces(OF_NONE), Turn(may_begin=False), "begin"),
    "an interrupted run beside the current one": ({"run": "r", **pieces(OF_RUN)}, Turn(), "continue"),
    "a suspect": (pieces(SUSPECT), Turn(), "begin"),
    "a suspect while another is tried": (pieces(SUSPECT), Turn(may_try=lambda work: False), "rest"),
    "a message behind a suspect run while another is tried": (
        {"waiting": WAITING, **pieces(SUSPECT_RUN)},
        Turn(may_try=lambda work: False),
        "rest",
    ),
}


@pytest.mark.parametrize("name", STEPS)
def test_a_session_does_next_what_its_work_demands(name: str) -> None:
    fields, turn, step = STEPS[name]
    assert next_step(state_with(**fields), turn) == step


@pytest.mark.parametrize(
    ("fields", "attempts", "has_run", "what"),
    [
        ({"action": Action()}, 1, True, "continue"),
        ({"action": Action()}, MOST_ATTEMPTS, True, "split"),
        ({}, 1, True, "split"),
        ({"action": Action()}, 1, False, "over"),
        ({"action": Action(), "is_stepped": True}, 1, True, "over"),
    ],
)
def test_an_interrupted_cycle_continues_once_it_had_planned(
    fields: dict[str, Any], attempts: int, has_run: bool, what: str
) -> None:
    assert resumption(Unfinished("c", "main", **fields), attempts, has_run=has_run) == what


@pytest.mark.parametrize("answer", get_args(Answer))
def test_of_a_call_in_doubt_the_planner_is_told_or_a_cycle_makes_it_again_as_it_was_started(answer: Answer) -> None:
    planned, started = Call("pay", {"amount": "†x"}, id="c"), Call("pay", {"amount": 7}, id="c")
    doubt = Doubt("1/c", planned, "1", "shop", at=START, why="cut off", action_id="a")
    assert (notice_of(doubt).kind, notice_of(doubt).text) == ("call.in_doubt", "call c of pay is in doubt: cut off")
    doubt = replace(doubt, answer=answer, answered_by="ann", output=1)
    fact, notice = answered(doubt, started, lambda: "2"), notice_of(doubt)
    assert (fact.session, fact.doubt) == ("shop", doubt)
    assert (notice.kind, notice.text) == (f"call.{answer}", f"call c of pay was in doubt: ann says {answer}")
    assert notice.attributes == {"doubt": "1/c", "tool": "pay", "answer": answer, "output": 1}
    if answer != "again":
        assert fact.again is None
        return
    assert (fact.again.id, fact.again.session, fact.again.perceptions[0].kind) == ("2", "shop", "call.again")
    assert (fact.again.action.calls, fact.again.action.id, fact.again.action.trust) == ((started,), "a", "trusted")


@pytest.mark.parametrize(("occasion", "is_paused"), [*itertools.product(PAUSES, (False, True))])
def test_a_pause_begins_and_ends_where_it_is_asked_for_and_outlives_a_service_and_its_next_start(
    occasion: Occasion, is_paused: bool
) -> None:
    fact = pause(occasion, START, is_paused=is_paused)

    becomes_paused = is_paused if fact is None else isinstance(fact, AgentPaused)
    asked_for = {"pause": True, "resume": False, "start": False, "end": False}
    assert becomes_paused is asked_for.get(occasion, is_paused)
    assert fact is None or (fact.at, fact.session, becomes_paused) == (START, "", not is_paused)
