"""What an agent does as its budgets are used up: it slows down, asks, is paused, and goes on by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import pytest

from acting import Executor
from memory import Memory
from spar import Action, Agent, Call, tool
from spar.config.load import from_mapping
from spar.errors import TransientError
from spar.events import BudgetExceeded, BudgetRenewed, BudgetWarned
from spar.hooks import Decision
from spar.protocols import Context, RunContext
from spar.service.metrics import Metrics
from spar.testing import VirtualClock
from spar.types import ActionResult, Verdict
from tests.doubles import heard

ASKED: Mapping[str, Any] = {"approval": {"hold": 30.0, "max_pending": 2}}


@tool(effect="once")
async def send(x: int = 0) -> str:
    """Send it."""
    return "sent"


@tool(effect="read")
async def look(x: int = 0) -> str:
    """Look at it."""
    return "seen"


def agent_with(
    budgets: Any, clock: VirtualClock, *, tools: Any = (send, look), acting: Mapping[str, Any] | None = None,
    plan_when_idle: bool = False, **more: Any,
) -> Agent:  # fmt: skip
    settings = {"agent": {"plan_when_idle": plan_when_idle}, "budgets": budgets}
    return Agent(act=Executor(tools, settings=acting), settings=settings, clock=clock, **more)


async def act(agent: Agent, *calls: Call) -> ActionResult:
    return await agent.step_act(Action(calls))


async def plan_two(perceptions: Any, context: Context) -> Action:
    """The calls once, then an answer."""
    if context.run.number > 1:
        return Action(output="done")
    return Action((Call("send", {"x": 1}), Call("send", {"x": 2})))


def used(agent: Agent, budget: str) -> int:
    return next(int(each["used"]) for each in agent.budgets.snapshot() if each["budget"] == budget)


def reasons(result: ActionResult) -> list[str]:
    return [f"{each.status} {each.reason}".strip() for each in result.results]


async def test_a_first_limit_that_comes_while_calls_run_counts_those_that_follow(clock: VirtualClock) -> None:
    limited = Agent(settings={"budgets": {"hour": {"calls": 2}}})

    @tool(effect="read")
    async def limit() -> None:
        """Limit the calls of an hour."""
        agent.budgets.apply(limited.settings.budgets.limits)

    agent = Agent(act=Executor([look, limit]), clock=clock)
    calls = [Call("look", id="a"), Call("limit", id="b", after=("a",))]
    calls += [Call("look", {"x": n}, id=f"c{n}", after=("b" if n == 0 else f"c{n - 1}",)) for n in range(3)]

    result = await act(agent, *calls)

    assert reasons(result) == ["ok"] * 4 + ["denied budget"]
    assert used(agent, "hour.calls") == 2


async def test_a_cycle_makes_as_many_calls_as_it_may_and_the_rest_is_denied(clock: VirtualClock) -> None:
    agent = agent_with({"cycle": {"calls": 3}}, clock)
    told = heard(agent, BudgetExceeded)

    first = await act(agent, *(Call("look", {"x": n}) for n in range(5)))
    await agent.step_reflect(first)
    await agent.step_sense()  # with it the next cycle begins
    second = await act(agent, Call("look"))

    assert reasons(first) == ["ok"] * 3 + ["denied budget"] * 2
    assert [each["error"]["kind"] for each in first.errors] == ["budget"] * 2
    assert "budget cycle.calls does not allow 1 more: 3 of 3 used" in first.errors[0]["error"]["message"]
    assert [(event.budget, event.what, event.cycle_id != "") for event in told] == [("cycle.calls", "look", True)] * 2
    assert reasons(second) == ["ok"]


async def test_a_tool_that_is_tried_again_uses_more_until_there_is_no_more(clock: VirtualClock) -> None:
    tries = []

    @tool(effect="read", retries=9)
    def flaky() -> None:
        tries.append(1)
        raise TransientError("not now")

    result = await act(agent_with({"hour": {"calls": 3}}, clock, tools=[flaky]), Call("flaky"))

    assert (len(tries), result.results[0].status, result.results[0].attempts) == (3, "failed", 3)


async def test_people_let_a_call_run_that_there_was_no_budget_for(clock: VirtualClock) -> None:
    agent = agent_with({"hour": {"effects": 1}}, clock, acting=ASKED)
    executor = agent.setup.modules["act"].part
    approver = executor.approvals

    async def approve() -> str:
        await clock.sleep(5)
        (row,) = await approver.list()
        await approver.decide(row.id, row.digest, "approve", by="ann")
        return str(row.why)

    asking = asyncio.ensure_future(approve())
    result = await act(agent, Call("send", {"x": 1}), Call("send", {"x": 2}), Call("look"))

    assert "budget hour.effects does not allow 1 more" in await asking
    assert reasons(result) == ["ok"] * 3
    assert used(agent, "hour.effects") == 2


async def test_what_nobody_approves_and_what_is_too_much_to_ask_about_does_not_run(clock: VirtualClock) -> None:
    agent = agent_with({"hour": {"effects": 0}}, clock, acting=ASKED)

    result = await act(agent, *(Call("send", {"x": n}) for n in range(4)))

    assert sorted(reasons(result)) == ["denied budget", "denied budget", "skipped parked", "skipped parked"]
    assert "could not be asked about" in next(each.fault.message for each in result.results if each.fault
                                              and each.fault.kind == "budget")  # fmt: skip


@pytest.mark.parametrize(
    ("verdict", "effects"),
    [
        (Verdict.approve(), 2),
        (Verdict.deny("no"), 1),
        (Verdict.replace(Call("send", {"x": 9})), 2),
        (Verdict.replace(Call("look")), 1),
    ],
)
async def test_the_programs_own_approver_is_asked_where_there_is_one(
    verdict: Any, effects: int, clock: VirtualClock
) -> None:
    agent = agent_with({"hour": {"effects": 1}}, clock)
    asked: list[Call] = []
    agent.setup.modules["act"].part.confirm = lambda call: asked.append(call) or verdict

    result = await act(agent, Call("send"), Call("send", {"x": 2}))

    assert [call.params for call in asked] == [{"x": 2}]
    assert reasons(result)[1] == ("denied denied" if verdict.decision == "deny" else "ok")
    assert used(agent, "hour.effects") == effects


async def test_a_call_is_an_effect_by_what_it_is_given(clock: VirtualClock) -> None:
    class Either:
        name, effect, timeout = "either", "once", 1.0
        schema: ClassVar[dict[str, Any]] = {"properties": {"_tool": {"const": "either"}, "write": {}}}

        def effect_of(self, params: Any) -> str:
            return "once" if params.get("write") else "read"

        async def __call__(self, **params: Any) -> None: ...

    agent = agent_with({"hour": {"effects": 1}}, clock, tools=[Either()])

    result = await act(agent, *(Call("either", {"write": each}) for each in (True, False, True)))

    assert reasons(result) == ["ok", "ok", "denied budget"]


async def test_what_a_hook_or_a_failure_before_keeps_from_starting_uses_nothing(clock: VirtualClock) -> None:
    agent = agent_with({"hour": {"calls": 10}}, clock)

    @agent.hook("before_call")
    async def no(context: Any) -> Any:
        return Decision(deny="no") if context.value.tool == "send" else None

    first = await act(agent, Call("send"), Call("look", {"x": "†state.gone"}), Call("look"))

    assert reasons(first)[0] == "denied denied"
    assert used(agent, "hour.calls") == 1


async def test_calls_that_wait_for_their_gate_when_the_run_is_cut_are_given_back(clock: VirtualClock) -> None:
    @tool(effect="read", concurrency=1)
    async def slow(x: int = 0) -> None:
        await clock.sleep(100)

    agent = agent_with({"hour": {"calls": 10}}, clock, tools=[slow])
    acting = asyncio.ensure_future(act(agent, *(Call("slow", {"x": n}) for n in range(5))))
    await clock.sleep(1)
    during = used(agent, "hour.calls")
    acting.cancel()
    await asyncio.wait([acting])

    assert during == 5
    assert used(agent, "hour.calls") == 1


async def test_an_agent_at_its_limit_slows_down_and_is_paused_until_the_hour_is_over(clock: VirtualClock) -> None:
    cycles: list[float] = []

    async def plan(perceptions: Any) -> Action:
        cycles.append(clock.elapsed)
        return Action((Call("send"),))

    agent = agent_with({"hour": {"effects": 10}}, clock, plan=plan, loop_interval=1.0, plan_when_idle=True)
    told = heard(agent, BudgetWarned, BudgetRenewed)

    async with agent:
        await clock.sleep(1800)
        states = [agent.state]
        made = len(cycles)
        await clock.sleep(1830)
        states.append(agent.state)

    assert states == ["paused", "running"]
    assert made == 30  # ten ran, twenty were refused
    assert [event.measure for event in told if type(event) is BudgetWarned][:3] == ["slow", "ask", "pause"]
    assert [event.budget for event in told if type(event) is BudgetRenewed] == ["hour.effects"]
    gaps = [round(b - a) for a, b in pairwise(cycles[:30])]
    assert gaps[:7] == [1] * 7
    assert set(gaps[8:]) == {5}


async def test_a_restart_makes_no_budget_fresh(tmp_path: Path) -> None:
    made = []
    for _ in range(3):
        settings = {"budgets": {"day": {"effects": 5}, "hour": {"effects": "off"}}}
        memory = Memory.open(f"sqlite:///{tmp_path}/memory.db")
        agent = Agent(tools=[send], settings=settings, memory=memory, plan=plan_two)
        async with agent:
            await agent.wait((await agent.submit("two, please")).run_id)
        made.append(used(agent, "day.effects"))

    assert made == [2, 4, 5]


async def test_a_run_that_repeats_itself_is_found_out_over_a_restart() -> None:
    before, after = Executor([look]), Executor([look])
    results: list[ActionResult] = []

    for number in range(4):
        run = RunContext("run", "find out", number + 1, results=tuple(results))
        executor = before if number < 2 else after
        results.append(await executor.act(Action((Call("look", {"x": 1}),)), Context("main", f"c{number}", run=run)))

    assert [result.fault.kind if result.fault else "" for result in results] == ["", "", "", "no_progress"]


async def test_metrics_show_how_far_budgets_are_used(clock: VirtualClock) -> None:
    agent = agent_with({"cycle": {"calls": 4}, "hour": {"money": 2}}, clock)
    await act(agent, *(Call("look", {"x": n}) for n in range(5)))

    page = Metrics(lambda: [agent], "1").render()[0].decode()

    assert 'spar_budget_used_ratio{agent="main",budget="calls",window="cycle"} 1.0' in page
    assert 'spar_budget_used_ratio{agent="main",budget="money",window="hour"} 0.0' in page
    assert 'spar_budget_refused_total{agent="main",budget="calls"} 1.0' in page
    assert 'spar_budget_refused_total{agent="main",budget="money"} 0.0' in page


async def test_an_agent_made_by_hand_may_use_all_it_likes(clock: VirtualClock) -> None:
    agent = Agent(tools=[send], clock=clock)

    result = await act(agent, *(Call("send", {"x": n}) for n in range(10_001)))

    assert result.status == "ok"
    assert agent.budgets.snapshot() == []


def test_limits_attach_the_budgets_and_so_does_their_first_use() -> None:
    limited = Agent(settings={"budgets": {"hour": {"calls": 3}}})
    bare = Agent()

    assert list(limited.attachments.by_name) == ["budgets"]
    assert not bare.has_attachments
    assert bare.budgets.snapshot() == []
    assert list(bare.attachments.by_name) == ["budgets"]


async def test_limits_that_come_while_the_agent_runs_count_what_was_used_before(tmp_path: Path) -> None:
    async def plan(perceptions: Any) -> Action:
        return Action((Call("send", {"x": 1}),), output="done")

    limits = {"budgets": {"hour": {"effects": 10}}}
    for given in (limits, {}):
        agent = Agent(
            plan=plan, tools=[send], settings=given, loop_interval="off", memory=Memory(f"sqlite:///{tmp_path}/m.db")
        )
        async with agent:
            await agent.exchange({}, from_mapping(limits))
            status = await agent.wait((await agent.submit("go")).run_id)
            assert (status.status, status.output) == ("ok", "done")
            number = used(agent, "hour.effects")

    assert number == 2
