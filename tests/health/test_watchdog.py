"""The watchdog: a real thread that sees what the loop cannot tell, for as long as there is something to watch."""

from __future__ import annotations

import asyncio
import gc
import io
import json
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from spar import Agent
from spar.clock import SystemClock
from spar.events import HealthAlert, HealthRecovered
from spar.health.watchdog import CALLS_A_TURN, FRAMES, FRAMES_IN_ALERT, WATCHDOG, _Beat, confirm, look, stack_of
from spar.observe.sink import configure
from spar.testing import Hang, VirtualClock
from spar.types import Perception
from tests.doubles import heard
from tests.waiting import until

HEALTH = {"blocked_after": 0.5}


def watchers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "spar watchdog"]


def no_watcher_is_left() -> bool:
    end = time.monotonic() + 20.0
    while watchers() and time.monotonic() < end:
        time.sleep(0.02)
    return not watchers()


async def sense() -> list[Perception]:
    return []


def block_the_loop_here(until_told: threading.Event) -> None:
    """What an honest mistake looks like: blocking code called from async code."""
    end = time.monotonic() + 60.0
    while not until_told.is_set() and time.monotonic() < end:
        time.sleep(0.01)


class Blocking:
    """A sense module that blocks the event loop once, until somebody on another thread has seen enough."""

    def __init__(self) -> None:
        self.is_to_block = threading.Event()
        self.go_on = threading.Event()

    async def sense(self) -> list[Perception]:
        if self.is_to_block.is_set():
            self.is_to_block.clear()
            block_the_loop_here(self.go_on)
        return []


def look_from_a_thread(agent: Agent, module: Blocking) -> list[tuple[str, float]]:
    """Waits on a thread until the agent's status shows the block, then lets the loop go on."""
    seen: list[tuple[str, float]] = []

    def wait() -> None:
        end = time.monotonic() + 20.0
        while not agent.watched.blocked_by and time.monotonic() < end:
            time.sleep(0.01)
        seen.append((agent.watched.blocked_by, agent.watched.blocked_for()))
        module.go_on.set()

    threading.Thread(target=wait, daemon=True).start()
    return seen


# -- blocked ------------------------------------------------------------------------------------------------


async def test_a_blocked_loop_is_found_with_the_stack_that_blocks_while_it_cannot_run() -> None:
    module, out = Blocking(), io.StringIO()
    agent = Agent(sense=module, loop_interval=0.05, settings={"health": HEALTH})
    events = heard(agent, HealthAlert, HealthRecovered)
    with closing(configure(stream=out, format="json")):
        async with agent:
            seen = look_from_a_thread(agent, module)
            module.is_to_block.set()
            await until(lambda: any(isinstance(event, HealthRecovered) and event.kind == "blocked" for event in events))
            [(stack, blocked_for)] = seen
            assert "block_the_loop_here" in stack
            assert "time.sleep" in stack
            assert blocked_for >= HEALTH["blocked_after"]
            assert (agent.watched.blocked_by, agent.watched.blocked_for()) == ("", 0.0)
            assert "blocked" not in agent.health.alerts
    alert = next(event for event in events if isinstance(event, HealthAlert) and event.kind == "blocked")
    assert alert.severity == "critical"
    assert "the event loop has been blocked for" in alert.message
    assert "block_the_loop_here" in alert.message
    recovered = next(event for event in events if isinstance(event, HealthRecovered) and event.kind == "blocked")
    assert recovered.alert_id == alert.alert_id
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    line = next(line for line in lines if "event loop blocked" in line.values())
    assert "block_the_loop_here" in line["stack"]


async def test_every_agent_of_a_blocked_loop_is_told() -> None:
    module = Blocking()
    agents = [Agent(sense=module, name="one", loop_interval=0.05, settings={"health": HEALTH}),
              Agent(sense=sense, name="two", loop_interval=0.05, settings={"health": HEALTH})]  # fmt: skip
    told: list[str] = []
    for agent in agents:
        agent.events.subscribe(HealthAlert, lambda event: told.append(event.agent) if event.kind == "blocked" else None)
        await agent.start()
    look_from_a_thread(agents[1], module)
    module.is_to_block.set()
    await until(lambda: len(told) == 2)
    assert sorted(told) == ["one", "two"]
    for agent in agents:
        await agent.stop()


