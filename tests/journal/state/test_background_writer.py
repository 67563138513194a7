"""The background writer: it never delays a cycle, keeps the order, tries again, and loses nothing silently."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from spar import Agent
from spar.bus.bus import Events
from spar.clock import SystemClock
from spar.errors import PermanentError, TransientError
from spar.events import ErrorOccurred, Event, ExperienceStored
from spar.journal.state.background_writer import ATTEMPTS, QUEUE_LIMIT, STORE_WITHIN, BackgroundWriter
from spar.testing import (
    Hang,
    RecordingStore,
    ScriptedActor,
    ScriptedPlanner,
    ScriptedReflector,
    ScriptedSense,
    VirtualClock,
)
from spar.types import Call, Experience, Reflection


class Shelf:
    """A store that keeps situations in order, after what `before(situation)` does."""

    def __init__(self, before: Any = None) -> None:
        self.kept: list[str] = []
        self.attempts: list[str] = []
        self._before = before

    async def store(self, experience: Experience) -> None:
        self.attempts.append(experience.situation)
        if self._before is not None:
            await self._before(experience.situation)
        self.kept.append(experience.situation)


def kept(store: Any, clock: VirtualClock) -> tuple[BackgroundWriter, list[Event]]:
    events = Events("watchman", clock=clock)
    seen: list[Event] = []
    events.subscribe(Event, seen.append)
    return BackgroundWriter(store, events, clock), seen


def fails(*errors: BaseException) -> Any:
    """Raises these one by one, then nothing more."""
    left = list(errors)

    async def before(situation: str) -> None:
        if left:
            raise left.pop(0)

    return before


def learning_agent(store: Any, clock: VirtualClock, **more: Any) -> Agent:
    """An agent that acts each second and reflects with one experience."""

    def learn(result: Any) -> Reflection:
        return Reflection(result, experiences=(Experience("the disk was full"),))

    return Agent(sense=ScriptedSense(then="x"), plan=ScriptedPlanner([[Call("x")]]), act=ScriptedActor(),
                 reflect=ScriptedReflector([learn]), loop_interval=1.0, memory=store, clock=clock, **more)  # fmt: skip


# -- accepting ----------------------------------------------------------------------------------------------


async def test_a_slow_store_never_delays_a_cycle(clock: VirtualClock) -> None:
    shelf = Shelf(lambda situation: clock.sleep(30.0))
    agent = learning_agent(shelf, clock)
    async with agent:
        await clock.sleep(10.5)
        assert agent.stats.total_cycles == 11
        assert agent.agent_state.account == {"stored": 0, "waiting": 11, "lost": 0}


async def test_what_is_kept_is_written_in_the_order_in_which_it_came(clock: VirtualClock) -> None:
    async def uneven(situation: str) -> None:
        await clock.sleep(int(situation) % 3)

    shelf = Shelf(uneven)
    writer, _ = kept(shelf, clock)
    for number in range(10):
        writer.keep(Experience(str(number)))
    assert await writer.flush()
    assert shelf.kept == [str(number) for number in range(10)]
    assert (writer.stored, writer.waiting, writer.lost) == (10, 0, 0)


async def test_each_stored_experience_is_told_of_after_it_was_stored(clock: VirtualClock) -> None:
    shelf = Shelf()
    writer, seen = kept(shelf, clock)
    first = Experience("first")
    writer.keep(first)
    assert seen == []
    await writer.flush()
    assert [event.experience for event in seen if isinstance(event, ExperienceStored)] == [first]


async def test_experiences_and_the_tape_share_one_queue(clock: VirtualClock) -> None:
    store = RecordingStore()
    agent = learning_agent(store, clock)
    async with agent:
        await clock.sleep(2.5)
    assert len(store.experiences) == len(store.cycles) == 3
    assert {cycle.outcome for cycle in store.cycles} == {"acted"}
    assert store.flushes >= 1


async def test_a_full_queue_refuses_the_newest_and_says_so(clock: VirtualClock) -> None:
    with Hang() as hang:
        shelf = Shelf(lambda situation: hang.wait())
        writer, seen = kept(shelf, clock)
        for number in range(QUEUE_LIMIT + 3):
            writer.keep(Experience(str(number), origin="the cycle"))
        assert (writer.waiting, writer.lost) == (QUEUE_LIMIT, 3)
        errors = [event for event in seen if isinstance(event, ErrorOccurred)]
        assert len(errors) == 3
        assert errors[0].cycle_id == "the cycle"
        assert (errors[0].phase, errors[0].policy) == ("reflect", "drop")
        assert f"{QUEUE_LIMIT} items already wait" in errors[0].error.message
    assert await writer.flush()
    assert shelf.kept == [str(number) for number in range(QUEUE_LIMIT)]


# -- stores that fail ---------------------------------------------------------------------------------------


async def test_a_transient_failure_is_tried_again_after_a_while(clock: VirtualClock) -> None:
    shelf = Shelf(fails(TransientError("busy"), OSError("disk full")))
    writer, seen = kept(shelf, clock)
    writer.keep(Experience("a"))
    writer.keep(Experience("b"))
    assert await writer.flush()
    assert shelf.attempts == ["a", "a", "a", "b"]
    assert shelf.kept == ["a", "b"]
    assert clock.elapsed == pytest.approx(0.05 + 0.1, abs=1e-3)
    assert (writer.stored, writer.lost) == (2, 0)
    assert not any(isinstance(event, ErrorOccurred) for event in seen)


async def test_what_fails_again_and_again_is_given_up_counted_and_told(clock: VirtualClock) -> None:
    shelf = Shelf(fails(*[OSError("disk full")] * ATTEMPTS))
    writer, seen = kept(shelf, clock)
    for situation in ("a", "b"):
        writer.keep(Experience(situation, origin="the cycle"))
    assert await writer.flush()
    assert shelf.attempts == ["a"] * ATTEMPTS + ["b"]
    assert shelf.kept == ["b"]
    assert (writer.stored, writer.lost) == (1, 1)
    [error] = [event for event in seen if isinstance(event, ErrorOccurred)]
    assert (error.error.message, error.error.part, error.cycle_id) == ("disk full", "Shelf", "the cycle")


async def test_a_permanent_failure_is_not_tried_again(clock: VirtualClock) -> None:
    shelf = Shelf(fails(PermanentError("read-only")))
    writer, seen = kept(shelf, clock)
    writer.keep(Experience("a"))
    await writer.flush()
    assert shelf.attempts == ["a"]
    assert writer.lost == 1
    assert len(seen) == 1


async def test_a_store_that_cancels_itself_does_not_end_the_writing(clock: VirtualClock) -> None:
    shelf = Shelf(fails(asyncio.CancelledError()))
    writer, _ = kept(shelf, clock)
    for situation in ("a", "b"):
        writer.keep(Experience(situation))
    assert await writer.flush()
    assert shelf.kept == ["a", "b"]


async def test_a_store_that_hangs_is_given_up_within_a_bounded_time(clock: VirtualClock) -> None:
    hang = Hang()

    async def first_hangs(situation: str) -> None:
        if situation == "a":
            await hang.wait()

    shelf = Shelf(first_hangs)
    writer, seen = kept(shelf, clock)
    for situation in ("a", "b"):
        writer.keep(Experience(situation))
    assert await writer.flush()
    assert shelf.kept == ["b"]
    assert hang.cancelled == ATTEMPTS
    assert ATTEMPTS * STORE_WITHIN <= clock.elapsed < ATTEMPTS * STORE_WITHIN + 10
    [error] = [event for event in seen if isinstance(event, ErrorOccurred)]
    assert error.error.kind == "timeout"
    assert f"{STORE_WITHIN:g} s" in error.error.message


async def test_what_waits_for_another_method_goes_on_while_one_fails(clock: VirtualClock) -> None:
    class Forgetful(RecordingStore):
        async def store(self, experience: Experience) -> None:
            raise OSError("no disk")

    store = Forgetful()
    agent = learning_agent(store, clock)
    async with agent:
        await clock.sleep(20.5)
        assert len(store.cycles) == 21, "none waits for an experience"
    assert agent.agent_state.account == {"stored": 21, "waiting": 0, "lost": 21}


async def test_the_back_off_is_the_store_s_and_no_longer_for_each_item(clock: VirtualClock) -> None:
    async def never(situation: str) -> None:
        raise OSError("no disk")

    shelf = Shelf(never)
    writer, _ = kept(shelf, clock)
    for number in range(100):
        writer.keep(Experience(str(number)))
    await clock.sleep(100.0)

    assert len(shelf.attempts) < 60, "about one in two seconds"


async def test_a_stop_with_a_store_that_fails_takes_no_longer_than_its_back_off_and_says_what_is_lost(
    clock: VirtualClock,
) -> None:
    async def never(situation: str) -> None:
        raise OSError("no disk")

    shelf = Shelf(never)
    agent = learning_agent(shelf, clock)
    await agent.start()
    await clock.sleep(90.5)
    before, attempts = clock.elapsed, len(shelf.attempts)
    await agent.stop()

    assert clock.elapsed - before < 0.1
    assert len(shelf.attempts) <= attempts + 1
    assert agent.agent_state.account == {"stored": 0, "waiting": 0, "lost": 91}
    assert agent.stats.outcomes["acted"] == 91


async def test_a_plain_function_stores_in_a_thread_and_the_loop_turns_meanwhile() -> None:
    has_turned = threading.Event()
    seen: list[tuple[str, bool, int]] = []

    class Blocking:
        def store(self, experience: Experience) -> None:
            seen.append(("store", has_turned.wait(60), threading.get_ident()))

        def flush(self) -> None:
            seen.append(("flush", True, threading.get_ident()))

    writer = BackgroundWriter(Blocking(), Events(), SystemClock())
    writer.keep(Experience("a"))
    await asyncio.sleep(0.05)
    has_turned.set()
    assert await writer.flush(30)
    assert [(what, is_fine) for what, is_fine, _ in seen] == [("store", True), ("flush", True)]
    assert threading.get_ident() not in [thread for _, _, thread in seen]


# -- flushing -----------------------------------------------------------------------------------------------


async def test_stopping_writes_everything_that_was_accepted(clock: VirtualClock) -> None:
    shelf = Shelf(lambda situation: clock.sleep(1.5))
    agent = learning_agent(shelf, clock)
    async with agent:
        await clock.sleep(4.5)
        assert agent.agent_state.account["waiting"] > 0
    assert agent.agent_state.account == {"stored": 5, "waiting": 0, "lost": 0}
    assert len(shelf.kept) == 5


async def test_stopping_waits_for_a_hung_store_only_so_long(clock: VirtualClock) -> None:
    with Hang() as hang:
        agent = learning_agent(Shelf(lambda situation: hang.wait()), clock)
        await agent.start()
        await clock.sleep(0.5)
        before = clock.elapsed
        await agent.stop()
        assert clock.elapsed - before < 15
        assert agent.agent_state.account["waiting"] == 1
    await clock.sleep(1)
    assert agent.agent_state.account == {"stored": 1, "waiting": 0, "lost": 0}


async def test_flush_says_whether_all_is_written(clock: VirtualClock) -> None:
    shelf = Shelf(lambda situation: clock.sleep(10.0))
    writer, _ = kept(shelf, clock)
    assert await writer.flush()
    writer.keep(Experience("a"))
    assert not await writer.flush(5.0)
    assert await writer.flush(6.0)
    assert shelf.kept == ["a"]


async def test_writing_goes_on_after_its_task_was_cut_off(clock: VirtualClock) -> None:
    shelf = Shelf(lambda situation: clock.sleep(1.0))
    writer, _ = kept(shelf, clock)
    writer.keep(Experience("a"))
    await clock.sleep(0.5)
    [task] = [task for task in asyncio.all_tasks() if task.get_name() == "background writer"]
    task.cancel()
    await asyncio.wait([task])
    assert writer.waiting == 1
    assert await writer.flush()
    assert shelf.kept == ["a"]
