"""What people are told: answers and what is said during a run, each once, under the eyes of hooks."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from memory import Memory
from spar import Action, Agent, Call, Decision, Perception, tool
from spar.events import MessageSent
from spar.protocols import Host
from spar.testing import VirtualClock


class Speaker:
    """An act module that says texts on routes, as the call asks."""

    effect = "read"

    def attach(self, host: Host) -> None:
        self.host = host
        self.told: list[bool] = []

    async def act(self, action: Action) -> Any:
        assert self.host.deliver is not None
        run_id, session = action.perceptions[0].attributes["run"], action.perceptions[0].session
        for call in action.calls:
            self.told.append(
                await self.host.deliver(run_id, session, call.params.get("to", session), call.params["text"])
            )
        from spar import ActionResult, CallResult

        return ActionResult(action, "ok", tuple(CallResult(call, "ok") for call in action.calls))


def speaking(*says: Any, output: Any) -> tuple[Any, Speaker]:
    """A planner and an actor of a run that says these texts (with a route: pairs) and then answers."""

    async def plan(perceptions: list[Perception], context: Any) -> Action:
        message = perceptions[0]
        message.attributes["run"] = context.run.id
        calls = [Call("say", {"text": each} if isinstance(each, str) else {"to": each[0], "text": each[1]})
                 for each in says]  # fmt: skip
        return Action(calls, output=output)

    return plan, Speaker()


def sent(agent: Agent) -> list[tuple[str, str, bool]]:
    found: list[tuple[str, str, bool]] = []
    agent.events.subscribe(MessageSent, lambda event: found.append((event.route, event.text, event.is_answer)))
    return found


async def test_an_answer_is_told_and_so_is_what_was_said_before(clock: VirtualClock) -> None:
    plan, act = speaking("I am looking into it", output="It is done")
    agent = Agent(plan=plan, act=act, clock=clock)
    told = sent(agent)
    async with agent:
        status = await agent.wait((await agent.submit("do it")).run_id)

    assert told == [("main", "I am looking into it", False), ("main", "It is done", True)]
    assert (status.output, status.reply, status.silent) == ("It is done", "It is done", False)


async def test_what_was_said_already_is_told_once_on_a_route_and_again_on_another(clock: VirtualClock) -> None:
    plan, act = speaking("The build is green.", "the build is GREEN. 🎉", ("pager", "The build is green."),
                         output="THE build is green.")  # fmt: skip
    agent = Agent(plan=plan, act=act, clock=clock)
    told = sent(agent)
    async with agent:
        status = await agent.wait((await agent.submit("do it")).run_id)

    assert told == [("main", "The build is green.", False), ("pager", "The build is green.", False)]
    assert act.told == [True, False, True]
    assert status.reply == "THE build is green."  # who asks is answered in any case


async def test_another_run_may_say_the_same(clock: VirtualClock) -> None:
    plan, act = speaking(output="The build is green.")
    agent = Agent(plan=plan, act=act, clock=clock)
    told = sent(agent)
    async with agent:
        for _ in range(2):
            await agent.wait((await agent.submit("do it")).run_id)

    assert len(told) == 2


async def test_a_failed_call_without_an_answer_is_told_in_one_sentence(clock: VirtualClock) -> None:
    @tool(effect="read")
    async def fetch() -> None:
        raise OSError("no route to host")

    async def plan(perceptions: Any, context: Any) -> Action | None:
        return Action([Call("fetch"), Call("fetch")]) if context.run.number == 1 else None

    agent = Agent(plan=plan, tools=[fetch], clock=clock)
    told = sent(agent)
    async with agent:
        status = await agent.wait((await agent.submit("get it")).run_id)

    text = "fetch did not work: no route to host (1 more calls did not end well)"
    assert told == [("main", text, True)]
    assert (status.status, status.output, status.reply) == ("ok", None, text)


@pytest.mark.parametrize("is_kept", [False, True])
async def test_a_hook_changes_what_people_are_told_and_what_is_kept_of_it(
    clock: VirtualClock, tmp_path: Path, is_kept: bool
) -> None:
    plan, act = speaking("the key is 123", output="the key is 123")
    memory = Memory(f"sqlite:///{tmp_path / 'memory.db'}") if is_kept else None
    agent = Agent(plan=plan, act=act, clock=clock, memory=memory)
    told, heard = sent(agent), []

    @agent.hook("message_sending")
    async def hide(ctx: Any) -> Decision:
        return Decision.rewrite(ctx.value.replace("123", "***"))

    @agent.hook("message_sent")
    async def hear(ctx: Any) -> None:
        heard.append((ctx.value, ctx.session, ctx.run_id))

    async with agent:
        receipt = await agent.submit("tell me")
        status = await agent.wait(receipt.run_id)

    assert told == [("main", "the key is ***", False)]  # the answer says nothing new
    assert heard == [("the key is ***", "main", receipt.run_id)]
    assert (status.output, status.reply) == ("the key is ***", "the key is ***")
    if is_kept:
        later = Agent(plan=plan, act=act, clock=clock, memory=Memory(f"sqlite:///{tmp_path / 'memory.db'}"))
        async with later:
            again = await later.wait(receipt.run_id)
        assert (again.output, again.reply) == ("the key is ***", "the key is ***")


async def test_what_hooks_could_not_be_asked_about_is_told_to_nobody(clock: VirtualClock) -> None:
    """The run is called off, so that its cycle ends at once; what stands for its answer has the words of a tool."""

    @tool(effect="read")
    async def fetch() -> None:
        raise OSError("the key is 123")

    @tool(effect="read")
    async def rest() -> None:
        await asyncio.sleep(60)

    async def plan(perceptions: Any, context: Any) -> Action:
        return Action([Call("fetch")] if context.run.number == 1 else [Call("fetch"), Call("rest")])

    agent = Agent(plan=plan, tools=[fetch, rest], clock=clock, loop_interval=0.1)
    told = sent(agent)
    agent.hooks.add("message_sending", lambda ctx: Decision.rewrite(ctx.value.replace("123", "***")))
    async with agent:
        receipt = await agent.submit("get it")
        await clock.sleep(1.0)
        await agent.abort(receipt.run_id)
        status = await agent.wait(receipt.run_id, 0)

    assert told == []
    assert (status.status, status.error, status.reply) == ("error", "aborted", None)


async def test_a_hook_keeps_an_answer_back(clock: VirtualClock) -> None:
    plan, act = speaking(output="a secret")
    agent = Agent(plan=plan, act=act, clock=clock)
    told = sent(agent)
    agent.hooks.add("message_sending", lambda ctx: Decision.deny("not to strangers"))
    async with agent:
        status = await agent.wait((await agent.submit("tell me")).run_id)

    assert told == []
    assert (status.status, status.output, status.reply, status.silent) == ("ok", None, None, True)
