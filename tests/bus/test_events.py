"""Events: what is told, in which order, to whom, and that telling neither fails nor waits."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import warnings
from datetime import UTC, timedelta
from typing import Any

import blinker
import pytest

from spar import Agent
from spar.bus.bus import Events
from spar.events import (
    Event,
    Gap,
    LoopCompleted,
    LoopPhaseCompleted,
    LoopPhaseStarted,
    LoopStarted,
    PhaseCompleted,
    PhaseStarted,
    StateChanged,
)
from spar.testing import VirtualClock
from spar.types import Action, ActionResult, Call, Perception, Reflection


class Tell(Event):
    """An event of these tests."""

    number: int = 0


class TellMore(Tell):
    """A subclass of it."""


async def sense() -> list[Perception]:
    return [Perception("the disk is full")]


async def plan(perceptions: list[Perception]) -> Action:
    return Action([Call("clean")])


async def act(action: Action) -> ActionResult:
    return ActionResult(action)


async def reflect(result: ActionResult) -> Reflection:
    return Reflection(result)


GOOD: dict[str, Any] = {"sense": sense, "plan": plan, "act": act, "reflect": reflect}


# -- the events of one cycle --------------------------------------------------------------------------------


def test_the_longer_names_are_the_same_classes() -> None:
    assert LoopPhaseStarted is PhaseStarted
    assert LoopPhaseCompleted is PhaseCompleted


# -- stamps -------------------------------------------------------------------------------------------------


async def test_every_event_has_agent_increasing_seq_and_aware_utc_time(clock: VirtualClock) -> None:
    agent = Agent(**GOOD, name="watchman", loop_interval=1.0, clock=clock)
    seen: list[Event] = []
    agent.events.subscribe(Event, seen.append)
    for _ in range(2):
        async with agent:
            await clock.sleep(3.5)
    assert {event.agent for event in seen} == {"watchman"}
    assert all(event.at is not None and event.at.tzinfo is UTC for event in seen)
    numbers = [event.seq for event in seen]
    assert numbers == sorted(set(numbers))
    times = [event.at for event in seen]
    assert times == sorted(times)  # type: ignore[type-var]
    assert sum(isinstance(event, StateChanged) and event.new == "stopped" for event in seen) == 2


def test_an_event_that_already_has_a_time_keeps_it() -> None:
    events = Events("a")
    at = events.clock.now() - timedelta(hours=1)
    event = Tell(at=at)
    events.publish(event)
    assert event.at == at
    assert event.seq == 1


# -- subscribing --------------------------------------------------------------------------------------------


def test_subscribe_returns_a_handle_that_unsubscribes_when_called_and_again() -> None:
    events, seen = Events(), []
    unsubscribe = events.subscribe(Tell, seen.append)
    events.publish(Tell(number=1))
    unsubscribe()
    unsubscribe()
    events.publish(Tell(number=2))
    assert [event.number for event in seen] == [1]
    assert events.subscriptions == ()


async def test_agent_on_is_a_decorator_too(clock: VirtualClock) -> None:
    agent, seen = Agent(**GOOD, loop_interval=1.0, clock=clock), []

    @agent.on(LoopCompleted)
    async def handler(event: LoopCompleted) -> None:
        seen.append(event.outcome)

    async with agent:
        await clock.sleep(1.5)
    assert seen == ["acted", "acted"]
    assert asyncio.iscoroutinefunction(handler)


def test_a_handler_of_a_class_gets_its_subclasses_and_no_others() -> None:
    events, all_of_them, tells, more = Events(), [], [], []
    events.subscribe(Event, all_of_them.append)
    events.subscribe(Tell, tells.append)
    events.subscribe(TellMore, more.append)
    for event in (Gap(missed=1), Tell(), TellMore()):
        events.publish(event)
    assert [type(event) for event in all_of_them] == [Gap, Tell, TellMore]
    assert [type(event) for event in tells] == [Tell, TellMore]
    assert [type(event) for event in more] == [TellMore]


@pytest.mark.parametrize("kind", ["LoopStarted", None, int, LoopStarted(cycle_id="c", started_at=None)])  # type: ignore[arg-type]
def test_what_is_no_class_of_events_cannot_be_subscribed_to(kind: Any) -> None:
    events = Events()
    for ask in (lambda: events.subscribe(kind, print), lambda: events.stream(kind), lambda: events.signal(kind)):
        with pytest.raises(TypeError, match="by their class"):
            ask()


def test_a_handler_that_cannot_be_called_and_a_buffer_that_holds_nothing_are_refused() -> None:
    events = Events()
    with pytest.raises(TypeError, match="must be callable"):
        events.subscribe(Tell, 3)  # type: ignore[arg-type]
    for buffer in (0, -1):
        with pytest.raises(ValueError, match="at least one event"):
            events.subscribe(Tell, print, buffer=buffer)
        with pytest.raises(ValueError, match="at least one event"):
            events.stream(Tell, buffer=buffer)
    assert events.subscriptions == ()


def test_closures_and_bound_methods_are_held_strongly() -> None:
    events, seen = Events(), []

    class Keeper:
        def note(self, event: Tell) -> None:
            seen.append(event.number)

    def connect() -> None:
        events.subscribe(Tell, lambda event: seen.append(-event.number))
        events.subscribe(Tell, Keeper().note)

    connect()
    gc.collect()
    events.publish(Tell(number=5))
    assert sorted(seen) == [-5, 5]


def test_while_an_event_is_told_handlers_may_come_for_the_next_one_and_go_at_once() -> None:
    events, seen = Events(), []
    handles: list[Any] = []

    def first(event: Tell) -> None:
        seen.append(("first", event.number))
        for unsubscribe in handles:
            unsubscribe()
        events.subscribe(Tell, lambda late: seen.append(("late", late.number)))

    handles.append(events.subscribe(Tell, first))
    handles.append(events.subscribe(Tell, lambda event: seen.append(("gone", event.number))))
    events.publish(Tell(number=1))
    events.publish(Tell(number=2))
    assert seen == [("first", 1), ("late", 2)]


async def test_what_is_published_from_within_a_handler_reaches_streams_and_queues_in_order() -> None:
    events = Events()
    inline: list[int] = []
    queued: list[int] = []

    def answer(event: Tell) -> None:
        inline.append(event.seq)
        if event.number == 0:
            events.publish(TellMore(number=1))

    async def later(event: Tell) -> None:
        queued.append(event.seq)

    events.subscribe(Tell, answer)
    events.subscribe(Tell, later)
    read = events.stream(Tell)
    events.publish(Tell())
    await events.drain()
    read.close()
    assert inline == queued == [1, 2]
    assert [event.seq async for event in read] == [1, 2]
    events.close()


def test_a_handler_that_publishes_without_end_breaks_neither_publishing_nor_the_others() -> None:
    events, seen = Events(), []
    events.subscribe(Tell, seen.append)
    events.subscribe(Tell, lambda event: events.publish(Tell()))
    events.publish(Tell(number=1))
    assert seen[0].number == 1
    assert events.handler_errors > 0


async def test_a_handler_that_stops_the_agent_ends_it_after_the_cycle_in_hand(clock: VirtualClock) -> None:
    agent, outcomes = Agent(**GOOD, loop_interval=1.0, clock=clock), []

    @agent.on(PhaseCompleted)
    async def stop(event: PhaseCompleted) -> None:
        await agent.stop()

    agent.events.subscribe(LoopCompleted, lambda event: outcomes.append(event.outcome))
    async with asyncio.timeout(10):
        await agent.run()
    assert agent.state == "stopped"
    assert outcomes == ["acted"]


# -- handlers that fail -------------------------------------------------------------------------------------


def heard_failures(events: Events) -> list[tuple[str, str, bool]]:
    failures: list[tuple[str, str, bool]] = []
    events.on_handler_error = lambda name, error, off: failures.append((name, repr(error), off))
    return failures


def bad_handler(event: Event) -> None:
    raise RuntimeError("no")


def test_ten_failures_in_a_row_are_told_by_name_and_turn_a_handler_off_and_the_others_hear_the_events() -> None:
    events, seen = Events(), []
    failures = heard_failures(events)
    handle = events.subscribe(Tell, bad_handler)
    unsubscribe = events.subscribe(Tell, seen.append)
    for _ in range(15):
        events.publish(Tell())
    assert len(seen) == 15
    assert failures == [("bad_handler", "RuntimeError('no')", off) for off in [False] * 9 + [True]]
    assert (handle.is_off, events.handler_errors) == (True, 10)
    unsubscribe()
    assert events.subscriptions == ()
    assert not events.wanted[Tell]


def test_a_success_in_between_begins_the_count_anew() -> None:
    events = Events()

    def moody(event: Tell) -> None:
        if event.number % 10:
            raise RuntimeError("no")

    handle = events.subscribe(Tell, moody)
    for number in range(1, 100):
        events.publish(Tell(number=number))
    assert not handle.is_off
    assert handle.delivered == 9
    assert events.handler_errors == 90


async def test_a_raising_async_handler_is_isolated_and_turned_off_as_well() -> None:
    events = Events()
    failures = heard_failures(events)

    async def bad(event: Tell) -> None:
        raise ValueError(str(event.number))

    handle = events.subscribe(Tell, bad)
    for number in range(15):
        events.publish(Tell(number=number))
    await events.drain()
    assert [off for _, _, off in failures] == [False] * 9 + [True]
    assert failures[0][0].endswith("bad")
    assert handle.is_off
    events.publish(Tell())


class Strange(BaseException):
    """What no handler should raise."""


@pytest.mark.parametrize("error", [Strange(), asyncio.CancelledError(), GeneratorExit()])
async def test_strange_exceptions_of_handlers_are_isolated(error: BaseException) -> None:
    events, seen = Events(), []
    failures = heard_failures(events)

    def inline(event: Tell) -> None:
        raise error

    async def queued(event: Tell) -> None:
        raise Strange if isinstance(error, GeneratorExit) else error

    events.subscribe(Tell, inline)
    events.subscribe(Tell, queued)
    events.subscribe(Tell, seen.append)
    for _ in range(2):
        events.publish(Tell())
    await events.drain()
    assert len(seen) == 2
    assert len(failures) == 4
    events.close()


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_what_ends_the_process_passes_through_a_handler(error: type[BaseException]) -> None:
    events = Events()

    def end(event: Tell) -> None:
        raise error

    events.subscribe(Tell, end)
    with pytest.raises(error):
        events.publish(Tell())


def test_an_error_that_cannot_even_be_shown_does_not_make_publishing_fail(clock: VirtualClock) -> None:
    class Unspeakable(Exception):
        def __repr__(self) -> str:
            raise RuntimeError("no words")

        __str__ = __repr__

    agent = Agent(clock=clock)

    def bad(event: Event) -> None:
        raise Unspeakable

    agent.events.subscribe(Tell, bad)
    agent.events.publish(Tell())
    assert agent.events.handler_errors == 1


# -- async handlers -----------------------------------------------------------------------------------------


async def test_an_async_handler_has_a_bounded_queue_and_loses_the_oldest_with_a_count_that_stays() -> None:
    events, seen = Events(), []
    gate = asyncio.Event()

    async def slow(event: Tell) -> None:
        await gate.wait()
        seen.append(event.number)

    handle = events.subscribe(Tell, slow, buffer=3)
    for number in range(10):
        events.publish(Tell(number=number))
    assert handle.dropped == 7
    gate.set()
    await events.drain()
    assert seen == [7, 8, 9]
    for _ in range(2):
        handle()
    assert events.dropped == 7


async def test_a_slow_async_handler_never_slows_the_loop(clock: VirtualClock) -> None:
    agent = Agent(**GOOD, loop_interval=1.0, clock=clock)
    agent.events.subscribe(LoopCompleted, lambda event: clock.sleep(1000))

    @agent.on(LoopCompleted)
    async def slow(event: LoopCompleted) -> None:
        await clock.sleep(1000)

    async with agent:
        await clock.sleep(10.5)
        assert agent.stats.total_cycles == 11


async def test_async_handlers_see_events_one_by_one_in_order() -> None:
    events, seen = Events(), []

    async def handler(event: Tell) -> None:
        seen.append(("in", event.number))
        await asyncio.sleep(0)
        seen.append(("out", event.number))

    events.subscribe(Tell, handler)
    for number in range(3):
        events.publish(Tell(number=number))
    await events.drain()
    assert seen == [(way, number) for number in range(3) for way in ("in", "out")]
    events.close()


async def test_an_object_with_an_async_call_and_a_lambda_that_returns_a_coroutine_are_awaited() -> None:
    events = Events()
    queue: asyncio.Queue[Tell] = asyncio.Queue()

    class Handler:
        async def __call__(self, event: Tell) -> None:
            await queue.put(event)

    events.subscribe(Tell, Handler())
    events.subscribe(Tell, lambda event: queue.put(event))
    events.publish(Tell(number=4))
    async with asyncio.timeout(30):
        assert [(await queue.get()).number for _ in range(2)] == [4, 4]
    events.close()


async def test_a_failure_of_such_a_coroutine_is_told_of_like_any_other() -> None:
    events = Events()
    failures = heard_failures(events)

    async def fail() -> None:
        raise RuntimeError("late")

    events.subscribe(Tell, lambda event: fail())
    events.publish(Tell())
    for _ in range(5):
        await asyncio.sleep(0)
    assert [error for _, error, _ in failures] == ["RuntimeError('late')"]


async def test_stopping_lets_async_handlers_see_the_last_event_and_they_hear_the_next_start(
    clock: VirtualClock,
) -> None:
    agent, seen = Agent(clock=clock), []

    @agent.on(StateChanged)
    async def handler(event: StateChanged) -> None:
        await clock.sleep(0.25)
        seen.append(event.new)

    for _ in range(2):
        async with agent:
            await clock.sleep(1)
    assert seen == ["running", "stopping", "stopped"] * 2


def test_publishing_where_no_loop_runs_keeps_the_event_for_an_async_handler() -> None:
    events, seen = Events(), []

    async def handler(event: Tell) -> None:
        seen.append(event.number)

    events.subscribe(Tell, handler)
    events.publish(Tell(number=1))

    async def later() -> None:
        events.publish(Tell(number=2))
        await events.drain()
        events.close()

    asyncio.run(later())
    assert seen == [1, 2]


async def test_an_async_handler_whose_task_was_ended_before_it_began_hears_of_the_next_event() -> None:
    events, seen = Events(), []

    async def hear(event: Tell) -> None:
        seen.append(event.number)

    events.subscribe(Tell, hear)
    events.publish(Tell(number=1))
    events.close()
    for _ in range(3):
        await asyncio.sleep(0)
    assert seen == []

    events.publish(Tell(number=2))
    await events.drain()

    assert seen == [1, 2]
    events.close()


async def test_unsubscribing_an_async_handler_ends_its_task_and_drops_its_queue() -> None:
    events, seen = Events(), []
    started = asyncio.Event()

    async def slow(event: Tell) -> None:
        started.set()
        seen.append(event.number)
        await asyncio.sleep(3600)

    before = asyncio.all_tasks()
    unsubscribe = events.subscribe(Tell, slow)
    for number in range(3):
        events.publish(Tell(number=number))
    await started.wait()
    unsubscribe()
    for _ in range(5):
        await asyncio.sleep(0)
    assert seen == [0]
    assert asyncio.all_tasks() == before


def test_the_vocabulary_and_the_phases_do_without_the_bus() -> None:
    phases = "acting.executor perception.sense planning.rules reflection.reflect memory.store"
    code = f"import sys, spar.events, {', '.join(phases.split())}; print('blinker' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert found.stdout.strip() == "False"


# -- streams ------------------------------------------------------------------------------------------------


async def test_a_stream_gives_each_event_of_its_types_once_from_when_it_is_made_and_all_without_types() -> None:
    events = Events()
    everything, tells = events.stream(), events.stream(Tell, TellMore, Tell)
    for event in (TellMore(), Tell(), Gap(missed=0)):
        events.publish(event)
    for read in (everything, tells):
        read.close()
    assert [type(event) async for event in everything] == [TellMore, Tell, Gap]
    assert [type(event) async for event in tells] == [TellMore, Tell]


async def test_a_slow_stream_finds_a_gap_where_events_were_lost() -> None:
    events = Events("watchman")
    read = events.stream(Tell, buffer=3)
    for number in range(10):
        events.publish(Tell(number=number))
    read.close()
    gap, *rest = [event async for event in read]
    assert isinstance(gap, Gap)
    assert gap.missed == 7
    assert gap.agent == "watchman"
    assert gap.seq == 7
    assert gap.at is not None
    assert [event.number for event in rest if isinstance(event, Tell)] == [7, 8, 9]
    assert events.dropped == 7


async def test_a_waiting_reader_is_woken_and_may_be_cancelled() -> None:
    events = Events()
    read = events.stream(Tell)
    waiting = asyncio.create_task(anext(read))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    assert waiting.cancelled()
    waiting = asyncio.create_task(anext(read))
    await asyncio.sleep(0)
    events.publish(Tell(number=3))
    event = await waiting
    assert isinstance(event, Tell)
    assert event.number == 3
    read.close()


async def test_a_stream_ends_when_the_agent_stops_after_its_last_event(clock: VirtualClock) -> None:
    agent = Agent(clock=clock)
    read = agent.events.stream(StateChanged)

    async def follow() -> list[str]:
        return [event.new async for event in read if isinstance(event, StateChanged)]

    following = asyncio.create_task(follow())
    async with agent:
        await clock.sleep(1)
    async with asyncio.timeout(5):
        assert await following == ["running", "stopping", "stopped"]
    assert agent.events.subscriptions == ()


async def test_a_stream_is_closed_at_the_end_of_its_context_and_when_it_is_forgotten() -> None:
    events = Events()
    async with events.stream(Tell):
        assert events.wanted[Tell]
    assert not events.wanted[Tell]
    read = events.stream(Tell)
    del read
    gc.collect()
    assert events.subscriptions == ()
    assert not events.wanted[Tell]


# -- blinker ------------------------------------------------------------------------------------------------


def test_signal_is_the_blinker_signal_whose_receivers_are_called_by_its_convention_until_they_go() -> None:
    events, seen = Events("watchman"), []

    def receiver(sender: str, *, event: Tell) -> None:
        seen.append((sender, event.number))

    signal = events.signal(Tell)
    assert isinstance(signal, blinker.Signal)
    assert events.signal(Tell) is signal
    for number, sender in enumerate(("somebody else", "watchman")):
        signal.connect(receiver, sender=sender)
        assert events.wanted[Tell]
        events.publish(Tell(number=number))
    assert seen == [("watchman", 1)]
    signal.disconnect(receiver)
    assert not events.wanted[Tell]


def test_sending_a_signal_by_hand_reaches_subscriptions_too() -> None:
    events, seen = Events("watchman"), []
    events.subscribe(Tell, seen.append)
    events.signal(Tell).send("watchman", event=Tell(number=9))
    assert [event.number for event in seen] == [9]


def test_a_subscription_hears_a_published_event_once_beside_strangers() -> None:
    events, seen, strange = Events(), [], []

    def receiver(sender: str, *, event: Event) -> None:
        strange.append(event)

    events.subscribe(Tell, seen.append)
    events.signal(Event).connect(receiver)
    events.signal(Tell).connect(receiver)
    events.publish(Tell())
    assert len(seen) == 1
    assert len(strange) == 2


def test_a_weak_receiver_that_died_is_not_called_and_its_events_are_not_made_any_more() -> None:
    events, seen = Events(), []

    def connect() -> None:
        def receiver(sender: str, *, event: Tell) -> None:
            seen.append(event.number)

        events.signal(Tell).connect(receiver)
        events.publish(Tell(number=1))
        del receiver

    connect()
    gc.collect()
    events.publish(Tell(number=2))
    assert seen == [1]
    assert not events.wanted[Tell]


def test_a_raising_receiver_is_isolated_by_name_and_turned_off_after_ten_failures() -> None:
    events, seen = Events(), []
    failures = heard_failures(events)

    class Watcher:
        def receive(self, sender: str, *, event: Tell) -> None:
            raise RuntimeError("no")

    watcher = Watcher()
    events.signal(Tell).connect(watcher.receive)
    events.subscribe(Tell, seen.append)
    for _ in range(15):
        events.publish(Tell())
    assert len(seen) == 15
    assert failures[0][0].endswith("Watcher.receive")
    assert [off for _, _, off in failures] == [False] * 9 + [True]


async def test_an_async_receiver_is_awaited_and_its_failure_told_of() -> None:
    events, seen = Events(), []
    failures = heard_failures(events)

    async def good(sender: str, *, event: Tell) -> None:
        seen.append(event.number)

    async def bad(sender: str, *, event: Tell) -> None:
        raise RuntimeError("late")

    events.signal(Tell).connect(good)
    events.signal(Tell).connect(bad)
    events.publish(Tell(number=1))
    for _ in range(5):
        await asyncio.sleep(0)
    assert seen == [1]
    assert [name.split(".")[-1] for name, _, _ in failures] == ["bad"]


# -- nobody listens -----------------------------------------------------------------------------------------


def test_listeners_follow_those_who_come_and_go() -> None:
    events = Events()
    assert not events.listeners(TellMore)
    handles = [events.subscribe(kind, print) for kind in (Event, Tell, TellMore)]
    for handle in handles:
        assert events.listeners(TellMore)
        handle()
    assert not events.listeners(TellMore)
    assert not events.wanted[TellMore]


async def test_an_event_that_nobody_wants_is_not_even_made(clock: VirtualClock) -> None:
    agent = Agent(**GOOD, loop_interval=1.0, clock=clock)
    async with agent:
        await clock.sleep(5.5)
        made = agent.events.seq
        assert agent.stats.outcomes["acted"] == 6
    assert made == 1  # StateChanged: it is published once, and costs nothing in a cycle


async def test_nothing_is_left_of_handlers_and_streams_when_the_agent_has_stopped(clock: VirtualClock) -> None:
    before = asyncio.all_tasks()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        agent = Agent(**GOOD, loop_interval=1.0, clock=clock)

        @agent.on(LoopCompleted)
        async def hang(event: LoopCompleted) -> None:
            await clock.sleep(1e6)

        read = agent.events.stream()
        async with agent:
            await clock.sleep(3)
        await clock.sleep(1)
        assert asyncio.all_tasks() == before
        assert read is not None
        gc.collect()


async def test_who_hears_what_comes_after_the_end_waits_for_no_more() -> None:
    """A call that was left behind ends after the agent: what it tells is heard, and no task is left over."""
    events, heard = Events("main"), []

    async def hear(event: Event) -> None:
        heard.append(event.seq)

    events.subscribe(Event, hear)
    events.publish(Event())
    await events.drain()
    events.close()
    before = asyncio.all_tasks()
    for _ in range(2):
        events.publish(Event())
        await asyncio.sleep(0)
        events.publish(Event())
        for _ in range(3):
            await asyncio.sleep(0)
        assert asyncio.all_tasks() <= before

    events.open()
    events.publish(Event())
    await events.drain()
    assert heard == [1, 2, 3, 4, 5, 6]
    assert len(asyncio.all_tasks() - before) == 1
    events.close()
