"""A sensor that fails, is quarantined or comes back stands in the service's log."""

from __future__ import annotations

import io
import json
from typing import Any

from perception.sense import Sense
from spar import Action, Agent, Call, LoopCompleted, Perception, tool
from spar.observe.logs import get_logger
from spar.observe.sink import configure
from spar.protocols import SensorSpec
from spar.service.event_log import log_events
from spar.testing import RecordingStore, ScriptedSensor, VirtualClock


async def test_a_dying_sensor_is_told_in_the_log(clock: VirtualClock) -> None:
    script = [OSError("the device is gone")] * 3 + [[Perception("back")]]
    dying = SensorSpec("dying", ScriptedSensor(script), every=1.0, max_failures=3, within=60.0, probe_after=100.0)
    agent = Agent(sense=Sense([dying]), clock=clock, loop_interval=1.0)
    out = io.StringIO()
    logs = configure("info", "json", stream=out)
    try:
        log_events(agent.core, agent.reports, agent.modules["sense"].name)
        async with agent:
            await clock.sleep(300)
    finally:
        logs.close()

    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    told = [(line["msg"], line.get("reason")) for line in lines if line.get("sensor") == "dying"]
    assert told[0] == ("sensor failed", "the device is gone")
    assert "sensor quarantined" in [message for message, _ in told]
    assert told[-1][0] == "sensor restored"


class Mistaken:
    """A sensor, a planner, a tool, a hook and a handler with the same mistake."""

    every = 1.0

    async def poll(self) -> Any:
        return {}["sensor"]

    async def plan(self, perceptions: Any) -> Action:
        return Action([Call("lookup")]) if perceptions else {}["plan"]

    async def hook(self, ctx: Any) -> None:
        return {}["hook"]

    async def handler(self, event: LoopCompleted) -> None:
        return {}["handler"]


@tool(effect="read")
async def lookup() -> str:
    """Look it up."""
    return {}["tool"]


async def test_a_mistake_in_somebodys_part_is_in_the_log_with_its_place_and_once_with_its_stack(
    clock: VirtualClock,
) -> None:
    mistaken = Mistaken()
    sensors = [SensorSpec("mistaken", mistaken, every=1.0), SensorSpec("fine", ScriptedSensor([[Perception("x")]]))]
    store = RecordingStore()
    agent = Agent(sense=Sense(sensors), plan=mistaken, tools=[lookup], memory=store, clock=clock, loop_interval=1.0,
                  settings={"agent": {"plan_when_idle": True}})  # fmt: skip
    agent.hooks.add("before_plan", mistaken.hook)
    agent.events.subscribe(LoopCompleted, mistaken.handler)
    out = io.StringIO()
    logs = configure("info", "json", stream=out)
    try:
        log_events(agent.core, agent.reports, agent.modules["sense"].name)
        async with agent:
            await clock.sleep(5)
    finally:
        logs.close()

    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    told = {name: [line for line in lines if line["msg"] == f"{name} failed"] for name in
            ("sensor", "phase", "call", "hook", "handler")}  # fmt: skip
    for name, where in {
        "sensor": "poll",
        "phase": "plan",
        "call": "lookup",
        "hook": "hook",
        "handler": "handler",
    }.items():
        assert {line["where"].rpartition(" ")[2] for line in told[name]} == {where}
        assert all(line["where"].startswith("test_sensor_log.py:") for line in told[name])
        assert {line["type"] for line in told[name]} == {"KeyError"}
        assert ["stack" in line for line in told[name]] == [True] + [False] * (len(told[name]) - 1)
    failed = [fault for cycle in store.cycles for fault in cycle.faults]
    assert failed
    assert all("KeyError: 'plan'" in fault.detail["traceback"] for fault in failed)


async def test_on_a_terminal_a_stack_stands_on_lines_of_its_own() -> None:
    out = io.StringIO()
    logs = configure("info", "pretty", stream=out)
    try:
        get_logger("spar.test").warning("phase failed", where="mytools.py:9 in plan", stack="Traceback:\n  here")
    finally:
        logs.close()

    first, *rest = out.getvalue().splitlines()
    assert first.endswith('phase failed  where="mytools.py:9 in plan"')
    assert rest == ["    Traceback:", "      here"]
