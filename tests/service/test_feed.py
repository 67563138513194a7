"""The feed of live events: numbered, bounded, told of what it lost, and free while nobody reads."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from spar import events
from spar.bus.bus import Events
from spar.events import AssistantDelta, LoopCompleted, LoopStarted, PhaseCompleted, PhaseStarted, RunEnded, StateChanged
from spar.events.table import data_of
from spar.service import feed as module
from spar.service.feed import LINGER, Feed, FeedReader, kinds_of
from spar.testing import VirtualClock
from spar.types import Action, Call, CallResult, Fault

NONE: frozenset[type[events.Event]] = frozenset()


class Bus:
    """A bus with its feed, and what is published on it."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.events = Events("main", clock=self.clock)
        self.runs = {"r1": "talk"}
        self.feed = Feed(self.events, self.clock, lambda: [("c0", "early")], lambda run: self.runs.get(run, ""))

    def say(self, text: str, **more: Any) -> None:
        self.events.publish(AssistantDelta(run_id="r1", text=text, **more))

    def changes(self, number: int) -> None:
        for each in range(number):
            self.events.publish(StateChanged(old="", new=str(each)))

    def read(self, after: int | None = None, session: str | None = None, *names: str) -> FeedReader:
        return self.feed.read(after, kinds_of(frozenset(names)) if names else NONE, session)


async def test_nobody_listens_before_the_first_reader_nor_a_while_after_the_last() -> None:
    bus = Bus()
    async with bus.clock:
        assert not any(bus.events.wanted[kind] for kind in (LoopStarted, PhaseStarted, LoopCompleted))
        first, second = bus.read(), bus.read()
        assert bus.events.wanted[LoopStarted]
        first.close()
        first.close()
        await bus.clock.sleep(LINGER * 2)
        assert bus.events.wanted[LoopStarted], "one still reads"
        second.close()
        bus.changes(3)
        await bus.clock.sleep(LINGER / 2)
        again = bus.read(second.seen)
        assert [each.data["new"] for each in await again.some()] == ["0", "1", "2"], "it came back in time"
        again.close()
        await bus.clock.sleep(LINGER * 2)
        assert not bus.events.wanted[LoopStarted]
        late = bus.read(again.seen)
        gap = (await late.some())[0]
        assert (gap.type, gap.data) == ("Gap", {"missed": None}), "what nobody heard is not counted"
        bus.changes(1)
        assert [each.data for each in await late.some()] == [{"old": "", "new": "0"}]


async def test_numbers_grow_over_a_process_that_began_anew_in_the_same_second() -> None:
    bus = Bus()
    async with bus.clock:
        reader = bus.read()
        bus.changes(4)
        last = (await reader.some())[-1]
        await bus.clock.sleep(0.3)
        anew = Feed(bus.events, bus.clock, lambda: [], str)
        assert anew.seq > last.seq, "who asks for what came after the last is not told that it is still to come"


async def test_each_event_says_whose_it_is_and_numbers_grow() -> None:
    bus = Bus()
    reader = bus.read()
    call = Call("look", {"at": "x", "api_key": "very secret"}, id="k1")
    bus.events.publish(PhaseStarted(cycle_id="c0", phase="plan", session="early"))
    bus.events.publish(LoopStarted(cycle_id="c1", started_at=bus.clock.now(), session="night"))
    bus.events.publish(events.CallProposed(call=call, cycle_id="c1"))
    bus.events.publish(events.CallProposed(call=call, cycle_id="c0"))
    bus.events.publish(events.CallFailed(call=call, run_id="r1", cycle_id="?", result=CallResult(call, "failed")))
    bus.events.publish(LoopCompleted(cycle_id="c1", completed_at=bus.clock.now(), duration=1, outcome="acted",
                                     session="night"))  # fmt: skip
    bus.events.publish(events.CallProposed(call=call, cycle_id="c1"))
    seen = await reader.some()

    assert [each.session for each in seen] == ["early", "night", "night", "early", "talk", "night", ""]
    assert [each.seq for each in seen] == list(range(seen[0].seq, seen[0].seq + 7))
    assert seen[-1].seq < 1 << 53, "a browser's number holds it"
    assert seen[2].data == {"phase": "proposed", "call": "k1", "tool": "look", "params": {"at": "x", "api_key": "***"}}


async def test_a_slow_reader_is_told_how_many_events_it_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "EVENTS", 100)
    monkeypatch.setattr(module, "EVENTS_LEFT", 50)
    bus = Bus()
    reader = bus.read()
    bus.changes(251)
    seen = await reader.some()
    assert seen[0].type == "Gap"
    assert seen[0].data["missed"] + len(seen) - 1 == 251
    assert [each.seq for each in seen[1:]] == list(range(seen[0].seq + 1, seen[0].seq + len(seen)))


async def test_what_is_kept_is_bounded_in_bytes_too() -> None:
    bus = Bus()
    reader = bus.read()
    for _ in range(2_000):
        bus.events.publish(events.MessageSent(run_id="r1", session="talk", route="", text="x" * 50_000, kind="note"))
        assert bus.feed._size <= module.BYTES
    gap = (await reader.some())[0]
    assert gap.type == "Gap"


