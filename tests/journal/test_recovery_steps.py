"""Every step of recovery can be seen afterwards, and every alert that was opened is closed once all is well."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import msgspec
import pytest

from spar import Agent
from spar.events import HealthAlert, HealthRecovered, RecoveryStep
from spar.health.ladder import STEPS_KEPT
from spar.testing import ScriptedSense, VirtualClock
from spar.types import Action, ActionResult, Call, CallResult, Perception, Reflection


def heard(agent: Agent) -> tuple[list[HealthAlert], list[HealthRecovered], list[RecoveryStep]]:
    lists: tuple[list[Any], list[Any], list[Any]] = ([], [], [])
    for kind, events in zip((HealthAlert, HealthRecovered, RecoveryStep), lists, strict=True):
        agent.events.subscribe(kind, events.append)
    return lists


class Planner:
    """A planner that fails until it is well, and can make do with less."""

    def __init__(self) -> None:
        self.is_well = False
        self.said: list[str] = []

    async def plan(self, perceptions: Any) -> Action | None:
        if not self.is_well:
            raise ConnectionError("the provider is down")
        return None

    def degrade(self, reason: str) -> None:
        self.said.append(reason)

    def restore(self) -> None:
        self.said.append("restore")


async def test_the_steps_that_were_taken_can_be_read_counted_and_told_of_as_json(clock: VirtualClock) -> None:
    planner = Planner()
    agent = Agent(sense=ScriptedSense(then="x"), plan=planner, loop_interval=1.0, clock=clock,
                  settings={"health": {"backoff": 0, "failing_after": 2}})  # fmt: skip
    _, _, steps = heard(agent)
    async with agent:
        assert agent.health.snapshot()["steps"] == []
        await clock.sleep(5.5)
        health = agent.health
        assert [step.step for step in health.snapshot()["steps"]] == ["restart", "restart", "degrade", "restart"]
        assert [step.step for step in steps] == [step.step for step in health.snapshot()["steps"]]
        assert health.judge.ladder.counts == {"restart": 3, "degrade": 1}
        assert health.judge.ladder.restarted == {"plan": 3}
        assert health.snapshot()["degraded"] is True
        told = msgspec.json.decode(msgspec.json.encode(health.snapshot()))
        assert told["steps"][2]["reason"] == "the provider is down"
        assert told["steps"][2]["alert_id"] == health.alerts["failing"].id
        planner.is_well = True
        await clock.sleep(120)
        assert health.snapshot()["degraded"] is False
        assert health.judge.ladder.counts["restore"] == 1
        assert planner.said[-1] == "restore"


async def test_only_the_latest_steps_are_kept_and_all_are_counted(clock: VirtualClock) -> None:
    agent = Agent(clock=clock)
    for number in range(3 * STEPS_KEPT):
        agent.health.judge.ladder.step("restart" if number % 2 else "a name of its own", f"part {number}", "because")
    assert [step.part for step in agent.health.snapshot()["steps"]] == [
        f"part {number}" for number in range(2 * STEPS_KEPT, 3 * STEPS_KEPT)
    ]
    assert agent.health.judge.ladder.counts == {"restart": 30, "other": 30}


async def test_stopping_closes_every_alert_and_giving_up_none(clock: VirtualClock) -> None:
    agent = Agent(sense=ScriptedSense(then=OSError("no")), loop_interval=1.0, clock=clock,
                  settings={"health": {"backoff": 0, "max_restarts": 100}})  # fmt: skip
    alerts, ends, _ = heard(agent)
    async with agent:
        await clock.sleep(20)
        assert [alert.kind for alert in alerts] == ["failing"]
        assert ends == []
    assert [end.alert_id for end in ends] == [alerts[0].alert_id]
    assert agent.health.alerts == {}
    async with agent:
        await clock.sleep(20)
        agent.fail("for a test")
        assert list(agent.health.alerts) == ["failing"]


class Trouble:
    """A whole agent's modules that raise, hang, dawdle and block their way through a seed, until they are well."""

    def __init__(self, clock: VirtualClock, seed: int) -> None:
        self._clock, self._random, self.is_well = clock, random.Random(seed), False

    async def _maybe(self) -> None:
        match 0 if self.is_well else self._random.randrange(8):
            case 1 | 2 | 3:
                raise OSError("no")
            case 4:
                await self._clock.sleep(1e9)
            case 5:
                while not self.is_well:
                    try:
                        await self._clock.sleep(1)
                    except asyncio.CancelledError:
                        continue
            case 6:
                await self._clock.sleep(self._random.uniform(0.1, 4))

    async def sense(self) -> list[Perception]:
        await self._maybe()
        return [Perception("x")]

    async def plan(self, perceptions: Any) -> Action | None:
        await self._maybe()
        return Action(calls=(Call("nothing"),))

    async def act(self, action: Action) -> Any:
        await self._maybe()
        return ActionResult(action, "ok", tuple(CallResult(call, "ok") for call in action.calls))

    async def reflect(self, result: Any) -> Any:
        await self._maybe()
        return Reflection(result)


@pytest.mark.parametrize("seed", range(4))
async def test_whatever_went_wrong_every_alert_is_closed_once_when_all_is_well(clock: VirtualClock, seed: int) -> None:
    trouble = Trouble(clock, seed)
    phases = {name: {"timeout": 5.0} for name in ("sense", "plan", "act", "reflect")}
    agent = Agent(sense=trouble.sense, plan=trouble.plan, act=trouble.act, reflect=trouble.reflect, loop_interval=1.0,
                  clock=clock, settings={"agent": {"phases": phases}, "health": {"failing_after": 2}})  # fmt: skip
    alerts, ends, _ = heard(agent)
    async with agent:
        for _ in range(12):
            await clock.sleep(30)
            if agent.state == "paused":
                await agent.resume()
        assert alerts
        trouble.is_well = True
        if agent.state != "running":
            await agent.resume()
        await clock.sleep(120)
        assert agent.health.alerts == {}
        assert sorted({alert.alert_id for alert in alerts}) == sorted(end.alert_id for end in ends)
        assert all(end.duration >= 0 for end in ends)
