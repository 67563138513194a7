"""A run whose calls wait for people asks its model nothing until they have answered or somebody says something."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from acting import Executor
from acting.run.parked import Approvals
from memory import Memory
from planning.llm.planner import ModelPlanner
from spar import Action, Agent, Call, Perception, tool
from spar.testing import ScriptedModel, VirtualClock
from tests.planning.desk import read_of

PAY = {"calls": [{"_tool": "pay", "amount": 5}]}


def paying(model: ScriptedModel, clock: VirtualClock, done: list[int]) -> Agent:
    @tool(approval="ask")
    async def pay(amount: int) -> str:
        done.append(amount)
        return f"paid {amount}"

    executor = Executor([pay], settings={"approval": {"hold": 0.0}})
    return Agent(plan=ModelPlanner(model), act=executor, clock=clock, loop_interval=0.1)


@pytest.mark.parametrize("session", ["main", "alice"])
@pytest.mark.parametrize("decision", ["approve", "deny"])
async def test_the_model_is_asked_again_once_people_have_answered(
    clock: VirtualClock, session: str, decision: Any
) -> None:
    done: list[int] = []
    model = ScriptedModel([PAY, {"output": "so be it"}])
    agent = paying(model, clock, done)
    async with agent:
        run_id = (await agent.submit("pay", session=session)).run_id
        await clock.sleep(120)
        assert (len(model.requests), (await agent.wait(run_id, 0)).status) == (1, "timeout")

        (asked,) = await agent.approvals.list()
        await agent.approvals.decide(asked.id, decision, reason="for a reason", by="ann")
        answered = clock.elapsed
        status = await agent.wait(run_id, 60)
        took = clock.elapsed - answered
        await clock.sleep(60)

    assert (status.status, status.output, len(model.requests)) == ("ok", "so be it", 2)
    assert done == ([5] if decision == "approve" else [])
    said = "paid 5" if decision == "approve" else "for a reason"
    assert said in read_of(model.requests[1])
    assert took < 10


async def test_what_somebody_says_meanwhile_is_heard_at_once(clock: VirtualClock) -> None:
    model = ScriptedModel([PAY, {"output": "then not"}])
    agent = paying(model, clock, [])
    async with agent:
        run_id = (await agent.submit("pay", session="alice")).run_id
        await clock.sleep(60)
        await agent.submit("no, leave it", session="alice", mode="steer")
        status = await agent.wait(run_id, 10)

    assert status.output == "then not"
    assert "leave it" in read_of(model.requests[1])


async def test_a_question_that_nobody_answers_ends_with_its_denial(clock: VirtualClock) -> None:
    model = ScriptedModel([PAY, {"output": "nobody answered"}])
    agent = paying(model, clock, [])
    async with agent:
        status = await agent.wait((await agent.submit("pay")).run_id, 3_600)

    assert (status.output, len(model.requests)) == ("nobody answered", 2)


class ForgetsNothing(Executor):
    """An actor whose process ends between the end of a run and what follows from it."""

    async def abandon(self, run_id: str) -> None:
        raise OSError("the process was killed")


async def test_what_an_ended_run_asked_is_void_at_the_next_start_though_its_process_died_before(
    clock: VirtualClock, tmp_path: Path
) -> None:
    done: list[int] = []

    @tool(approval="ask")
    async def pay(amount: int) -> str:
        done.append(amount)
        return f"paid {amount}"

    def living(kind: type[Executor], replies: list[Any]) -> Agent:
        memory = Memory(f"sqlite:///{tmp_path}/memory.db", ballast=0)
        act = kind([pay], settings={"approval": {"hold": 0.0}})
        return Agent(plan=ModelPlanner(ScriptedModel(replies)), act=act, clock=clock, memory=memory, loop_interval=0.1)

    async with living(ForgetsNothing, [PAY, PAY]) as agent:
        ended = (await agent.submit("pay", session="alice")).run_id
        kept = (await agent.submit("pay", session="bob")).run_id
        await clock.sleep(60)
        await agent.abort(ended)
        assert {asked.run_id for asked in await agent.approvals.list()} == {ended, kept}

    async with living(Executor, [{"output": "so be it"}]) as agent:
        (asked,) = await agent.approvals.list()
        assert asked.run_id == kept
        await agent.approvals.decide(asked.id, "approve", by="ann")
        assert (await agent.wait(kept, 60)).output == "so be it"
    assert done == [5]


async def test_a_call_that_was_answered_before_its_session_began_again_goes_on_at_once(
    clock: VirtualClock, tmp_path: Path
) -> None:
    """After a restart the session waits for a slot while people answer."""
    slow = [1_000.0, 5.0]

    @tool(approval="ask")
    async def pay(amount: int) -> str:
        return f"paid {amount}"

    async def answer(request: Any) -> Any:
        if "slowly" in read_of(request):
            await clock.sleep(slow.pop(0))
            return {"output": "done"}
        return {"output": "so be it"} if "paid 5" in read_of(request) else PAY

    def living(limit: int) -> Agent:
        act = Executor([pay], settings={"approval": {"hold": 0.0}})
        memory = Memory(f"sqlite:///{tmp_path}/memory.db", ballast=0)
        return Agent(plan=ModelPlanner(answer), act=act, clock=clock, memory=memory, loop_interval=0.1,
                     settings={"runs": {"limit": limit}})  # fmt: skip

    agent = living(2)
    await agent.start()
    await agent.submit("slowly", session="alice")
    run_id = (await agent.submit("pay", session="bob")).run_id
    await clock.sleep(60)
    await agent.stop(deadline=0)
    async with living(1) as agent:
        (asked,) = await agent.approvals.list()
        await agent.approvals.decide(asked.id, "approve", by="ann")
        answered = clock.elapsed
        assert (await agent.wait(run_id, 60)).output == "so be it"
        assert clock.elapsed - answered < 10


async def test_a_call_that_waits_again_is_asked_about_once_though_the_process_dies_before_its_cycle_is_closed(
    clock: VirtualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[int] = []
    alive, dead = tmp_path / "alive", tmp_path / "dead"
    alive.mkdir()

    @tool(effect="once", approval="ask")
    async def pay(amount: int) -> str:
        done.append(amount)
        return f"paid {amount}"

    async def plan(perceptions: Sequence[Perception], context: Any) -> Action | None:
        if context.run is None or context.run.number > 1:
            return Action(output="asked") if context.run else None
        return Action([Call("pay", {"amount": int(amount)}) for amount in context.run.goal.split()])

    def living(folder: Path) -> Agent:
        memory = Memory(f"sqlite:///{folder}/memory.db", ballast=0)
        act = Executor([pay], settings={"approval": {"hold": 0.0}})
        return Agent(plan=plan, act=act, clock=clock, memory=memory, loop_interval=0.1)

    forget = Approvals._forget

    async def forget_and_die(self: Approvals, row: Any) -> None:
        await forget(self, row)
        if not dead.exists():
            shutil.copytree(alive, dead, ignore=shutil.ignore_patterns("*.lock"))

    async def approve(agent: Agent, *amounts: int) -> None:
        for asked in await agent.approvals.list():
            if asked.call.params["amount"] in amounts:
                await agent.approvals.decide(asked.id, "approve", by="ann")

    monkeypatch.setattr(Approvals, "_forget", forget_and_die)
    async with living(alive) as agent:
        for goal in ("1 2", "3 4"):
            assert (await agent.wait((await agent.submit(goal)).run_id, 60)).output == "asked"
        await agent.pause()
        await approve(agent, 1, 3)
        await agent.resume()
        await clock.sleep(60)
    assert sorted(done) == [1, 3]

    async with living(dead) as agent:
        await clock.sleep(60)
        assert len(await agent.approvals.list()) == 2
        await approve(agent, 2, 4)
        await clock.sleep(60)
        assert await agent.approvals.list() == []
    assert sorted(done) == [1, 2, 3, 4]
