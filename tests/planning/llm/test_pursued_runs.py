"""What hooks add before a plan, by session and by whether the planner makes runs of what was noticed."""

from __future__ import annotations

from typing import Any

import pytest

from planning.llm.planner import ModelPlanner
from spar import Agent, Decision, Perception
from spar.events import RunStarted
from spar.hooks import HookContext
from spar.testing import VirtualClock
from tests.planning.desk import read_of

RULE = "answer in verse"


def rule(session: str) -> Perception:
    return Perception(RULE, source="hook", kind="context", trust="trusted", session=session)


async def when_in_a_run(ctx: HookContext) -> Decision | None:
    return Decision.rewrite([*ctx.value, rule(ctx.session)]) if ctx.run_id else None


async def always(ctx: HookContext) -> Decision:
    return Decision.rewrite([*ctx.value, rule(ctx.session)])


async def instead(ctx: HookContext) -> Decision:
    return Decision.rewrite([Perception(each.content, source="hook", session=each.session) for each in ctx.value])


class Model:
    """Answers at once, and keeps what it was asked."""

    def __init__(self) -> None:
        self.requests: list[Any] = []

    async def __call__(self, request: Any) -> dict[str, Any]:
        self.requests.append(request)
        return {"calls": [], "output": "ok"}

    def has_read(self, text: str) -> list[bool]:
        return [text in read_of(request) for request in self.requests]


@pytest.mark.parametrize("session", ["main", "alice"])
@pytest.mark.parametrize("pursue", [True, False])
@pytest.mark.parametrize("hook", [when_in_a_run, always])
async def test_what_a_hook_adds_to_a_message_is_in_its_first_request_and_makes_no_run(
    clock: VirtualClock, session: str, pursue: bool, hook: Any
) -> None:
    model, started = Model(), []
    agent = Agent(plan=ModelPlanner(model, pursue=pursue), loop_interval=0.1, clock=clock)
    agent.hook("before_plan")(hook)
    agent.events.subscribe(RunStarted, started.append)
    async with agent:
        status = await agent.wait((await agent.submit("hello", session=session)).run_id)
        await clock.sleep(60)

    assert status.output == "ok"
    assert model.has_read(RULE) == [True]
    assert len(started) == 1


@pytest.mark.parametrize("session", ["main", "alice"])
@pytest.mark.parametrize(("hook", "sees"), [(when_in_a_run, RULE), (always, RULE), (instead, "disk is full")])
async def test_what_was_noticed_becomes_one_run_whatever_hooks_add(
    clock: VirtualClock, session: str, hook: Any, sees: str
) -> None:
    model, started = Model(), []
    agent = Agent(plan=ModelPlanner(model), loop_interval=0.1, clock=clock)
    agent.hook("before_plan")(hook)
    agent.events.subscribe(RunStarted, started.append)
    async with agent:
        agent.push(Perception("disk is full", source="host", kind="disk", session=session))
        await clock.sleep(60)

    assert len(started) == 1
    assert model.has_read(sees) == [True]


@pytest.mark.parametrize("hook", [when_in_a_run, always])
async def test_what_is_noticed_while_a_pursued_run_goes_on_becomes_a_run_of_its_own_once(
    clock: VirtualClock, hook: Any
) -> None:
    model, started = Model(), []
    agent = Agent(plan=ModelPlanner(model), loop_interval=0.1, clock=clock)

    @agent.hook("before_run")
    async def notice_more(ctx: HookContext) -> None:
        if len(model.requests) < 3:
            agent.push(Perception(f"thing {len(model.requests)}", source="host", session="main"))

    agent.hook("before_plan")(hook)
    agent.events.subscribe(RunStarted, started.append)
    async with agent:
        agent.push(Perception("disk is full", source="host", session="main"))
        await clock.sleep(60)

    assert len(started) == len(model.requests) == 4
    assert model.has_read(RULE) == [True] * 4


async def test_a_hook_alone_begins_no_run_on_an_agent_that_plans_when_idle(clock: VirtualClock) -> None:
    model = Model()
    agent = Agent(
        plan=ModelPlanner(model), loop_interval=0.1, clock=clock, settings={"agent": {"plan_when_idle": True}}
    )
    agent.hook("before_plan")(always)
    async with agent:
        await clock.sleep(10)

    assert model.requests == []


async def test_an_answer_to_a_question_begins_no_run_of_its_own(clock: VirtualClock) -> None:
    model, started = Model(), []
    agent = Agent(plan=ModelPlanner(model), loop_interval=0.1, clock=clock)
    agent.events.subscribe(RunStarted, started.append)
    async with agent:
        answered = Perception("approval a1 of pay: approved", source="approval", kind="approval.approved", session="x")
        agent.push(answered)
        await clock.sleep(10)

    assert (started, model.requests) == ([], [])
