"""Runs that a model plans, under faults and at rest; runs that need no model are in `test_faults`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apsw

from memory import Memory
from perception.sense import Sense
from perception.sensors.schedule import ScheduleSensor
from planning.llm.planner import ModelPlanner
from planning.ports import Request, TextDelta
from planning.resilience.provider_errors import provider_error
from spar import Agent
from spar.bus.run_log import RunEvent
from spar.events import RunAccepted, RunEnded, TriggerMissed
from spar.protocols import SensorSpec
from spar.testing import ScriptedModel, ScriptedSensor, VirtualClock, stream
from tests.doubles import heard
from tests.planning.desk import read_of

LONG = "we talked at length about many things of little weight " * 20


def memory_in(folder: Path) -> Memory:
    return Memory(f"sqlite:///{folder / 'memory.db'}")


def agent_of(clock: VirtualClock, script: Sequence[Any], *, plan: Any = None, **options: Any) -> Agent:
    """An agent that a scripted model plans for; `model_of` finds the model."""
    planner = ModelPlanner(ScriptedModel(script), **(plan or {}))
    return Agent(plan=planner, clock=clock, **{"loop_interval": 0.1, **options})


def model_of(agent: Agent) -> ScriptedModel:
    found: ScriptedModel = agent.setup.modules["plan"].part.model
    return found


async def seen_of(agent: Agent, run_id: str) -> tuple[str, list[RunEvent]]:
    """What somebody has before him who reads a run to its end and honours `reset`."""
    text, events = "", []
    async for event in agent.events.run(run_id):
        events.append(event)
        if event.stream == "assistant" and "reset" in event.data:
            text = event.data["text"] if event.data["reset"] else text + event.data["text"]
    return text, events


async def talked(agent: Agent, times: int) -> None:
    for number in range(times):
        assert (await agent.wait((await agent.submit(f"{LONG} {number}")).run_id)).status == "ok"


async def test_what_was_shown_before_a_compaction_is_not_shown_twice(clock: VirtualClock, tmp_path: Path) -> None:
    is_full = False

    def answer(request: Request) -> Any:
        if request.purpose == "compaction":
            return {"output": "They talked."}
        if is_full and len(read_of(request)) > 12_000:
            return stream([TextDelta("It is "), 1.0, TextDelta("thr"), provider_error("overflow", "m")])
        pieces = [TextDelta("It is "), 1.0, TextDelta("three"), {"output": "It is three"}]
        return stream(pieces) if is_full else {"output": LONG}

    agent = agent_of(clock, [answer], memory=memory_in(tmp_path))
    async with agent:
        await talked(agent, 12)
        is_full = True
        run = await agent.submit("what is it?")
        text, events = await seen_of(agent, run.run_id)

    assert text == "It is three"
    shown = [each.stream for each in events if each.stream in ("assistant", "compaction")]
    assert shown.index("assistant") < shown.index("compaction")  # it had begun to answer
    assert [each.data["sent"] for each in events if "is_answer" in each.data] == ["It is three"]


def rows(path: Path) -> dict[str, list[Any]]:
    """All that is in a file, by table."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    names = [name for (name,) in connection.execute("select name from sqlite_schema where type = 'table'")]
    found = {name: list(connection.execute(f'select * from "{name}"')) for name in names}
    connection.close()
    return found


async def test_a_night_in_which_nothing_happens_costs_no_request_and_writes_nothing(
    clock: VirtualClock, tmp_path: Path
) -> None:
    sensor = ScriptedSensor(every=600.0)
    sense = Sense([SensorSpec("quiet", sensor)])
    agent = agent_of(clock, [{"output": "done"}], sense=sense, memory=memory_in(tmp_path),
                     loop_interval="adaptive", settings={"agent": {"max_interval": 600.0}})  # fmt: skip
    async with agent:
        assert (await agent.wait((await agent.submit("hello", session="ann")).run_id)).status == "ok"
        await clock.sleep(60.0)
        await agent.core.ledger.journal.safe()
        before = rows(tmp_path / "memory.db")
        await clock.sleep(8 * 3600.0)
        await agent.core.ledger.journal.safe()
        after = rows(tmp_path / "memory.db")

    assert sensor.polls > 40
    assert len(model_of(agent).requests) == 1
    changed = {name for name in after if after[name] != before.get(name)}
    assert changed == set()


async def test_fifty_overdue_triggers_obey_their_policies_at_a_restart_and_make_no_storm(
    clock: VirtualClock, tmp_path: Path
) -> None:
    policies: list[Any] = ["skip"] * 20 + ["run_once"] * 20 + ["run_all"] * 10

    def at_a_start() -> Agent:
        sensors: list[SensorSpec] = []
        for number, missed in enumerate(policies):
            due = ScheduleSensor(cron="30 * * * *", missed=missed, jitter=60.0, text=f"job {number} is due")
            sensors.append(SensorSpec(f"job {number}", due, every=60.0))  # type: ignore[arg-type]
        return agent_of(clock, [{"output": "dealt with"}], sense=Sense(sensors), memory=memory_in(tmp_path),
                        loop_interval=1.0)  # fmt: skip

    async with at_a_start():
        await clock.sleep(120.0)
    await clock.sleep(5 * 3600 + 3000)
    for start in range(3):
        agent = at_a_start()
        missed, accepted, ended = heard(agent, TriggerMissed), heard(agent, RunAccepted), heard(agent, RunEnded)
        noticed: Counter[str] = Counter()

        @agent.hook("before_plan")
        async def count(ctx: Any, noticed: Counter[str] = noticed) -> None:
            if ctx.run_id is None:
                noticed.update(each.source for each in ctx.value)

        async with agent:
            await clock.sleep(120.0)
            requests = model_of(agent).requests
        if start:
            assert (missed, accepted, requests, noticed) == ([], [], [], Counter())
            continue
        assert len(missed) == 50 * 6
        assert [noticed[f"job {number}"] for number in range(50)] == [0] * 20 + [1] * 20 + [6] * 10
        assert {each.status for each in ended} == {"ok"}
        assert len(accepted) == len(ended) == len(requests) <= 5
