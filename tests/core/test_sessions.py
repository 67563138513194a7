"""The beginning and the end of sessions, and what is done between two cycles."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

from spar import Action, Agent, ErrorOccurred, Perception
from spar.sessions import SETTLE_WITHIN
from spar.testing import VirtualClock


async def plan(perceptions: Any) -> Action:
    return Action(output="done")


async def test_hooks_are_told_of_the_beginning_and_the_end_of_each_session_but_the_standing_one(
    clock: VirtualClock,
) -> None:
    agent = Agent(plan=plan, clock=clock)
    told: list[tuple[str, str]] = []
    for point in ("session_start", "session_end"):
        agent.hook(point)(lambda ctx: told.append((ctx.point, ctx.value)))
    async with agent:
        for session in ("a", "main", "a"):
            receipt = await agent.submit("hello", session=session)
            assert (await agent.wait(receipt.run_id)).status == "ok"
            await asyncio.sleep(5.0)

    assert told == [("session_start", "a"), ("session_end", "a")] * 2


async def test_a_session_that_is_paused_and_resumed_begins_once(clock: VirtualClock) -> None:
    async def slow(perceptions: Any) -> Action:
        await asyncio.sleep(2.0)
        return Action(output="done")

    agent = Agent(plan=slow, clock=clock)
    told: list[str] = []
    for point in ("session_start", "session_end"):
        agent.hook(point)(lambda ctx: told.append(ctx.point))
    async with agent:
        receipts = [await agent.submit("hello", session="a") for _ in range(2)]
        await asyncio.sleep(1.0)
        await agent.pause()
        await agent.resume()
        for receipt in receipts:
            assert (await agent.wait(receipt.run_id)).status == "ok"

    assert told == ["session_start", "session_end"]


async def test_a_stop_waits_for_the_hook_at_a_session_s_end_but_not_beyond_its_deadline(clock: VirtualClock) -> None:
    for deadline, ended in ((None, ["a"]), (1.0, [])):
        agent, told = Agent(plan=plan, clock=clock), []

        @agent.hook("session_end")
        async def slow(ctx: Any, told: list[str] = told) -> None:
            await asyncio.sleep(5.0)
            told.append(ctx.value)

        await agent.start()
        await agent.wait((await agent.submit("hello", session="a")).run_id)
        await agent.stop(deadline)
        assert told == ended
        assert agent.state == "stopped"


async def test_a_slow_hook_at_a_session_s_beginning_does_not_delay_the_others(clock: VirtualClock) -> None:
    agent = Agent(plan=plan, clock=clock)

    @agent.hook("session_start")
    async def slow(ctx: Any) -> None:
        if ctx.session == "slow":
            await asyncio.sleep(10.0)

    async with agent:
        first = await agent.submit("hello", session="slow")
        second = await agent.submit("hello", session="quick")
        assert (await agent.wait(second.run_id, 1.0)).status == "ok"
        assert (await agent.wait(first.run_id, 1.0)).status == "timeout"
        assert (await agent.wait(first.run_id, 20.0)).status == "ok"


async def test_a_hook_that_fails_at_a_session_s_beginning_is_reported_and_the_session_goes_on(
    clock: VirtualClock,
) -> None:
    agent = Agent(plan=plan, clock=clock)
    errors: list[str] = []
    agent.on(ErrorOccurred)(lambda event: errors.append(event.phase))

    @agent.hook("session_start")
    async def broken(ctx: Any) -> None:
        raise ValueError("no")

    async with agent:
        receipt = await agent.submit("hello", session="a")
        assert (await agent.wait(receipt.run_id)).status == "ok"
    assert errors == ["session_start"]


async def test_a_sense_module_that_hangs_while_it_hears_what_is_settled_is_left_and_reported(
    clock: VirtualClock,
) -> None:
    class Sense:
        async def sense(self) -> list[Perception]:
            return [Perception("tick")]

        async def settled(self) -> None:
            await asyncio.sleep(1e6)

    agent = Agent(sense=Sense(), plan=plan, clock=clock)
    errors: list[str] = []
    agent.on(ErrorOccurred)(lambda event: errors.append(event.error.kind))
    async with agent:
        await asyncio.sleep(SETTLE_WITHIN * 3)
        assert 2 <= agent.stats.total_cycles <= 4
        await agent.stop(deadline=0.0)
    assert set(errors) == {"timeout"}


async def test_a_sense_module_that_cancels_itself_while_it_hears_does_not_end_the_agent(clock: VirtualClock) -> None:
    class Sense:
        async def sense(self) -> list[Perception]:
            return [Perception("tick")]

        async def settled(self) -> None:
            raise asyncio.CancelledError

    async with Agent(sense=Sense(), plan=plan, clock=clock) as agent:
        await asyncio.sleep(5.0)
        assert agent.is_running
        assert agent.stats.total_cycles > 3


async def test_a_hook_that_ignores_its_cancellation_counts_as_left_behind(clock: VirtualClock) -> None:
    agent, may_end = Agent(plan=plan, clock=clock), asyncio.Event()

    @agent.hook("service_start", timeout=0.1)
    async def stubborn(ctx: Any) -> None:
        while not may_end.is_set():
            try:
                await may_end.wait()
            except asyncio.CancelledError:
                pass

    async with agent:
        assert agent.left_behind == 1
        may_end.set()
        await asyncio.sleep(0.1)
        assert agent.left_behind == 0


def test_importing_the_agent_loads_nothing_heavy() -> None:
    heavy = ("pydantic", "spar.registry", "spar.settings", "importlib.metadata", "apsw", "httpx", "loguru")
    code = f"import sys; from spar import Agent; print([name for name in {heavy} if name in sys.modules])"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)

    assert done.stdout.strip() == "[]"
