"""Values of a caller that are nested deeper than Python can write out: each is refused in a sentence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from spar import Agent, Perception, PhaseCompleted
from spar.errors import ConfigError, ContractError
from spar.testing import VirtualClock


def nested() -> Any:
    value: list[Any] = []
    for _ in range(3_000):
        value = [value]
    return value


CALLS: dict[str, Callable[[Agent, Any], Any]] = {
    "submit": lambda agent, value: agent.submit(value),
    "submit session": lambda agent, value: agent.submit("hello", session=value),
    "submit mode": lambda agent, value: agent.submit("hello", mode=value),
    "submit key": lambda agent, value: agent.submit("hello", key=value),
    "submit output": lambda agent, value: agent.submit("hello", output=value),
    "submit options": lambda agent, value: agent.submit("hello", options=value),
    "submit option": lambda agent, value: agent.submit("hello", options={"model": value}),
    "accept": lambda agent, value: agent.accept(value),
    "push": lambda agent, value: agent.push(value),
    "wait": lambda agent, value: agent.wait(value),
    "abort": lambda agent, value: agent.abort(value),
    "reset": lambda agent, value: agent.reset(value),
    "feedback": lambda agent, value: agent.feedback(value, good=True),
    "stop": lambda agent, value: agent.stop(value),
    "approve": lambda agent, value: agent.approvals.decide(value, "approve"),
    "decide": lambda agent, value: agent.approvals.decide("one", value),
    "stats": lambda agent, value: agent.stats_of(value),
    "interval": lambda agent, value: setattr(agent, "loop_interval", value),
    "step plan": lambda agent, value: agent.step_plan(value),
    "step act": lambda agent, value: agent.step_act(value),
    "step reflect": lambda agent, value: agent.step_reflect(value),
    "hook": lambda agent, value: agent.hook(value)(print),
    "on": lambda agent, value: agent.on(value)(print),
    "handler": lambda agent, value: agent.on(PhaseCompleted)(value),
    "follow": lambda agent, value: agent.events.run("one", after=value),
    "perception": lambda agent, value: Perception("hello", subject=value),
    "name": lambda agent, value: Agent(name=value),
    "memory": lambda agent, value: Agent(memory=value),
    "module": lambda agent, value: Agent(plan=value),
    "tools": lambda agent, value: Agent(tools=value),
    "settings": lambda agent, value: Agent(settings={"agent": {"name": value}}),
}  # fmt: skip


async def call(name: str, agent: Agent) -> None:
    outcome = CALLS[name](agent, nested())
    if hasattr(outcome, "__await__"):
        await outcome


@pytest.mark.parametrize("name", CALLS)
async def test_a_value_that_is_nested_too_deeply_is_refused_in_a_sentence(name: str, clock: VirtualClock) -> None:
    async with Agent(clock=clock, loop_interval="off") as agent:
        if name.startswith("step"):
            await agent.pause()
        with pytest.raises((ValueError, TypeError, LookupError, ConfigError, ContractError)) as refused:
            await call(name, agent)
    assert 0 < len(str(refused.value)) < 1_000
