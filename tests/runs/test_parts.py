"""Messages that became a part of a run: they end with it, on disk and for whoever waits, and once."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from memory import Memory
from spar import Action, Agent, Call, Context, Decision, Perception, facts, tool
from spar.events import ErrorOccurred, Event, RunEnded
from spar.facts import Fact
from spar.hooks import HookContext
from spar.records.journal import Item
from spar.testing import VirtualClock
from tests.doubles import heard
from tests.journal.left import tell


@tool(effect="read")
async def work() -> None:
    await asyncio.sleep(1.0)


async def plan(perceptions: Sequence[Perception], context: Context) -> Action | None:
    if context.run is None:
        return None
    return Action(output="done") if context.run.said else Action((Call("work"),))


def agent_at(folder: Path, clock: VirtualClock, planner: Any = plan, **options: Any) -> Agent:
    memory = Memory(f"sqlite:///{folder / 'memory.db'}")
    return Agent(plan=planner, tools=[work], memory=memory, clock=clock, loop_interval=0.1, **options)


def told(agent: Agent) -> list[str]:
    """The runs of whose end an agent tells from now on."""
    found: list[str] = []
    agent.events.subscribe(RunEnded, lambda event: found.append(event.run_id))
    return found


async def told_by_the_next(folder: Path, clock: VirtualClock, *runs: str) -> tuple[list[str], list[Any]]:
    """The runs of whose end the next process tells, and what it knows of some."""
    agent = agent_at(folder, clock)
    again = told(agent)
    async with agent:
        await clock.sleep(10)
        return again, [await agent.wait(run, 1) for run in runs]


def killed_at_end_of(number: int, agent: Agent, folder: Path, to: Path) -> None:
    """Keep the files as a kill would leave them at the moment in which the end of this many runs has been told."""
    ends: list[Event] = []

    def seen(event: Event) -> None:
        ends.append(event)
        if len(ends) == number:
            shutil.copytree(folder, to, ignore=shutil.ignore_patterns("*.lock"))

    agent.events.subscribe(RunEnded, seen)


async def steered(agent: Agent, clock: VirtualClock) -> list[str]:
    """A run and the message that has become a part of it; their ids."""
    run = await agent.submit("one")
    await clock.sleep(0.5)
    part = await agent.submit("two", mode="steer")
    await clock.sleep(0.1)
    return [run.run_id, part.run_id]


@pytest.mark.parametrize("number", [1, 2])
async def test_a_part_is_never_told_twice_to_have_ended_though_the_process_dies_as_it_tells(
    clock: VirtualClock, tmp_path: Path, number: int
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    async with agent_at(first, clock) as agent:
        killed_at_end_of(number, agent, first, second)
        runs = await steered(agent, clock)
        answers = [await agent.wait(run, 60) for run in runs]

    again, known = await told_by_the_next(second, clock, *runs)

    assert again == []
    assert known == answers
    assert [(each.status, each.outcome, each.output) for each in known] == [
        ("ok", "started", "done"),
        ("ok", "steered", "done"),
    ]


@pytest.mark.parametrize("number", [1, 2])
async def test_the_parts_of_a_run_that_is_called_off_end_with_it_on_disk(
    clock: VirtualClock, tmp_path: Path, number: int
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()

    async def wait(perceptions: Sequence[Perception], context: Context) -> Action | None:
        if context.run is not None and context.run.said:  # then no cycle has the run in hand
            return Action(deferred="the provider is down", next_look=30.0)
        return await plan(perceptions, context)

    async with agent_at(first, clock, wait) as agent:
        killed_at_end_of(number, agent, first, second)
        runs = await steered(agent, clock)
        await clock.sleep(5)
        await agent.abort(runs[0])
        answers = [await agent.wait(run, 1) for run in runs]

    again, known = await told_by_the_next(second, clock, *runs)

    assert again == []
    assert [(each.status, each.error) for each in answers] == [("error", "aborted")] * 2
    assert [(each.status, each.error) for each in known] == [("error", "aborted")] * 2


async def test_a_part_has_the_answer_that_hooks_have_left_of_the_run(clock: VirtualClock, tmp_path: Path) -> None:
    agent = agent_at(tmp_path, clock)

    @agent.hook("message_sending")
    async def polite(ctx: HookContext) -> Decision:
        return Decision.rewrite(f"{ctx.value}, please")

    async with agent:
        runs = await steered(agent, clock)
        answers = [await agent.wait(run, 60) for run in runs]
        await clock.sleep(1)
    async with agent_at(tmp_path, clock) as agent:
        known = [await agent.wait(run, 1) for run in runs]

    assert [(each.output, each.reply) for each in answers] == [("done, please", "done, please")] * 2
    assert known == answers


async def test_a_part_cannot_be_called_off_while_people_are_told_the_answer_of_its_run(
    clock: VirtualClock, tmp_path: Path
) -> None:
    agent = agent_at(tmp_path, clock)
    asked = asyncio.Event()

    @agent.hook("message_sending")
    async def slow(ctx: HookContext) -> None:
        asked.set()
        await clock.sleep(1)

    async with agent:
        runs = await steered(agent, clock)
        await asked.wait()
        await agent.abort(runs[1])
        answers = [await agent.wait(run, 60) for run in runs]
    async with agent_at(tmp_path, clock) as agent:
        known = [await agent.wait(run, 1) for run in runs]

    assert [(each.status, each.output) for each in answers] == [("ok", "done")] * 2
    assert [(each.status, each.output) for each in known] == [("ok", "done")] * 2


async def test_a_part_that_an_earlier_process_left_is_told_to_have_ended_once_though_the_process_dies_as_it_tells(
    clock: VirtualClock, tmp_path: Path
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    async with Memory(f"sqlite:///{first / 'memory.db'}") as memory:  # as an older release left it
        tell(memory.journal, facts.WorkChanged, item=Item("whole", Perception("one", id="1"), "run"))
        tell(memory.journal, facts.WorkChanged, item=Item("part", Perception("two", id="2"), "run", into="whole"))
        tell(
            memory.journal, facts.RunAnswered, run="whole", answer={"run_id": "whole", "status": "ok", "output": "done"}
        )
        await memory.journal.safe()
    agent = agent_at(first, clock)
    killed_at_end_of(1, agent, first, second)
    before = told(agent)
    async with agent:
        await clock.sleep(10)

    again, [known] = await told_by_the_next(second, clock, "part")

    assert before == ["part"]
    assert again == []
    assert (known.status, known.output) == ("ok", "done")


async def test_a_store_that_refuses_the_end_of_a_run_fails_neither_the_run_nor_its_session(
    clock: VirtualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def plan(perceptions: list[Perception]) -> Action:
        return Action(output="done")

    memory = Memory(f"sqlite:///{tmp_path / 'm.db'}", ballast=0)
    async with Agent(plan=plan, memory=memory, clock=clock, loop_interval=60.0) as agent:
        append = memory.journal.append

        def refuse(fact: Fact, agent: str) -> None:
            if isinstance(fact, facts.RunAnswered):
                raise ValueError("no room for this answer")
            append(fact, agent)

        monkeypatch.setattr(memory.journal, "append", refuse)
        errors = heard(agent, ErrorOccurred)
        for text in ("one", "two"):
            assert (await agent.wait((await agent.submit(text)).run_id, 60)).status == "ok"
        assert not [error for error in errors if error.phase == "loop"], "the loop did not fail"