async def test_a_block_is_logged_once_for_all_agents_and_alerts_carry_only_the_innermost_frames() -> None:
    def block_deep_down(go_on: threading.Event, depth: int) -> None:
        if depth:
            and_deeper(go_on, depth - 1)
        else:
            block_the_loop_here(go_on)

    def and_deeper(go_on: threading.Event, depth: int) -> None:
        block_deep_down(go_on, depth)  # two of them, because repeated frames are shown as one

    out, module, told = io.StringIO(), Blocking(), []
    agents = [Agent(sense=sense, name=f"a{i}", loop_interval=0.05, settings={"health": HEALTH}) for i in range(5)]
    with closing(configure(stream=out, format="json")):
        for agent in agents:
            agent.events.subscribe(HealthAlert, told.append)
            await agent.start()
        await asyncio.sleep(0.3)  # the watchdog has asked
        look_from_a_thread(agents[0], module)
        block_deep_down(module.go_on, 15)
        await until(lambda: sum(event.kind == "blocked" for event in told) == len(agents))
        for agent in agents:
            await agent.stop()
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    [blocked] = [line for line in lines if "event loop blocked" in line.values()]
    assert blocked["agent"] == "a0, a1, a2 and 2 more"
    assert blocked["stack"].count("  File ") == FRAMES
    assert not any("  File " in str(line) for line in lines if "health alert" in line.values())
    for event in told:
        assert event.message.count("  File ") == FRAMES_IN_ALERT
        assert "block_the_loop_here" in event.message


async def test_a_thousand_agents_are_told_a_few_a_turn_and_only_while_they_are_watched() -> None:
    loop = asyncio.get_running_loop()
    agents: list[Any] = [Agent(name=str(number)) for number in range(100)]
    beat = _Beat(loop, threading.get_ident())
    for agent in agents:
        beat.agents.add(agent)
    told: list[Agent] = []
    beat.for_agents(told.append)
    turns: list[int] = []
    for _ in range(10):
        await asyncio.sleep(0)
        turns.append(len(told) - sum(turns))
        if turns == [CALLS_A_TURN]:
            gone = next(agent for agent in agents if agent not in told)
            beat.agents.discard(gone)
    assert max(turns) == CALLS_A_TURN
    assert gone not in told
    assert len(told) == len(set(told)) == 99


async def test_stopping_right_after_a_block_leaves_no_trace_of_it() -> None:
    module = Blocking()
    agent = Agent(sense=module, loop_interval=0.05, settings={"health": HEALTH})
    await agent.start()
    stopping = asyncio.get_running_loop().create_task(agent.stop())  # its turn comes right after the blocked step
    look_from_a_thread(agent, module)
    block_the_loop_here(module.go_on)
    await stopping
    assert (agent.watched.blocked_by, agent.watched.blocked_for()) == ("", 0.0)
    await asyncio.sleep(0.05)
    assert "blocked" not in agent.health.alerts


async def test_honest_work_is_not_blocked() -> None:
    agent = Agent(sense=sense, loop_interval=0, settings={"health": {"blocked_after": 5.0}})
    alerts = heard(agent, HealthAlert)
    async with agent:
        await asyncio.sleep(1.0)
    assert alerts == []


def test_the_stack_of_a_thread_ends_with_what_it_does_now_and_is_empty_once_it_is_gone() -> None:
    assert "stack_of(threading.get_ident())" in stack_of(threading.get_ident())
    thread = threading.Thread(target=lambda: None)
    thread.start()
    thread.join()
    assert stack_of(thread.ident or -1) == ""


# -- one thread, as long as somebody runs -------------------------------------------------------------------


async def test_one_thread_watches_many_agents_and_ends_with_the_last() -> None:
    assert no_watcher_is_left()
    agents = [Agent(sense=sense, name=f"agent {number}", loop_interval=1.0) for number in range(20)]
    for agent in agents:
        await agent.start()
    assert len(watchers()) == 1
    for agent in agents[1:]:
        await agent.stop()
    await asyncio.sleep(0.3)
    assert len(watchers()) == 1
    await agents[0].stop()
    assert no_watcher_is_left()


def test_a_loop_that_ended_without_stopping_its_agent_is_not_watched_for_ever() -> None:
    agent = Agent(sense=sense, loop_interval=1.0)
    asyncio.run(agent.start())
    assert no_watcher_is_left()
    assert agent.state != "stopped"


def test_nothing_of_a_forgotten_agent_stays_in_memory() -> None:
    """The agent's own loop dies with it; another agent keeps the watchdog alive meanwhile."""

    async def main() -> None:
        async with Agent(sense=sense, name="other", loop_interval=1.0):
            agent = Agent(sense=sense, loop_interval=0.05)
            gone = weakref.ref(agent)
            await agent.start()
            await asyncio.sleep(0.6)
            await agent.stop()
            del agent
            await until(lambda: gc.collect() >= 0 and gone() is None)  # once the watchdog has looked since

    asyncio.run(main())
    assert no_watcher_is_left()


def test_agents_of_two_event_loops_share_the_thread_and_each_is_told_of_its_own_loop() -> None:
    told: dict[str, list[str]] = {"calm": [], "blocked": []}
    is_done = threading.Event()
    module = Blocking()

    def run(name: str, part: Any, live: Callable[[Agent], Any]) -> threading.Thread:
        async def main() -> None:
            agent = Agent(sense=part, name=name, loop_interval=0.05, settings={"health": HEALTH})
            agent.events.subscribe(HealthAlert, lambda event: told[name].append(event.kind))
            async with agent:
                await live(agent)

        thread = threading.Thread(target=lambda: asyncio.run(main()), daemon=True)
        thread.start()
        return thread

    async def calm(agent: Agent) -> None:
        await until(is_done.is_set)

    async def blocked(agent: Agent) -> None:
        look_from_a_thread(agent, module)
        module.is_to_block.set()
        await until(lambda: told["blocked"])
        assert len(watchers()) == 1
        is_done.set()

    threads = [run("calm", sense, calm), run("blocked", module, blocked)]
    for thread in threads:
        thread.join(60)
    assert "blocked" in told["blocked"]
    assert "blocked" not in told["calm"]
    assert no_watcher_is_left()