async def test_readers_choose_by_class_and_by_session_and_are_told_their_place() -> None:
    bus = Bus()
    calls, talk, nobody = bus.read(None, None, "CallEvent"), bus.read(None, "talk"), bus.read(None, "")
    bus.say("hello")
    bus.changes(5)
    bus.events.publish(events.CallProposed(call=Call("look", {}), run_id="r1"))
    assert [each.type for each in await calls.some()] == ["CallProposed"]
    assert [each.type for each in await talk.some()] == ["AssistantDelta", "CallProposed"]
    assert {each.type for each in await nobody.some()} == {"StateChanged"}

    before = calls.seen
    waiting = asyncio.create_task(calls.some())
    await asyncio.sleep(0)
    bus.changes(3)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert calls.seen == bus.feed.seq > before, "what does not concern it need not be looked through again"
    bus.events.publish(events.CallProposed(call=Call("look", {}), run_id="r1"))
    assert len(await waiting) == 1
    assert calls.seen == bus.feed.seq - 1, "what it is being given has not arrived yet"


async def test_pieces_of_an_answer_come_together_and_a_new_beginning_stands_alone() -> None:
    bus = Bus()
    reader = bus.read()
    for piece in ("once", " upon", " a time"):
        bus.say(piece)
    bus.say("no", reset=True)
    bus.say("", ends=True)
    bus.say("next")
    told_ = [(each.data["text"], each.data["reset"], each.data["ends"]) for each in await reader.some()]
    assert told_ == [("once upon a time", False, False), ("no", True, True), ("next", False, False)]


async def test_a_reader_that_is_far_behind_looks_at_each_event_once(monkeypatch: pytest.MonkeyPatch) -> None:
    bus = Bus()
    reader, looked = bus.read(), 0
    bus.changes(5_000)
    wants = FeedReader._wants

    def counted(self: FeedReader, *given: Any) -> bool:
        nonlocal looked
        looked += 1
        return wants(self, *given)

    monkeypatch.setattr(FeedReader, "_wants", counted)
    seen = 0
    while seen < 5_000:
        seen += len(await reader.some())
    assert looked <= 5_000 + 5_000 // module.AT_ONCE


@pytest.mark.parametrize("after", [0, 5, 1 << 60])
async def test_a_number_of_another_process_is_answered_with_a_gap_and_what_is_kept(after: int) -> None:
    bus = Bus()
    bus.read()
    bus.changes(2)
    assert [each.type for each in await bus.read(after).some()] == ["Gap", "StateChanged", "StateChanged"]


def test_what_is_large_or_secret_is_not_told() -> None:
    big = PhaseCompleted(cycle_id="c", phase="plan", output=Action(goal="g" * 10_000, calls=(Call("look", {}),)))
    assert data_of(big) == {"phase": "plan", "duration": 0.0, "goal": "g" * 299 + "…", "calls": 1}
    fault = Fault("error", "Authorization: Bearer abcdefghijkl\x1b[2J")
    shown = data_of(events.ErrorOccurred(cycle_id="c", phase="act", error=fault, exception=ValueError("x")))
    assert set(shown) == {"phase", "policy", "kind", "message"}
    assert "abcdefghijkl" not in shown["message"]
    assert "\x1b" not in shown["message"]
    assert len(data_of(RunEnded(run_id="r", status="ok", output="x" * 100_000))["output"]) < 10_000


def test_readers_ask_for_events_by_the_names_of_the_page_of_events() -> None:
    kinds = kinds_of(frozenset({"LoopStarted", "CallEvent", "BudgetEvent", "HealthAlert"}))
    assert {"CallFailed", "BudgetWarned", "HealthAlert"} <= {kind.__name__ for kind in kinds}
    with pytest.raises(ValueError, match="no event has this name; known: ApprovalExpired, ApprovalRequested"):
        kinds_of(frozenset({"Nothing"}))
    alert = data_of(events.HealthAlert(kind="stuck", severity="critical", message="plan hangs", alert_id="a1"))
    assert (alert["kind"], alert["severity"], alert["message"]) == ("stuck", "critical", "plan hangs")
    assert not {"session", "cycle_id", "seq"} & alert.keys()


async def test_an_event_that_cannot_be_told_is_told_of() -> None:
    bus = Bus()
    reader = bus.read()
    broken: Any = PhaseCompleted(cycle_id="c", phase="plan")
    nothing: Any = None
    bus.events.publish(events.ErrorOccurred(cycle_id="c", phase="plan", error=nothing))
    bus.events.publish(broken)
    assert [list(each.data) for each in await reader.some()] == [["untold"], ["phase", "duration"]]


async def test_an_event_wakes_a_few_readers_at_once_however_many_wait() -> None:
    bus = Bus()
    async with bus.clock:
        readers = [bus.read() for _ in range(500)]
        waiting = [asyncio.create_task(reader.some()) for reader in readers]
        for _ in range(3):
            await asyncio.sleep(0)
        bus.changes(12)  # a cycle of events
        for _ in range(10):
            await asyncio.sleep(0)
        assert sum(task.done() for task in waiting) == module.WOKEN

        await bus.clock.sleep(500 / module.WOKEN * module.THEN)
        assert {len(await task) for task in waiting} == {12}
        for reader in readers:
            reader.close()
