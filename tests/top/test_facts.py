"""What `spar top` knows: made from events and answers, bounded, honest about what it lost."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from spar.service.feed import kinds_of
from spar.top import facts as module
from spar.top.facts import KINDS, WANTED, Picture
from spar.top.panels import LISTS


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def picture(clock: Clock) -> Picture:
    return Picture(clock, lambda: datetime.now(UTC))


def event(kind: str, session: str = "talk", run_id: str = "", **data: Any) -> dict[str, Any]:
    return {"seq": 1, "type": kind, "at": "2026-05-04T03:02:01Z", "agent": "main", "session": session, "cycle_id": "c",
            "run_id": run_id, "data": data}  # fmt: skip


def status(*lanes: dict[str, Any]) -> dict[str, Any]:
    return {"started_at": "2026-05-04T03:02:01Z", "agent": {"state": "running", "lanes": list(lanes)}}


def lane(key: str, phase: str | None = None, seconds: float = 0.0, waiting: int = 0) -> dict[str, Any]:
    return {"session": key, "phase": phase, "phase_seconds": seconds, "waiting": waiting, "waits_for_model": False}


def test_the_events_that_are_asked_for_are_there() -> None:
    assert len(kinds_of(frozenset(kind.__name__ for kind in WANTED))) >= len(WANTED)


def test_a_session_is_in_a_phase_since_it_began_and_rests_after_its_cycle(picture: Picture, clock: Clock) -> None:
    picture.apply(event("LoopStarted"))
    picture.apply(event("PhaseStarted", phase="plan"))
    clock.now += 93
    facts = picture.sessions["talk"]
    assert (facts.phase, clock.now - facts.since) == ("plan", 93)
    picture.apply(event("LoopCompleted", outcome="acted", duration=1.0, calls={}, deferred=""))
    assert (facts.phase, facts.since, facts.last) == ("", clock.now, "acted")


def test_a_status_corrects_what_events_said(picture: Picture, clock: Clock) -> None:
    picture.apply(event("PhaseStarted", "gone", phase="act"))
    picture.take_whole(clock.now + 1, status(lane("talk", "plan", 12.5), lane("next", None, 0, 3)))
    assert [(each.key, each.phase) for each in picture.by_activity()] == [("talk", "plan"), ("next", ""), ("gone", "")]
    assert clock.now - picture.sessions["talk"].since == 12.5


def test_a_run_is_written_anew_ends_and_is_known_by_its_answer(picture: Picture) -> None:
    picture.apply(event("RunAccepted", run_id="r1"))
    picture.apply(event("RunStarted", run_id="r1"))
    picture.apply(event("AssistantDelta", run_id="r1", text="once", reset=False))
    picture.apply(event("AssistantDelta", run_id="r1", text="twice", reset=True))
    picture.apply(event("CallStarted", run_id="r1", phase="start", call="c", tool="look", attempt=1))
    run = picture.runs["r1"]
    assert (run.state, run.text, run.doing) == ("running", "twice", "▸ look …")
    picture.apply(event("RunEnded", run_id="r1", status="ok", reply="thrice", error=""))
    assert (run.state, run.text, run.doing) == ("ok", "thrice", "")


def test_a_run_that_ended_unseen_goes_on_no_longer(picture: Picture) -> None:
    picture.apply(event("RunStarted", run_id="r1"))
    run = {"run_id": "r2", "session": "s", "status": "queued", "accepted_at": "2026-05-04T03:02:01Z",
           "started_at": None, "ended_at": None}  # fmt: skip
    picture.take_whole(101.0, status(), [run], [])
    assert {run.id: run.state for run in picture.runs.values()} == {"r1": "ended", "r2": "queued"}


def test_what_events_said_since_is_newer_than_an_answer(picture: Picture, clock: Clock) -> None:
    asked_at = clock.now
    clock.now += 1
    picture.apply(event("RunStarted", run_id="r1"))
    picture.apply(event("LoopCompleted", outcome="acted", duration=1.0, calls={}, deferred=""))
    picture.take_whole(asked_at, status(lane("talk", "plan", 12.5)), [], [])
    assert picture.sessions["talk"].phase == ""
    assert picture.runs["r1"].state == "running"


def test_lost_events_make_everything_be_asked_for_again(picture: Picture) -> None:
    picture.stale.clear()
    picture.apply(event("ApprovalRequested", phase="approval", call="c", tool="pay", state="requested"))
    assert picture.stale == {"records"}
    picture.apply(event("Gap", missed=None))
    assert picture.stale == {"whole", "status", "records", "cycles", "next"}
    assert picture.log[-1][2].endswith("events were missed")


def test_events_of_another_release_are_told_of_and_the_next_one_is_taken(picture: Picture) -> None:
    for odd in ({}, {"type": "PhaseStarted"}, event("PhaseStarted"), event("AssistantDelta", text=None, reset=False)):
        picture.apply(odd)
        assert picture.log[-1][2].startswith("an event cannot be read: ")
    picture.apply(event("PhaseStarted", phase="plan"))
    assert picture.sessions["talk"].phase == "plan"


def test_thousands_of_sessions_runs_and_lines_are_bounded_and_counted(
    picture: Picture, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SESSIONS", 2_000)  # ten times as many take seconds
    for number in range(module.SESSIONS + 500):
        clock.now += 1
        name = f"s{number}"
        picture.apply(event("PhaseStarted", name, phase="plan"))
        if number != 7:
            picture.apply(event("LoopCompleted", name, outcome="acted", duration=1.0, calls={}, deferred=""))
    assert len(picture.sessions) + picture.forgotten == module.SESSIONS + 500
    assert len(picture.sessions) <= module.SESSIONS
    assert "s7" in picture.sessions, "it is at work"
    assert picture.by_activity()[0].key == "s7"
    assert len(picture.log) == module.LINES
    picture.apply(event("RunStarted", run_id="long"))
    for number in range(module.RUNS * 2):
        picture.apply(event("RunEnded", run_id=f"r{number}", status="ok", reply="x" * 100_000, error=""))
    assert len(picture.runs) == module.RUNS
    assert "long" in picture.runs, "it goes on"
    assert max(len(run.text) for run in picture.runs.values()) == module.TEXT


def test_what_waits_for_people_has_approvals_first_and_the_oldest_first(picture: Picture) -> None:
    call = {"tool": "pay", "params": {"to": "\u202ebaker", "amount": 3}}
    picture.take_records(
        0.0,
        [{"id": "a2", "call": call, "asked_at": "2026-05-04T03:00:00Z"},
         {"id": "a1", "call": call, "asked_at": "2026-05-04T02:00:00Z"}],
        [{"id": "c/1", "call": call, "at": "2026-05-04T00:00:00Z"}],
        [{"id": "l1", "reason": "failed\nthree times", "at": "2026-05-04T01:00:00Z"}],
    )  # fmt: skip
    assert [row["id"] for _, row in picture.waiting] == ["a1", "a2", "c/1", "l1"]
    texts = [KINDS[kind].text(row) for kind, row in picture.waiting]
    assert texts[0] == "pay(to=\\u{202e}baker, amount=3)"
    assert texts[3] == "put aside: failed three times"


def recorded(cycle: str, at: str, **data: Any) -> dict[str, Any]:
    story = {
        "record": "…", "cycle": cycle, "session": "talk", "noticed": "inbox: a", "decided": "rule 'file'", "fault": "",
        "done": [{"tool": "note", "status": "ok"}], "started_at": at, "duration": 0.1, "outcome": "acted",
    }  # fmt: skip
    return {**event("CycleRecorded"), "data": story | data}


def test_a_cycle_that_has_ended_is_known_once_however_it_is_learnt(picture: Picture) -> None:
    row = {"session": "talk", "duration": 0.2, "outcome": "failed", "about": "no route"}
    rows = [
        {**row, "cycle_id": "two", "started_at": "2026-05-04T03:02:02Z", "calls": {"ok": 2, "failed": 1, "skipped": 0}},
        {**row, "cycle_id": "one", "started_at": "2026-05-04T03:02:01Z", "calls": None},
    ]
    picture.apply(recorded("one", "2026-05-04T03:02:01Z"))
    picture.take_cycles(0.0, rows)
    picture.apply(recorded("three", "2026-05-04T03:02:03Z", done=[{"tool": "pay", "status": "denied"}]))

    drawn = [LISTS["cycles"].pieces(cycle, 120, picture) for cycle in picture.cycles.values()]
    assert [(cycle.id, cycle.decided, ("✗ ", "bad") in pieces)
            for cycle, pieces in zip(picture.cycles.values(), drawn, strict=True)] == [
        ("one", "rule 'file'", False), ("two", "", True), ("three", "rule 'file'", True)
    ]  # fmt: skip
    assert picture.cycles["two"].done == (("2 calls", "ok"), ("1 call", "failed"))


def test_cycles_are_bounded_and_hostile_ones_are_harmless(picture: Picture, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(module.CYCLES + 9):
        picture.apply(recorded(str(number), "2026-05-04T03:02:01Z", noticed="\x1b[2J\u202e" * 300))
    assert len(picture.cycles) == module.CYCLES
    assert [*picture.cycles][-1] == str(module.CYCLES + 8)
    assert not {"\x1b", "\u202e"} & set(picture.cycles["9"].noticed)


def test_the_plan_of_a_run_tells_the_text_that_began_it(picture: Picture) -> None:
    picture.apply(event("RunStarted", run_id="r1"))
    picture.apply(event("PhaseStarted", phase="plan", noticed="what is the load?"))
    picture.apply(event("PhaseStarted", phase="plan", noticed="a correction"))
    assert picture.runs["r1"].began_by == "what is the load?"
    assert picture.sessions["talk"].noticed == "a correction"
    picture.apply(event("LoopCompleted", outcome="acted", duration=1.0, calls={}, deferred=""))
    assert picture.sessions["talk"].noticed == ""


def test_a_session_that_stands_at_a_breakpoint_is_not_taken_for_a_stuck_one(picture: Picture) -> None:
    picture.apply(event("PhaseStarted", phase="plan"))
    picture.apply(event("BreakpointReached", name="plan-1", stop="s1", where="after plan"))
    facts = picture.sessions["talk"]
    assert (facts.phase, facts.stands) == ("plan", "after plan")
    drawn = LISTS["now"].pieces(facts, 120, picture)
    assert "stands after plan" in drawn[-1][0]
    assert "bad" not in [tone for _, tone in drawn]
    picture.apply(event("BreakpointLeft", stop="s1", where="after plan", by="ada"))
    assert facts.stands == ""


def test_the_health_has_the_agreement_of_a_shadow(picture: Picture, clock: Clock) -> None:
    shadow = {"configuration": "other.toml", "agree": {"yes": 3, "no": 1, "unknown": 0}, "dropped": 0, "trouble": ""}
    picture.take_status(clock.now, {**status(), "shadow": shadow})
    rows = LISTS["health"].rows(picture)
    assert ("≈", "shadow other.toml: 75.0% of 4 decisions agree", "good") in rows
