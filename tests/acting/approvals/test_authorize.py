"""What a call passes without anybody being asked, and in which order the others are decided on."""

from __future__ import annotations

import asyncio
from typing import Any

from acting import Executor
from spar.bus.bus import Events
from spar.events import CallEvent, CallSkipped
from spar.hooks import Decision, HookContext, Hooks
from spar.protocols.tools import tool
from spar.testing import VirtualClock
from spar.types import Action, Call, Verdict
from tests.acting.approval_tools import World, answer, desk_of, executor, faults, pending, statuses


async def test_without_approval_settings_only_terms_and_hooks_decide(clock: VirtualClock) -> None:
    world = World()
    made = Executor(world.tools(), clock=clock)
    result = await made.run(Action((Call("plain", {"what": 1}), Call("act", {"what": 2})), trust="untrusted"))

    assert statuses(result) == ["ok", "denied denied"]
    assert "nobody is there to ask" in result.results[1].fault.message
    assert made.approvals is None


async def test_an_approver_in_the_program_is_asked_instead_of_the_desk(clock: VirtualClock) -> None:
    world = World()
    made = executor(world, clock)
    shown: list[Call] = []

    def confirm(call: Call) -> bool:
        shown.append(call)
        return call.params["what"] == 1

    calls = [Call("act", {"what": 1}), Call("act", {"what": 2})]
    assert statuses(await made.run(calls, confirm=confirm)) == ["ok", "denied denied"]
    made.confirm = lambda call: Verdict.approve()
    assert statuses(await made.act(Action((Call("act", {"what": 3}),)))) == ["ok"]
    assert (world.done, list(await desk_of(made).list(None))) == ([1, 3], [])


async def test_a_hook_may_demand_an_answer_of_the_desk_or_deny_before_it(clock: VirtualClock) -> None:
    world, hooks = World(), Hooks()
    made = Executor(world.tools(), clock=clock, hooks=hooks, settings={"approval": {"hold": 30.0}})

    async def guard(ctx: HookContext) -> Decision | None:
        return {1: Decision.require_approval("it is the first"), 2: Decision.deny("no")}.get(ctx.value.params["what"])

    hooks.add("before_call", guard)
    running = asyncio.ensure_future(made.run([Call("plain", {"what": n}) for n in (1, 2, 3)]))
    (asked,) = await pending(made)
    assert asked.why == "it is the first"
    await answer(made, asked)
    assert statuses(await running) == ["ok", "denied denied", "ok"]


async def test_what_the_policy_forbids_is_denied_without_a_question_also_as_an_edit(clock: VirtualClock) -> None:
    world, told, events = World(), list[Any](), Events("main", clock=clock)
    events.subscribe(CallEvent, told.append)
    rules = [{"params": {"what": "secret*"}, "decision": "deny"}]
    made = executor(world, clock, events=events, rules=rules)
    result = await made.run([Call("plain", {"what": "secrets"})])
    assert (statuses(result), faults(result)) == (["denied denied"], ["denied"])
    assert result.results[0].fault.message == "rule 1 of the approval rules forbids it"
    assert [type(event) for event in told[1:]] == [CallSkipped]

    running = asyncio.ensure_future(made.run([Call("act", {"what": "x"})]))
    await answer(made, (await pending(made))[0], "edit", params={"what": "secrets"})
    assert statuses(await running) == ["denied denied"]
    assert world.done == []


async def test_a_rule_sees_the_values_that_the_tool_is_given(clock: VirtualClock) -> None:
    ran: list[bool] = []

    @tool
    async def wipe(force: bool = False) -> None:
        ran.append(force)

    made = executor(World(), clock, tools=[wipe], rules=[{"params": {"force": True}, "decision": "deny"}])
    result = await made.run([Call("wipe", {"force": each}) for each in (True, "true", 1, False)])

    assert statuses(result) == ["denied denied", "failed", "failed", "ok"]
    assert ran == [False]


async def test_a_rule_by_effect_goes_by_what_the_call_does(clock: VirtualClock) -> None:
    class Files:
        name, effect, timeout = "files", "once", 5.0
        schema = {"type": "object", "properties": {"op": {"type": "string"}}, "required": ["op"]}  # noqa: RUF012

        def effect_of(self, params: Any) -> str:
            return "read" if params["op"] == "list" else "once"

        async def __call__(self, op: str) -> str:
            return op

    made = executor(World(), clock, tools=[Files()], rules=[{"effect": "once", "decision": "deny"}])
    assert statuses(await made.run([Call("files", {"op": "list"}), Call("files", {"op": "rm"})])) == [
        "ok",
        "denied denied",
    ]


async def test_a_call_that_nobody_must_look_at_starts_no_task_of_its_own(clock: VirtualClock) -> None:
    tasks: list[str] = []

    @tool
    async def who() -> None:
        task = asyncio.current_task()
        tasks.append(task.get_name())

    made = executor(World(), clock, tools=[who])
    await made.run([Call("who") for _ in range(10)])

    assert len(set(tasks)) == 1
