"""Handlers that hang: each has a few seconds, is counted, turned off, and tried again; nobody else waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from spar import Agent
from spar.bus.bus import Events
from spar.bus.subscriptions import FAILURES_UNTIL_OFF, HANDLER_GRACE, HANDLER_WITHIN, PROBE_AFTER
from spar.events import Event, LoopCompleted
from spar.testing import VirtualClock


class Tell(Event):
    number: int = 0


@pytest.fixture
async def events(clock: VirtualClock) -> AsyncIterator[Events]:
    made = Events(clock=clock)
    yield made
    made.close()


@pytest.fixture
def failures(events: Events) -> list[tuple[str, bool]]:
    heard: list[tuple[str, bool]] = []
    events.on_handler_error = lambda name, error, off: heard.append((str(error), off))
    return heard


def publish(events: Events, number: int) -> None:
    for index in range(number):
        events.publish(Tell(number=index))


async def test_a_handler_that_hangs_is_cancelled_after_five_seconds_and_hears_the_next_event(
    clock: VirtualClock, events: Events, failures: list[tuple[str, bool]]
) -> None:
    seen: list[Any] = []

    async def hangs_once(event: Tell) -> None:
        if event.number == 0:
            await clock.sleep(1000)
        seen.append((event.number, clock.elapsed))

    handle = events.subscribe(Tell, hangs_once)
    publish(events, 3)
    await clock.sleep(HANDLER_WITHIN - 0.1)
    assert (seen, failures) == ([], [])
    await clock.sleep(0.2)
    assert seen == [(1, HANDLER_WITHIN), (2, HANDLER_WITHIN)]
    assert failures == [("took longer than 5 s over one event and was cancelled", False)]
    assert (events.handler_errors, handle.failures, handle.is_off) == (1, 0, False)


async def test_a_handler_that_is_busy_again_and_again_is_not_taken_for_one_that_hangs(
    clock: VirtualClock, events: Events, failures: list[tuple[str, bool]]
) -> None:
    seen: list[Any] = []

    async def slow(event: Tell) -> None:
        await clock.sleep(HANDLER_WITHIN - 1)
        seen.append(event.number)

    events.subscribe(Tell, slow)
    publish(events, 10)
    await clock.sleep(10 * HANDLER_WITHIN)
    assert (seen, failures) == (list(range(10)), [])


async def test_one_that_takes_no_notice_of_its_cancellation_but_ends_has_failed_all_the_same(
    clock: VirtualClock, events: Events, failures: list[tuple[str, bool]]
) -> None:
    seen: list[Any] = []

    async def swallows(event: Tell) -> None:
        try:
            await clock.sleep(1000)
        except asyncio.CancelledError:
            seen.append(event.number)

    events.subscribe(Tell, swallows)
    publish(events, 2)
    await clock.sleep(2 * HANDLER_WITHIN + 1)
    assert seen == [0, 1]
    assert [text for text, _ in failures] == ["took longer than 5 s over one event and was cancelled"] * 2


async def test_one_that_ignores_its_cancellation_is_left_behind_and_the_next_event_is_not_kept_waiting(
    clock: VirtualClock, events: Events, failures: list[tuple[str, bool]]
) -> None:
    seen: list[Any] = []
    let_go = False

    async def stubborn(event: Tell) -> None:
        while event.number == 0 and not let_go:
            try:
                await clock.sleep(1)
            except asyncio.CancelledError:
                continue
        seen.append((event.number, clock.elapsed))

    handle = events.subscribe(Tell, stubborn)
    publish(events, 2)
    await clock.sleep(HANDLER_WITHIN + HANDLER_GRACE + 0.1)
    assert seen == [(1, HANDLER_WITHIN + HANDLER_GRACE)]
    assert failures == [("took longer than 5 s over one event and was left behind", False)]
    assert len(events.left_behind) == 1
    let_go = True
    await clock.sleep(2)
    assert not events.left_behind
    publish(events, 1)
    await events.drain()
    assert seen[-1][0] == 0
    assert not handle.is_off


async def test_ten_hangs_in_a_row_turn_a_handler_off(
    clock: VirtualClock, events: Events, failures: list[tuple[str, bool]]
) -> None:
    async def hangs(event: Tell) -> None:
        await clock.sleep(1000)

    handle = events.subscribe(Tell, hangs)
    publish(events, 20)
    await clock.sleep(20 * HANDLER_WITHIN)
    assert [off for _, off in failures] == [False] * (FAILURES_UNTIL_OFF - 1) + [True]
    assert handle.is_off
    assert events.off == {handle}
    assert not events.wanted[Tell]


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
async def test_a_handler_that_was_turned_off_is_tried_again_and_one_more_failure_turns_it_off(
    clock: VirtualClock, is_async: bool, events: Events
) -> None:
    heard: list[int] = []
    is_broken = True

    def plain(event: Tell) -> None:
        heard.append(event.number)
        if is_broken:
            raise RuntimeError("no")

    async def queued(event: Tell) -> None:
        plain(event)

    handle = events.subscribe(Tell, queued if is_async else plain)

    async def tell(number: int) -> None:
        publish(events, number)
        await events.drain()

    await tell(FAILURES_UNTIL_OFF + 5)
    assert (handle.is_off, len(heard)) == (True, FAILURES_UNTIL_OFF)
    await clock.sleep(PROBE_AFTER + 1)
    assert not handle.is_off
    await tell(3)
    assert (handle.is_off, len(heard)) == (True, FAILURES_UNTIL_OFF + 1)
    await clock.sleep(PROBE_AFTER + 1)
    is_broken = False
    await tell(3)
    assert (handle.is_off, handle.failures, len(heard)) == (False, 0, FAILURES_UNTIL_OFF + 4)


async def test_a_handler_can_be_restored_by_hand_and_an_unsubscribed_one_never_returns(
    clock: VirtualClock, events: Events
) -> None:
    heard: list[int] = []

    def moody(event: Tell) -> None:
        heard.append(event.number)
        if len(heard) <= FAILURES_UNTIL_OFF:
            raise RuntimeError("no")

    handle = events.subscribe(Tell, moody)
    publish(events, FAILURES_UNTIL_OFF)
    assert handle.is_off
    handle.restore()
    publish(events, 1)
    assert (handle.is_off, len(heard)) == (False, FAILURES_UNTIL_OFF + 1)
    handle()
    handle.restore()
    await clock.sleep(2 * PROBE_AFTER)
    publish(events, 1)
    assert (handle.is_off, len(heard)) == (True, FAILURES_UNTIL_OFF + 1)


async def test_one_that_left_work_behind_is_not_tried_again_before_that_has_ended(
    clock: VirtualClock, events: Events
) -> None:
    stay = True

    async def stubborn(event: Tell) -> None:
        while stay:
            try:
                await clock.sleep(100)
            except asyncio.CancelledError:
                continue

    handle = events.subscribe(Tell, stubborn)
    publish(events, FAILURES_UNTIL_OFF)
    await clock.sleep(FAILURES_UNTIL_OFF * (HANDLER_WITHIN + HANDLER_GRACE) + 1)
    assert (handle.is_off, len(events.left_behind)) == (True, FAILURES_UNTIL_OFF)
    await clock.sleep(2 * PROBE_AFTER)
    assert handle.is_off
    stay = False
    await clock.sleep(2 * PROBE_AFTER)
    assert (handle.is_off, len(events.left_behind)) == (False, 0)


async def test_what_a_plain_handler_returned_to_be_awaited_has_the_same_time(
    clock: VirtualClock, events: Events, failures: list[tuple[str, bool]]
) -> None:
    events.subscribe(Tell, lambda event: clock.sleep(1000))
    publish(events, 1)
    await clock.sleep(HANDLER_WITHIN + 1)
    assert failures == [("took longer than 5 s over one event", False)]


async def test_hanging_and_raising_handlers_cost_the_loop_no_cycle(clock: VirtualClock) -> None:
    async def sense() -> Any:
        return None

    async def hangs(event: LoopCompleted) -> None:
        await clock.sleep(1e6)

    def raises(event: LoopCompleted) -> None:
        raise RuntimeError("no")

    agent = Agent(sense=sense, loop_interval=1.0, clock=clock)
    for handler in (hangs, raises):
        agent.events.subscribe(LoopCompleted, handler)
    async with agent:
        await clock.sleep(100.5)
        assert agent.stats.total_cycles == 101
        assert agent.events.handler_errors == 2 * FAILURES_UNTIL_OFF


def test_a_handler_works_on_in_the_event_loop_after_one_that_ended_under_it() -> None:
    events, seen = Events(), []

    async def handler(event: Tell) -> None:
        await asyncio.sleep(0 if event.number else 100)
        seen.append(event.number)

    events.subscribe(Tell, handler)

    async def cut_off() -> None:
        publish(events, 1)
        await asyncio.sleep(0)

    async def again() -> None:
        events.publish(Tell(number=7))
        await events.drain()
        events.close()

    asyncio.run(cut_off())
    asyncio.run(again())
    assert seen == [7]
