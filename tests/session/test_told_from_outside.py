"""What is said to people and scrapers from other threads, and of work that nobody waits for."""

from __future__ import annotations

import asyncio
import gc
import io
import json
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from spar import Agent
from spar.bus.bus import Events
from spar.bus.subscriptions import Subscribers
from spar.events import Event
from spar.observe.sink import configure
from spar.service.app import describe
from spar.testing import ScriptedSense, VirtualClock
from spar.types import Perception


@pytest.fixture
def fast_switching() -> Iterator[None]:
    """Threads that change places as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def said(written: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in written.getvalue().splitlines()]


# -- levels of the log ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("policy", "level"), [("skip", "error"), ("retry", "warning")])
async def test_a_phase_that_failed_for_good_is_an_error_in_the_log(
    clock: VirtualClock, policy: str, level: str
) -> None:
    written = io.StringIO()
    agent = Agent(sense=ScriptedSense([OSError("no route")], then=None), loop_interval=100.0, clock=clock,
                  settings={"agent": {"errors": {"sense": policy}}})  # fmt: skip
    with closing(configure(level="debug", format="json", stream=written)):
        async with agent:
            await clock.sleep(50)
    assert [line["level"] for line in said(written) if line["msg"] == "phase failed"] == [level]


async def test_background_work_that_fails_is_a_warning_and_what_somebody_awaits_is_not(clock: VirtualClock) -> None:
    async def fails() -> None:
        raise OSError("disk on fire")

    agent, written = Agent(clock=clock), io.StringIO()
    with closing(configure(level="debug", format="json", stream=written)):
        async with agent:
            await asyncio.wait([agent.requests.in_background(fails(), "saving of")])
            with pytest.raises(OSError, match="disk on fire"):
                await agent.requests.exclusively(fails, "step")
            await clock.sleep(1)
    lines = [(line["work"], line["level"]) for line in said(written) if line["msg"] == "background work failed"]
    assert lines == [("saving of main", "warning"), ("step main", "debug")]


# -- from other threads ---------------------------------------------------------------------------------------


class Broken:
    """A module that cannot say how it is."""

    def __init__(self, what: Any) -> None:
        self.what = what

    async def plan(self, perceptions: list[Perception]) -> None:
        return None

    def snapshot(self) -> Any:
        if isinstance(self.what, Exception):
            raise self.what
        return self.what


@pytest.mark.parametrize(
    ("what", "told"),
    [
        (OSError("gone"), "its snapshot() raised OSError('gone')"),
        (7, "its snapshot() returned int, expected a mapping"),
    ],
)
async def test_a_module_that_cannot_say_how_it_is_leaves_the_rest_of_the_status(what: Any, told: str) -> None:
    agent = Agent(plan=Broken(what), name="watchman")
    status = describe(agent)
    assert status["modules"]["plan"] == {"use": "Broken", "error": told}
    assert status["name"] == "watchman"


def test_who_is_told_of_events_can_be_counted_while_others_come_and_go(fast_switching: None) -> None:
    events, is_over = Events("x"), threading.Event()
    failures: list[BaseException] = []

    def count() -> None:
        while not is_over.is_set():
            try:
                assert events.waiting >= 0
                assert len(events.subscriptions) >= 0
            except BaseException as error:
                failures.append(error)
                return

    counting = [threading.Thread(target=count) for _ in range(2)]
    for thread in counting:
        thread.start()
    for number in range(300):
        kind = type(f"Kind{number}", (Event,), {})
        events.subscribe(kind, lambda event: None)
        streams = [events.stream(kind) for _ in range(3)]
        del streams
    is_over.set()
    for thread in counting:
        thread.join(30)
    assert failures == []


async def test_a_stream_that_another_threads_collector_finds_is_ended_in_its_own_event_loop() -> None:
    events = Events("x")
    own = threading.get_ident()
    threads: list[int] = []

    class Watched(Subscribers):
        __slots__ = ()

        def forget(self, subscription: Any, *, is_to_return: bool = False) -> None:
            threads.append(threading.get_ident())
            super().forget(subscription, is_to_return=is_to_return)

    events.wanted.subscribers = Watched(events)
    stream = events.stream(Event)
    ring: list[Any] = [stream]
    ring.append(ring)
    del stream, ring
    await asyncio.to_thread(gc.collect)
    await asyncio.sleep(0)
    assert threads == [own]
    assert events.subscriptions == ()
