"""What people and hooks made of a call is told to whoever plans next."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from acting import Executor
from planning import Requests
from planning.llm.planner import ModelPlanner
from spar import Agent, Call, Verdict, tool
from spar.hooks import Decision, HookContext, Hooks
from spar.protocols import Context
from spar.testing import ScriptedModel, VirtualClock
from spar.types import Action, ActionResult
from tests.acting.approval_tools import World, answer, executor, on_hand, pending, remembering, statuses


@tool(effect="once", approval="ask")
async def pay(amount: int) -> str:
    return f"paid {amount}"


@tool(effect="once")
async def donate(amount: int) -> str:
    return f"gave {amount}"


def corrections(result: ActionResult) -> list[dict[str, Any]]:
    return [each["data"] for each in result.messages if each.get("kind") == "correction"]


async def confirmed(verdict: Verdict, call: Call) -> ActionResult:
    return await Executor([pay, donate]).run([call], confirm=lambda asked: verdict)


# -- on the acting side


async def test_an_edit_by_the_programs_approver_is_a_message() -> None:
    result = await confirmed(Verdict.edit({"amount": 7}, "too much"), Call("pay", {"amount": 500}, id="p"))

    assert corrections(result) == [
        {"call": {"_tool": "pay", "amount": 500, "_id": "p"}, "decision": "edit", "by": "confirm", "reason": "too much",
         "ran": {"_tool": "pay", "amount": 7, "_id": "p"}}
    ]  # fmt: skip


async def test_a_replacement_is_a_message_with_what_ran() -> None:
    result = await confirmed(Verdict.replace(Call("donate", {"amount": 1})), Call("pay", {"amount": 500}, id="p"))

    ((told),) = corrections(result)
    assert (told["decision"], told["ran"]) == ("replace", {"_tool": "donate", "amount": 1, "_id": "p"})


async def test_what_was_approved_denied_or_could_not_be_put_in_its_place_corrects_nothing() -> None:
    for verdict in (Verdict.approve(), Verdict.deny("no"), Verdict.edit({"amount": "much"})):
        assert corrections(await confirmed(verdict, Call("pay", {"amount": 500}))) == []


async def test_a_call_that_was_changed_and_did_not_run_is_told_so() -> None:
    deny = tool(effect="once", approval="deny")

    @deny
    async def forbidden(amount: int) -> str:
        return "never"

    result = await Executor([pay, forbidden]).run(
        [Call("pay", {"amount": 500})], confirm=lambda call: Verdict.replace(Call("forbidden", {"amount": 1}))
    )

    assert statuses(result) == ["denied denied"]
    assert [each["ran"] for each in corrections(result)] == [None]


async def test_people_at_the_desk_are_named_with_their_reason(clock: VirtualClock) -> None:
    made = executor(World(), clock)
    running = asyncio.ensure_future(made.run([Call("act", {"what": 1}, id="x"), Call("act", {"what": 2}, id="y")]))
    first, second = await pending(made, 2)
    await answer(made, first, "edit", params={"what": 3}, reason="three is enough")
    await answer(made, second, "replace", call={"_tool": "plain", "what": 4})

    edit, other = corrections(await running)
    assert (edit["decision"], edit["by"], edit["reason"]) == ("edit", "alice", "three is enough")
    assert (edit["call"]["what"], edit["ran"]["what"]) == (1, 3)
    assert (other["decision"], other["call"]["_tool"], other["ran"]["_tool"]) == ("replace", "act", "plain")


async def test_a_call_that_goes_on_in_a_later_cycle_tells_there_what_became_of_it(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with remembering(tmp_path, clock) as memory, executor(World(), clock, store=memory, hold=0.0) as made:
        parked = await made.act(Action((Call("act", {"what": 1}, id="x"),)), Context("main", "c1"))
        await answer(made, (await pending(made))[0], "edit", params={"what": 3})
        result = await made.act(on_hand(made), Context("main", "c2"))

    assert corrections(parked) == []
    assert [(each["call"]["what"], each["ran"]["what"]) for each in corrections(result)] == [(1, 3)]


async def test_a_hook_and_then_a_person_are_told_in_order() -> None:
    hooks = Hooks()

    async def halve(ctx: HookContext) -> Decision:
        return Decision.rewrite(Call("pay", {"amount": ctx.value.params["amount"] // 2}))

    hooks.add("before_call", halve)
    result = await Executor([pay], hooks=hooks).run(
        [Call("pay", {"amount": 500})], confirm=lambda call: Verdict.edit({"amount": 7})
    )

    found = [
        (each["by"], each["decision"], each["call"]["amount"], each["ran"]["amount"]) for each in corrections(result)
    ]
    assert found == [("hook", "rewrite", 500, 250), ("confirm", "edit", 250, 7)]


# -- on the planning side


def told(request: Any) -> list[dict[str, Any]]:
    (text,) = [each for each in request.texts if each.startswith("## Data: ¶correction\n")]
    found: list[dict[str, Any]] = json.loads(text.split("\n")[1])
    return found


async def test_a_plan_shows_what_ran() -> None:
    model = ScriptedModel([{"calls": [{"_tool": "pay", "amount": 500, "_id": "p"}]}, {"output": "done"}])

    await Requests(model, tools=[pay], confirm=lambda call: Verdict.edit({"amount": 7})).run(
        [{"type": "plan", "plan": {"calls": []}}]
    )

    (plan,) = [each for each in model.requests[1].context if each.get("type") == "plan"]
    assert plan["plan"]["calls"] == [{"_tool": "pay", "amount": 7, "_id": "p"}]


async def test_an_agents_next_request_says_it_too() -> None:
    model = ScriptedModel([{"calls": [{"_tool": "pay", "amount": 500}]}, {"output": "done"}])
    executor = Executor([pay])
    executor.confirm = lambda call: Verdict.edit({"amount": 7}, "too much")

    async with Agent(plan=ModelPlanner(model), act=executor, loop_interval="off") as agent:
        await agent.wait((await agent.submit("pay the bill")).run_id, 10)

    (call,) = model.requests[1].turns[1].calls
    assert call.arguments == {"amount": 500}
    assert call.result.startswith('It was changed before it ran: {"_tool": "pay", "amount": 7')
    assert model.requests[1].turns[2].text.endswith('edit by confirm: "too much"')
