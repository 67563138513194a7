"""The pause for a used up budget: it ends with the budget's window, in whichever process, and no other pause does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from memory import Memory
from spar import Action, Agent, Call, tool
from spar.testing import VirtualClock


@tool(effect="once")
async def send(x: int = 0) -> str:
    """Send it."""
    return "sent"


async def plan(perceptions: Any) -> Action:
    return Action((Call("send"),))


def service(folder: Path, clock: VirtualClock) -> Agent:
    """Return an agent that uses up its budget by 20 refusals, and whose pause outlives its stop."""
    agent = Agent(
        plan=plan, tools=[send], clock=clock, loop_interval=1.0, memory=Memory.open(f"sqlite:///{folder}/memory.db"),
        settings={"agent": {"plan_when_idle": True}, "budgets": {"hour": {"effects": 2}}},
    )  # fmt: skip
    agent.ends_pause = False
    return agent


async def test_a_service_that_ends_while_it_is_paused_for_a_budget_works_in_the_next_hour(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with service(tmp_path, clock) as agent:
        await clock.sleep(1200)
        assert agent.state == "paused"
    await clock.sleep(3600)

    async with service(tmp_path, clock) as agent:
        await clock.sleep(5)
        assert agent.state == "running"


async def test_a_service_that_starts_in_the_same_hour_goes_on_when_its_budget_is_renewed(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with service(tmp_path, clock) as agent:
        await clock.sleep(1200)
        assert agent.state == "paused"

    async with service(tmp_path, clock) as agent:
        await clock.sleep(600)
        assert agent.state == "paused"
        await clock.sleep(1810)
        assert agent.state == "running"


@pytest.mark.parametrize("is_before", [True, False])
async def test_a_pause_that_a_person_asked_for_outlives_the_one_for_a_budget(
    is_before: bool, clock: VirtualClock, tmp_path: Path
) -> None:
    async with service(tmp_path, clock) as agent:
        if not is_before:
            await clock.sleep(1200)
            assert agent.state == "paused"
        await agent.pause()
        if is_before:
            for _ in range(30):
                agent.budgets.demand("cycle", is_effect=True)
        cycles = agent.stats.total_cycles
        await clock.sleep(3700)
        assert (agent.state, agent.stats.total_cycles) == ("paused", cycles)

    async with service(tmp_path, clock) as agent:
        assert agent.state == "paused"
        await agent.resume()
        await clock.sleep(5)
        assert agent.state == "running"
