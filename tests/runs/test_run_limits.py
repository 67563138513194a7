"""How long and how much: what one run may take, when it rests too long, and when its time stands still."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from memory import Memory
from spar import Action, Agent, Call, Context, tool
from spar.errors import TransientError
from spar.events import RunEnded
from spar.journal.restart import Restart
from spar.protocols import Host
from spar.records.journal import Item
from spar.testing import VirtualClock
from spar.types import Perception
from tests.doubles import heard
from tests.journal.left import accepted, left_behind


@tool(effect="read")
async def work(seconds: float) -> None:
    await asyncio.sleep(seconds)


async def on_and_on(perceptions: Any, context: Context) -> Action:
    return Action([Call("work", {"seconds": 1.0})])


class Asking:
    """A planner that asks a model each time, which takes this much."""

    def __init__(self, **usage: int) -> None:
        self.usage, self.asked = usage, 0

    def attach(self, host: Host) -> None:
        self.host = host

    async def plan(self, perceptions: Any, context: Context) -> Action:
        self.host.used(context.run.id, self.usage)
        self.asked += 1
        return Action([Call("work", {"seconds": 0.1 + self.asked / 1000})])


def agent_of(clock: VirtualClock, plan: Any = on_and_on, **runs: Any) -> Agent:
    return Agent(plan=plan, tools=[work], clock=clock, loop_interval=0.1, settings={"runs": runs})


@pytest.mark.parametrize("runs", [{"requests": 5}, {"calls": 5}, {"tokens": 500}])
async def test_a_run_that_goes_on_after_restarts_has_no_more_than_its_limit(
    clock: VirtualClock, runs: dict[str, int], tmp_path: Path
) -> None:
    asked, run_id = 0, ""
    for _ in range(4):
        planner = Asking(requests=1, tokens=100)
        memory = Memory(f"sqlite:///{tmp_path / 'memory.db'}")
        agent = Agent(
            plan=planner, tools=[work], memory=memory, clock=clock, loop_interval=0.1, settings={"runs": runs}
        )
        async with agent:
            run_id = run_id or (await agent.submit("go")).run_id
            status = await agent.wait(run_id, 0.25)  # two or three cycles
        asked += planner.asked
        if status.status != "timeout":
            break
    assert re.search(rf"a run may take {next(iter(runs.values()))} ", status.error), status
    assert asked == 5
    assert status.usage.requests == 5


@pytest.mark.parametrize(
    ("runs", "usage", "error"),
    [
        ({"requests": 5}, {"requests": 1}, r"it took 5 requests, and a run may take 5 \(runs.requests\)"),
        ({"tokens": 1000}, {"requests": 1, "tokens": 400}, r"it took 1200 tokens, and a run may take 1000"),
        ({"cached_tokens": 900}, {"requests": 1, "cached_tokens": 400},
         r"it took 1200 cached tokens, and a run may take 900 \(runs.cached_tokens\)"),
        ({"money": "0.5"}, {"money": 200_000}, r"it took 0.6 money, and a run may take 0.5 \(runs.money\)"),
        ({"calls": 3}, {}, r"it took 3 calls, and a run may take 3 \(runs.calls\)"),
        ({}, {"requests": 1}, r"it took 40 requests, and a run may take 40 \(runs.requests\)"),
    ],
)  # fmt: skip
async def test_a_run_that_would_go_on_ends_at_its_limit(
    clock: VirtualClock, runs: dict[str, Any], usage: dict[str, int], error: str
) -> None:
    async with agent_of(clock, Asking(**usage), **runs) as agent:
        status = await agent.wait((await agent.submit("go")).run_id)

    assert status.status == "error"
    assert re.match(error, status.error)


async def test_a_run_that_ends_by_itself_at_its_limit_has_ended_well(clock: VirtualClock) -> None:
    async def plan(perceptions: Any, context: Context) -> Action:
        return Action(output="done") if context.run.number == 4 else Action([Call("work", {"seconds": 0.1})])

    async with agent_of(clock, plan, calls=4) as agent:
        assert (await agent.wait((await agent.submit("go")).run_id)).status == "ok"


async def test_a_run_of_which_nothing_goes_on_is_ended_and_its_call_cut(clock: VirtualClock) -> None:
    async def plan(perceptions: Any, context: Context) -> Action:
        return Action([Call("work", {"seconds": 1000.0})])

    agent = agent_of(clock, plan, inactivity=30.0)
    ends = heard(agent, RunEnded)
    async with agent:
        status = await agent.wait((await agent.submit("go")).run_id, 600)
        assert (await agent.wait((await agent.submit("go", session="next")).run_id, 600)).status == "error"

    assert status.error == "nothing of it went on for 30 s"
    assert len(ends) == 2
    assert clock.elapsed < 65


async def test_a_run_that_goes_on_slowly_is_not_inactive(clock: VirtualClock) -> None:
    async def plan(perceptions: Any, context: Context) -> Action:
        if context.run.number > 3:
            return Action(output="done")
        return Action([Call("work", {"seconds": 25.0}, id=f"{n}", after=(f"{n - 1}",) if n else ()) for n in range(4)])

    async with agent_of(clock, plan, inactivity=30.0) as agent:
        assert (await agent.wait((await agent.submit("go")).run_id, 600)).status == "ok"
    assert clock.elapsed > 300


@pytest.mark.parametrize("interval", [0.1, "off", "adaptive"])
async def test_the_time_of_a_run_stands_still_while_its_provider_is_down(clock: VirtualClock, interval: Any) -> None:
    asked = 0

    async def plan(perceptions: Any, context: Context) -> Action:
        nonlocal asked
        asked += 1
        if clock.elapsed < 1200:
            return Action(deferred="the provider is down", next_look=60.0)
        return Action(output=[each.text for each in perceptions])

    agent = Agent(plan=plan, clock=clock, loop_interval=interval,
                  settings={"runs": {"timeout": 100.0, "inactivity": 50.0}})  # fmt: skip
    async with agent:
        run = await agent.submit("go", session="chat")
        assert (await agent.wait(run.run_id, 1000)).status == "timeout"
        status = await agent.wait(run.run_id, 1200)

    assert (status.status, status.output) == ("ok", ["go"])
    assert 20 <= asked <= 23


async def test_a_run_that_is_deferred_for_no_time_uses_up_its_own(clock: VirtualClock) -> None:
    async def plan(perceptions: Any, context: Context) -> Action:
        return Action(deferred="the answer was empty", next_look=0.0)

    async with agent_of(clock, plan, timeout=5.0) as agent:
        status = await agent.wait((await agent.submit("go")).run_id)
    assert status.error == "took longer than 5 s"


async def test_something_new_wakes_a_run_that_waits_for_its_provider(clock: VirtualClock) -> None:
    async def plan(perceptions: Any, context: Context) -> Action:
        texts = [each.text for each in perceptions]
        return Action(output=texts) if "now" in texts else Action(deferred="down", next_look=300.0)

    async with agent_of(clock, plan, queue_mode="steer") as agent:
        run = await agent.submit("go")
        await clock.sleep(10)
        await agent.submit("now")
        status = await agent.wait(run.run_id, 5)
    assert status.output == ["go", "now"]


async def test_a_run_whose_first_phase_after_a_restart_fails_goes_on_and_has_its_whole_time(
    clock: VirtualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal fails once, before the second attempt at a message may begin."""

    async def plan(perceptions: Any, context: Context) -> Action:
        return Action(output="done")

    async def fail(restart: Restart, piece: Any, begin: Any = Restart.begin_trial) -> None:
        if not failed:
            failed.append(piece)
            raise TransientError("not now")
        await begin(restart, piece)

    failed: list[Any] = []

    await left_behind(tmp_path, accepted(Item("1", Perception("x", kind="message"), "run", "main", attempts=1)))
    await clock.sleep(1000)
    memory = Memory(f"sqlite:///{tmp_path / 'memory.db'}")
    agent = Agent(plan=plan, memory=memory, clock=clock, loop_interval="off", settings={"runs": {"timeout": 600}})
    monkeypatch.setattr(Restart, "begin_trial", fail)
    async with agent:
        assert (await agent.wait("1", 500)).status == "ok"
    assert failed