async def test_an_agent_on_a_virtual_clock_needs_no_thread(clock: VirtualClock) -> None:
    assert no_watcher_is_left()
    async with Agent(sense=sense, loop_interval=1.0, clock=clock):
        await clock.sleep(100)
        assert watchers() == []


async def test_many_starts_and_stops_leave_no_thread_and_no_beat_behind_and_who_is_started_again_is_watched() -> None:
    again = Agent(sense=sense, loop_interval=1.0)
    for agent in (*(Agent(sense=sense, loop_interval=1.0) for _ in range(30)), again, again, again):
        async with agent:
            assert len(watchers()) == 1
    assert no_watcher_is_left()
    assert not WATCHDOG._beats


# -- what is seen from outside ------------------------------------------------------------------------------


async def test_a_loop_that_oversleeps_is_found_stalled_by_the_thread() -> None:
    agent = Agent(sense=sense, loop_interval=0.05, settings={"health": {"stalled_after": 0.5}})
    alerts = heard(agent, HealthAlert)
    async with agent:
        lane = agent.sessions.by_key["main"]
        wake = lane.wake

        class Oversleeps:
            set, is_set = wake.set, False

            async def sleep(self, seconds: float | None) -> Any:
                return await wake.sleep(None)

        lane.wake = Oversleeps()  # type: ignore[assignment]
        await until(lambda: alerts)
        assert alerts[0].kind == "stalled"
        lane.wake = wake
        agent.wake()
        await until(lambda: "stalled" not in agent.health.alerts)


async def test_a_hung_phase_is_stuck_on_the_real_clock_and_the_loop_goes_on() -> None:
    with Hang(ignore_cancel=True) as hang:
        first = [True]

        async def hangs_once() -> list[Perception]:
            if first:
                first.clear()
                await hang.wait()
            return []

        phases = {"sense": {"timeout": 0.2, "grace": 0.1}}
        agent = Agent(sense=hangs_once, loop_interval=0.05, settings={"agent": {"phases": phases}})
        kinds: list[str] = []
        agent.events.subscribe(HealthAlert, lambda event: kinds.append(event.kind))
        agent.events.subscribe(HealthRecovered, lambda event: kinds.append(f"recovered {event.kind}"))
        async with agent:
            await until(lambda: "recovered stuck" in kinds)
            assert agent.left_behind == 1
            hang.release()
            await until(lambda: agent.left_behind == 0)
    assert kinds[0] == "stuck"


async def test_what_is_no_longer_so_when_the_loop_answers_is_no_alert() -> None:
    agent = Agent(sense=sense, loop_interval=60.0)
    async with agent:
        await until(lambda: agent.stats.total_cycles)
        findings = look(agent.watched, SystemClock.monotonic() + 10_000)
        assert [finding.kind for finding in findings] == ["stalled"]
        confirm(agent.watched, findings[0])
        assert agent.health.alerts == {}


@pytest.mark.parametrize("state", ["created", "paused", "stopped"])
async def test_only_an_agent_that_runs_is_looked_at(state: str) -> None:
    agent = Agent(sense=sense, loop_interval=0.05)
    if state != "created":
        await agent.start()
        await (agent.pause() if state == "paused" else agent.stop())
    assert agent.state == state
    assert look(agent.watched, SystemClock.monotonic() + 1e6) == []
    await agent.stop()


async def test_a_chore_that_blocks_holds_up_no_agent_and_no_other_chore() -> None:
    is_released, has_begun, other = threading.Event(), threading.Event(), threading.Event()

    def block() -> None:
        has_begun.set()
        is_released.wait(60)

    agent = Agent(sense=sense, loop_interval=0.05)
    await agent.start()
    ends = [WATCHDOG.attend(block, 60.0), WATCHDOG.attend(other.set, 60.0)]
    try:
        await until(has_begun.is_set)
        await until(other.is_set)
        async with Agent(sense=sense, name="another", loop_interval=0.05):
            await agent.stop()
        assert not is_released.is_set()
    finally:
        is_released.set()
        for end in ends:
            end()


async def test_a_chore_is_done_only_while_an_agent_is_watched_and_until_it_is_ended() -> None:
    done: list[int] = []
    end = WATCHDOG.attend(lambda: done.append(1), 0.0)
    try:
        assert not done
        async with Agent(sense=sense, loop_interval=0.05):
            await until(lambda: len(done) >= 2)
    finally:
        end()
    count = len(done)
    async with Agent(sense=sense, loop_interval=0.05) as agent:
        await until(lambda: agent.stats.total_cycles > 8)
    assert len(done) <= count + 1
