"""What people are told of a run that failed, and what a run took."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from memory import Memory
from planning.llm.planner import ModelPlanner
from planning.ports import Usage
from spar import Action, Agent, Call, Decision, Perception, PermanentError, tool
from spar.events import MessageSent, RunEnded
from spar.hooks import HookContext
from spar.runs.ends import EndedRun
from spar.testing import ScriptedModel, VirtualClock, stream
from tests.doubles import heard


async def refused(perceptions: Any) -> None:
    raise PermanentError("provider: 401 invalid key sk-abcdefgh12345678\nand more")


async def without_end(perceptions: Any) -> None:
    await asyncio.Event().wait()


def sent(agent: Agent) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    agent.events.subscribe(MessageSent, lambda event: found.append((event.route, event.text)))
    return found


@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("session", ["main", "alice"])
async def test_a_run_that_fails_tells_its_person_one_sentence_without_secrets(
    clock: VirtualClock, tmp_path: Path, keeps: bool, session: str
) -> None:
    memory = Memory.open(f"sqlite:///{tmp_path}/m.db") if keeps else None
    agent = Agent(plan=refused, clock=clock, memory=memory, loop_interval=0.1)
    told = sent(agent)
    async with agent:
        status = await agent.wait((await agent.submit("do it", session=session)).run_id)

    sentence = "I could not finish this: provider: 401 invalid key *** and more"
    assert told == [(session, sentence)]
    assert (status.status, status.reply, status.silent) == ("error", sentence, False)
    assert "sk-abcdefgh" in status.error


@pytest.mark.parametrize("guarded", [True, False])
@pytest.mark.parametrize("plan", [refused, without_end], ids=["fails", "takes too long"])
async def test_hooks_see_what_is_told_of_a_failure_before_people_do(
    clock: VirtualClock, plan: Any, guarded: bool
) -> None:
    agent = Agent(plan=plan, clock=clock, loop_interval=0.1, settings={"runs": {"timeout": 5.0}})
    told = sent(agent)
    if guarded:

        @agent.hook("message_sending")
        async def dress(ctx: HookContext) -> Decision:
            return Decision.rewrite(f"Sorry. {ctx.value}")

    async with agent:
        status = await agent.wait((await agent.submit("do it")).run_id)
        await clock.sleep(1)

    assert status.status == "error"
    (text,) = [text for _, text in told]
    assert text.startswith("Sorry. I could not finish this: " if guarded else "I could not finish this: ")


async def test_a_failure_is_told_also_after_something_else_and_never_twice(clock: VirtualClock) -> None:
    agent = Agent(clock=clock, loop_interval=0.1)
    agents = [agent]

    @tool
    async def say(text: str) -> bool:
        return await agents[0].conversations.outbox.tell(runs[0], "main", "main", text)

    async def plan(perceptions: Any, context: Any) -> Action:
        if context.run.number == 1:
            return Action([Call("say", {"text": each}) for each in ("On it.", "I could not finish this: too hard")])
        raise PermanentError("too hard")

    runs: list[str] = []
    agents[0] = agent = Agent(plan=plan, tools=[say], clock=clock, loop_interval=0.1)
    told = sent(agent)
    async with agent:
        runs.append((await agent.submit("do it")).run_id)
        await agent.wait(runs[0])

    assert [text for _, text in told] == ["On it.", "I could not finish this: too hard"]


async def test_those_whose_messages_became_one_run_are_told_once(clock: VirtualClock) -> None:
    settings = {"runs": {"queue_mode": "collect", "quiet": 1.0}}
    agent = Agent(plan=refused, clock=clock, loop_interval=0.1, settings=settings)
    told = sent(agent)
    async with agent:
        ids = [(await agent.submit(text)).run_id for text in ("one", "two", "three")]
        statuses = [await agent.wait(each) for each in ids]

    assert [each.status for each in statuses] == ["error"] * 3
    assert len(told) <= 2  # one that had begun, and the others together
    assert len({text for _, text in told}) == 1


async def test_nobody_is_told_of_what_people_have_called_off_or_sent_something_else_for(clock: VirtualClock) -> None:
    settings = {"runs": {"cap": 2, "drop": "new"}}
    agent = Agent(plan=without_end, clock=clock, loop_interval=0.1, settings=settings)
    told = sent(agent)
    async with agent:
        first = (await agent.submit("first")).run_id
        await clock.sleep(1)
        newest = (await agent.submit("newest", mode="interrupt")).run_id
        await clock.sleep(1)
        waiting = [(await agent.submit(f"{number}")).run_id for number in range(2)]
        dropped = (await agent.submit("one too many")).run_id
        for run_id in (*waiting, newest):
            await agent.abort(run_id)
        statuses = [await agent.wait(each) for each in (first, newest, *waiting, dropped)]

    assert [each.status for each in statuses] == ["error"] * 5
    assert (told, [each.reply for each in statuses]) == ([], [None] * 5)


async def test_nobody_is_told_where_that_is_turned_off_or_nobody_asked(clock: VirtualClock) -> None:
    quiet = Agent(plan=refused, clock=clock, loop_interval=0.1, settings={"runs": {"tell_errors": False}})
    told = sent(quiet)
    async with quiet:
        assert (await quiet.wait((await quiet.submit("do it")).run_id)).reply is None

    pursuing = Agent(plan=ModelPlanner(ScriptedModel([PermanentError("no")] * 9)), clock=clock, loop_interval=0.1)
    told += sent(pursuing)
    ended: list[RunEnded] = []
    pursuing.events.subscribe(RunEnded, ended.append)
    async with pursuing:
        pursuing.push(Perception("disk is full", source="host"))
        await clock.sleep(60)

    assert [each.status for each in ended] == ["error"]
    assert told == []


# -- what it took


async def test_what_a_run_took_is_in_its_status_its_event_and_its_transcript(clock: VirtualClock) -> None:
    @tool(effect="read")
    async def look() -> str:
        return "seen"

    answers = [
        stream([{"_tool": "look"}, {"_tool": "look", "_id": "b"}, Usage("m", 100, 20, 40, 7)]),
        stream([{"output": "done"}, Usage("m", 200, 10, 80, 5)]),
    ]
    agent = Agent(plan=ModelPlanner(ScriptedModel(answers)), tools=[look], clock=clock, loop_interval=0.1)
    ended = heard(agent, RunEnded)
    async with agent:
        run_id = (await agent.submit("look")).run_id
        status = await agent.wait(run_id)
        entries = await agent.conversations.transcripts.read("main")
        events = [event async for event in agent.events.run(run_id, after=0)]

    usage = status.usage
    assert (usage.requests, usage.calls, usage.money, usage.waited) == (2, 2, 12, 0.0)
    assert (usage.input_tokens, usage.output_tokens, usage.cached_tokens) == (300, 30, 120)
    assert ended[0].usage == usage
    assert entries[-1].body["usage"]["input_tokens"] == 300
    assert events[-1].data["usage"]["cached_tokens"] == 120


async def test_a_hook_after_a_run_has_all_messages_of_its_cycles(clock: VirtualClock) -> None:
    @tool(effect="read")
    async def look() -> str:
        return "seen"

    model = ScriptedModel([{"calls": [{"_tool": "look"}]}, {"calls": [{"_tool": "none"}]}, {"output": "done"}])
    agent = Agent(plan=ModelPlanner(model), tools=[look], clock=clock, loop_interval=0.1)
    seen: list[EndedRun] = []

    @agent.hook("after_run")
    async def keep(ctx: HookContext) -> None:
        seen.append(ctx.value)

    async with agent:
        await agent.wait((await agent.submit("look")).run_id)
        await clock.sleep(1)

    assert [each["kind"] for each in seen[0].messages] == ["result", "error"]
    assert (seen[0].output, seen[0].usage.requests) == ("done", 3)
