"""What an agent does, and what happens to its parts, stands in the service's log."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from perception.sense import Sense
from planning.llm.planner import ModelPlanner
from spar import (
    Action,
    Agent,
    Call,
    Decision,
    ErrorOccurred,
    Fault,
    HookContext,
    LoopCompleted,
    Perception,
    RequestDraft,
    tool,
)
from spar.events import ContractViolation
from spar.observe.logs import get_logger
from spar.observe.sink import configure
from spar.protocols import SensorSpec
from spar.service.event_log import log_events
from spar.testing import RecordingStore, ScriptedModel, ScriptedSensor, VirtualClock


@contextmanager
def log_of(agent: Agent) -> Iterator[list[dict[str, Any]]]:
    """The lines of the log; they are there behind the block."""
    out, lines = io.StringIO(), list[dict[str, Any]]()
    logs = configure("info", "json", stream=out)
    try:
        log_events(agent.core, agent.reports, agent.setup.modules["sense"].name)
        yield lines
    finally:
        logs.close()
    lines += map(json.loads, out.getvalue().splitlines())


async def lines_of(clock: VirtualClock, perceptions: list[Perception], calls: list[Call]) -> list[dict[str, Any]]:
    @tool(effect="read")
    async def works() -> int:
        return 1

    @tool(effect="read")
    async def fails() -> int:
        raise OSError("no")

    waiting = [perceptions]

    async def sense() -> list[Perception]:
        return waiting.pop() if waiting else []

    async def plan(noticed: list[Perception]) -> Action:
        return Action(calls=calls, reason="rule 'x' matched")

    agent = Agent(sense=sense, plan=plan, tools=[works, fails], clock=clock, loop_interval=1.0)
    with log_of(agent) as lines:
        async with agent:
            await clock.sleep(10)
        total = agent.stats.total_cycles
    assert total > 5
    return [line for line in lines if line["msg"] == "cycle acted"]


async def test_it_says_what_was_noticed_and_done_and_nothing_of_what_people_wrote(clock: VirtualClock) -> None:
    perceptions = [
        Perception("secret", source="inbox", kind="file.added", attributes={"name": "report.txt"}),
        Perception("secret", source="host", kind="host.load", subject="load"),
        Perception("secret", source="message", kind="message"),
    ]

    (line,) = await lines_of(clock, perceptions, [Call("works"), Call("fails"), Call("works")])

    assert line["noticed"] == "inbox: report.txt; host: load; message: message"
    assert "secret" not in str(line)
    assert line["decided"] == "rule 'x' matched"
    assert line["calls"] == "works ✓ fails ✗ works ✓"
    assert line["session"] == "main"
    assert line["milliseconds"] >= 0


async def test_many_and_long_things_stay_one_short_line_that_says_how_many(clock: VirtualClock) -> None:
    (line,) = await lines_of(
        clock,
        [Perception("x", source="s", subject=f"{n} " + "x" * 100_000) for n in range(10)],
        [Call("works") for _ in range(20)],
    )

    assert line["noticed"].endswith("…; and 6 more")
    assert len(line["noticed"]) < 400
    assert line["calls"] == "20 calls: 20 ✓"


async def test_a_plan_without_calls_and_words_is_no_line(clock: VirtualClock) -> None:
    assert await lines_of(clock, [Perception("x")], []) == []


# -- parts that fail


async def test_a_dying_sensor_is_told_in_the_log(clock: VirtualClock) -> None:
    script = [OSError("the device is gone")] * 3 + [[Perception("back")]]
    dying = SensorSpec("dying", ScriptedSensor(script), every=1.0, max_failures=3, within=60.0, probe_after=100.0)
    agent = Agent(sense=Sense([dying]), clock=clock, loop_interval=1.0)
    with log_of(agent) as lines:
        async with agent:
            await clock.sleep(300)

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
    with log_of(agent) as lines:
        async with agent:
            await clock.sleep(5)

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
        assert all(line["where"].startswith(f"{Path(__file__).name}:") for line in told[name])
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


async def test_a_hook_that_widens_the_tools_is_told_in_the_log(clock: VirtualClock) -> None:
    agent = Agent(plan=ModelPlanner(ScriptedModel([{"output": "yes"}])), clock=clock)

    @agent.hook("before_request")
    def widen(ctx: HookContext) -> Decision:
        return Decision.rewrite(RequestDraft(ctx.value.instructions, tools=("pay",)))

    with log_of(agent) as lines:
        async with agent:
            await agent.wait((await agent.submit("hello")).run_id)

    (line,) = [each for each in lines if each["msg"] == "hook failed"]
    assert (line["level"], line["point"]) == ("warning", "before_request")
    assert line["reason"] == "it may only leave tools out, and added 'pay'"
    assert line["hook"].endswith("widen")


async def test_a_lost_server_and_a_broken_promise_are_told_and_faults_of_cycles_are_not() -> None:
    agent = Agent()
    with log_of(agent) as lines:
        lost = Fault("transient", "it is down", "git", "act")
        agent.events.publish(ErrorOccurred(cycle_id="", phase="act", error=lost, policy="reconnect"))
        agent.events.publish(ContractViolation(part="git__log", message="it changed"))
        agent.events.publish(ErrorOccurred(cycle_id="c", phase="act", error=lost))
        agent.events.publish(ErrorOccurred(cycle_id="", phase="sense", error=lost))

    assert [
        (line["msg"], line["part"], line["reason"], line["level"]) for line in lines if line["logger"] == "spar.tools"
    ] == [("tool failed", "git", "it is down", "warning"), ("contract violated", "git__log", "it changed", "warning")]
