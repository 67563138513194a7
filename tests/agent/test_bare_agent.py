"""An agent of two functions: it makes and loads only what its cycles use."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from spar import Action, Agent, Call, Perception
from spar.parts.defaults import ActorOnUse

#: Two cycles without an action. It prints all modules.
BARE = """
import asyncio, sys
from spar import Agent, Perception

async def plan(perceptions):
    return None

async def main():
    turns, over = 0, asyncio.Event()
    async def sense():
        nonlocal turns
        turns += 1
        over.set() if turns == 3 else None
        return [Perception("tick")]
    async with Agent(sense=sense, plan=plan, loop_interval=0):
        await over.wait()

asyncio.run(main())
print(*sys.modules)
"""
#: Packages and modules of features that such an agent does not use.
UNUSED = (
    "acting", "memory", "perception", "planning", "reflection", "spar.agent.exchange", "spar.agent.hosting",
    "spar.agent.submission", "spar.attaching", "spar.budgets", "spar.bus.streams",
    "spar.bus.subscriptions", "spar.data.json_safe", "spar.data.learning", "spar.data.scrub", "spar.data.text",
    "spar.data.text_blocks", "spar.decisions.place", "spar.decisions.resume", "spar.decoding", "spar.events.table",
    "spar.health.judge", "spar.health.ladder", "spar.health.models", "spar.interim", "spar.journal.cycle_log",
    "spar.journal.failed_work", "spar.journal.in_memory", "spar.journal.restart", "spar.journal.state.stored_state",
    "spar.learning", "spar.loop.plan_stream", "spar.parts.factory", "spar.parts.registry", "spar.ports.channel",
    "spar.ports.store", "spar.records.approvals", "spar.records.senders", "spar.review", "spar.runs.outbox",
    "spar.bus.run_log", "spar.runs.transcripts", "spar.session.resets", "spar.session.session_records",
)  # fmt: skip


@pytest.fixture(scope="module")
def loaded() -> set[str]:
    done = subprocess.run([sys.executable, "-c", BARE], capture_output=True, text=True, timeout=60, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("name", UNUSED)
def test_cycles_without_an_action_load_no_feature(loaded: set[str], name: str) -> None:
    assert not {module for module in loaded if module == name or module.startswith(f"{name}.")}


async def plan(perceptions: Sequence[Perception]) -> Action:
    return Action(calls=[Call("nothing")])


def actor_of(agent: Agent) -> ActorOnUse:
    actor = agent.setup.modules["act"].part
    assert isinstance(actor, ActorOnUse)
    return actor


async def test_the_first_action_makes_the_actor_and_its_result_the_reflector() -> None:
    agent = Agent(plan=plan, sense=lambda: [Perception("tick")])
    actor = actor_of(agent)
    assert isinstance(await agent.step_plan(Perception("tick")), Action)
    assert (agent.setup.modules["act"].name, agent.setup.modules["reflect"].name) == ("Executor", "Reflect")
    assert not hasattr(actor, "interrupted")  # as long as it has nothing to interrupt
    result = await agent.step_act()
    assert [(item.status, item.fault.kind if item.fault else "") for item in result.results] == [
        ("failed", "unknown_tool")
    ]
    reflection = await agent.step_reflect()
    assert [failure.call.tool for failure in reflection.failures] == ["nothing"]
    await agent.stop()


async def test_approvals_of_an_agent_without_tools_are_empty() -> None:
    async with Agent(plan=lambda perceptions: None, sense=lambda: []) as agent:
        assert agent.approvals.list() == []
        with pytest.raises(LookupError):
            await agent.approvals.decide("a", "approve")


async def test_an_agent_that_starts_again_opens_the_actor_again() -> None:
    reflected = asyncio.Event()
    agent = Agent(plan=plan, sense=lambda: [], reflect=lambda result: reflected.set(), loop_interval="off")
    for _ in range(2):
        reflected.clear()
        async with agent:
            run = await agent.submit("go")
            await reflected.wait()
            await agent.abort(run.run_id)


def test_threads_that_push_at_the_same_time_make_one_of_what_messages_need() -> None:
    agent = Agent(plan=plan)
    with ThreadPoolExecutor(8) as threads:
        parts = set(threads.map(lambda _: id(agent.conversations), range(64)))

    assert len(parts) == 1
