"""Hooks: they decide, in order, within their time; a guard that fails says no, the others are passed by."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from spar import Agent, Decision
from spar.events import CallStarted, ErrorOccurred, Event, LoopCompleted, PhaseStarted, RunEnded
from spar.hooks import POINTS, HookContext, Hooks, Outcome
from spar.testing import (
    Hang,
    RecordingTool,
    ScriptedActor,
    ScriptedPlanner,
    ScriptedReflector,
    ScriptedSense,
    VirtualClock,
    stream,
)
from spar.types import Action, Call, CallResult, Perception, Reflection, replace

GUARD, OPEN = "before_call", "before_plan"
CALL = Call("probe")
VALUES: dict[str, Any] = {GUARD: CALL, OPEN: [Perception("hello")]}


async def ask(hooks: Hooks, point: str = OPEN, value: Any = None) -> Outcome:
    return await hooks.run(HookContext(point, "watchman", VALUES.get(point) if value is None else value))


# -- one point ----------------------------------------------------------------------------------------------


async def test_hooks_are_asked_highest_priority_first_then_as_registered() -> None:
    hooks, asked = Hooks(), []
    for name, priority in (("a", 0), ("b", 5), ("c", -1), ("d", 5), ("e", 0)):

        async def hook(ctx: HookContext, name: str = name) -> None:
            asked.append(name)

        hooks.add(OPEN, hook, priority=priority)
    outcome = await ask(hooks)
    assert asked == ["b", "d", "a", "e", "c"]
    assert outcome == Outcome(VALUES[OPEN])


def test_an_unknown_point_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(ValueError, match=r"no hook point named 'before_lunch'; known: .*before_call"):
        Hooks().add("before_lunch", lambda ctx: None)


async def test_a_rewrite_is_what_the_next_hook_sees_and_what_comes_out() -> None:
    hooks, seen = Hooks(), []

    async def second(ctx: HookContext) -> None:
        seen.append(ctx.value)

    new = [Perception("rewritten")]
    hooks.add(OPEN, lambda ctx: Decision.rewrite(new), priority=1)
    hooks.add(OPEN, second)
    outcome = await ask(hooks)
    assert outcome.value is new
    assert seen == [new]
    assert not outcome.denied


@pytest.mark.parametrize(("decision", "stops"), [(Decision.deny("no"), False), (Decision.stop_run("no"), True)])
async def test_whoever_denies_or_stops_the_run_has_the_last_word(decision: Decision, stops: bool) -> None:
    hooks, asked = Hooks(), []
    hooks.add(OPEN, lambda ctx: decision, priority=1)
    hooks.add(OPEN, lambda ctx: asked.append(ctx))
    outcome = await ask(hooks)
    assert (outcome.denied, outcome.stop_run, outcome.reason) == (True, stops, "no")
    assert asked == []


async def test_to_require_approval_does_not_keep_a_later_hook_from_denying() -> None:
    hooks = Hooks()
    hooks.add(GUARD, lambda ctx: Decision.require_approval("looks risky"), priority=1)
    outcome = await ask(hooks, GUARD)
    assert (outcome.needs_approval, outcome.denied, outcome.reason) == (True, False, "looks risky")
    hooks.add(GUARD, lambda ctx: Decision.deny("no"))
    outcome = await ask(hooks, GUARD)
    assert outcome.denied


async def test_a_removed_hook_is_not_asked_any_more() -> None:
    hooks = Hooks()
    remove = hooks.add(OPEN, lambda ctx: Decision.deny())
    keep = hooks.add(OPEN, lambda ctx: None)
    remove()
    remove()
    assert not (await ask(hooks)).denied
    assert OPEN in hooks.used
    keep()
    assert OPEN not in hooks.used


async def test_a_hook_that_registers_another_one_or_changes_its_context_disturbs_no_asking() -> None:
    hooks, seen = Hooks(), []

    def meddle(ctx: HookContext) -> None:
        ctx.value = "junk"
        hooks.add(OPEN, lambda ctx: seen.append("late"))

    hooks.add(OPEN, meddle, priority=1)
    hooks.add(OPEN, lambda ctx: seen.append(ctx.value))
    outcome = await ask(hooks)
    assert (outcome.value, outcome.faults) == (VALUES[OPEN], ())
    assert seen == [VALUES[OPEN]]
    await ask(hooks)
    assert seen == [VALUES[OPEN], VALUES[OPEN], "late"]


# -- hooks that fail ----------------------------------------------------------------------------------------


async def raises(ctx: HookContext) -> None:
    raise RuntimeError("broken")


def raises_inline(ctx: HookContext) -> None:
    raise RuntimeError("broken")


async def cancels_itself(ctx: HookContext) -> None:
    raise asyncio.CancelledError


def cancels_itself_inline(ctx: HookContext) -> None:
    raise asyncio.CancelledError


class Strange(BaseException):
    """What no hook should raise."""


async def strange(ctx: HookContext) -> None:
    raise Strange("strange")


async def talks_nonsense(ctx: HookContext) -> Any:
    return True


async def rewrites_junk(ctx: HookContext) -> Decision:
    return Decision.rewrite(42)


FAILING = [raises, raises_inline, cancels_itself, cancels_itself_inline, strange, talks_nonsense, rewrites_junk]


@pytest.mark.parametrize("hook", FAILING)
async def test_a_guard_that_fails_denies_and_says_who(hook: Callable[..., Any]) -> None:
    hooks, asked = Hooks(), []
    hooks.add(GUARD, hook, priority=1)
    hooks.add(GUARD, lambda ctx: asked.append(1))
    outcome = await ask(hooks, GUARD)
    assert outcome.denied
    assert outcome.value is CALL
    assert outcome.reason.startswith(f"hook {hook.__name__} failed: ")
    assert [(fault.part, fault.phase) for fault in outcome.faults] == [(hook.__name__, GUARD)]
    assert asked == []


@pytest.mark.parametrize("hook", FAILING)
async def test_any_other_point_passes_a_failing_hook_by_and_reports_it(hook: Callable[..., Any]) -> None:
    hooks, asked = Hooks(), []
    hooks.add(OPEN, hook, priority=1)
    hooks.add(OPEN, lambda ctx: asked.append(1))
    outcome = await ask(hooks)
    assert not outcome.denied
    assert outcome.value is VALUES[OPEN]
    assert [fault.part for fault in outcome.faults] == [hook.__name__]
    assert asked == [1]


@pytest.mark.parametrize("point", [point for point, (_, guards) in POINTS.items() if not guards])
async def test_approval_can_be_required_of_calls_only(point: str) -> None:
    hooks = Hooks()
    hooks.add(point, lambda ctx: Decision.require_approval())
    outcome = await hooks.run(HookContext(point, "watchman"))
    assert not outcome.needs_approval
    assert "cannot require approval" in outcome.faults[0].message


@pytest.mark.parametrize("point", ["before_cycle", "after_call", "before_reflect", "service_start", "session_start"])
async def test_where_there_is_nothing_to_rewrite_a_rewrite_is_a_fault(point: str) -> None:
    hooks = Hooks()
    hooks.add(point, lambda ctx: Decision.rewrite("other"))
    outcome = await hooks.run(HookContext(point, "watchman", "value"))
    assert outcome.value == "value"
    assert f"cannot rewrite anything at {point}" in outcome.faults[0].message


@pytest.mark.parametrize(("point", "options", "seconds"), [(GUARD, {"timeout": 2.0}, 2), (OPEN, {}, 15)])
async def test_a_hook_is_really_cancelled_after_the_deadline_of_its_own_or_fifteen_seconds(
    clock: VirtualClock, point: str, options: dict[str, float], seconds: int
) -> None:
    hooks, hang = Hooks(), Hang()

    async def slow(ctx: HookContext) -> None:
        await hang.wait()

    hooks.add(point, slow, **options)  # type: ignore[arg-type]
    outcome = await ask(hooks, point)
    assert clock.elapsed == pytest.approx(seconds)
    assert (hang.cancelled, hang.waiting) == (1, 0)
    assert outcome.denied == (point == GUARD)
    assert outcome.faults[0].kind == "timeout"
    assert f"longer than {seconds} s" in outcome.faults[0].message
    assert not hooks.left_behind


async def test_a_late_hook_that_ignores_its_cancellation_is_left_behind(clock: VirtualClock) -> None:
    hooks = Hooks()
    with Hang(ignore_cancel=True) as hang:

        async def stubborn(ctx: HookContext) -> Decision:
            await hang.wait()
            return Decision.rewrite([])

        hooks.add(OPEN, stubborn, timeout=1.0)
        async with asyncio.timeout(10):
            outcome = await ask(hooks)
        assert outcome.value is VALUES[OPEN]
        assert len(hooks.left_behind) == 1
    await clock.sleep(1)
    assert not hooks.left_behind


async def test_cancelling_whoever_asks_cancels_the_hook_and_is_not_an_answer(clock: VirtualClock) -> None:
    hooks, hang = Hooks(), Hang()
    hooks.add(GUARD, lambda ctx: hang.wait())
    asking = asyncio.create_task(ask(hooks, GUARD))
    await clock.sleep(1)
    asking.cancel()
    await asyncio.wait([asking])
    assert asking.cancelled()
    assert (hang.cancelled, hang.waiting) == (1, 0)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
async def test_what_ends_the_process_passes_through_a_hook(error: type[BaseException]) -> None:
    hooks = Hooks()

    def end(ctx: HookContext) -> None:
        raise error

    hooks.add(GUARD, end)
    with pytest.raises(error):
        await ask(hooks, GUARD)


# -- the points of a cycle ----------------------------------------------------------------------------------


class Setup:
    """An agent with scripted modules and a recording tool, its hooks yet to come."""

    def __init__(self, clock: VirtualClock, *, planned: Any = None, **settings: Any) -> None:
        self.clock = clock
        self.tool = RecordingTool("probe", "output", params={})
        self.planner = ScriptedPlanner([planned if planned is not None else [Call("probe")]])
        self.reflector = ScriptedReflector()
        self.sense = ScriptedSense(["hello"])
        self.agent = Agent(sense=self.sense, plan=self.planner, tools=[self.tool], reflect=self.reflector,
                           name="watchman", loop_interval=100.0, clock=clock, settings=settings)  # fmt: skip
        self.seen: list[Event] = []
        self.agent.events.subscribe(Event, self.seen.append)

    async def turn(self) -> str:
        """Run one cycle; what it came to."""
        async with self.agent, asyncio.timeout(90):
            while not (ended := self.of(LoopCompleted)):
                await self.clock.sleep(0.1)
        return str(ended[0].outcome)

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.seen if isinstance(event, kind)]

    @property
    def phases(self) -> list[str]:
        return [event.phase for event in self.of(PhaseStarted)]


@pytest.fixture
async def setup(clock: VirtualClock) -> Setup:
    return Setup(clock)


async def test_every_point_of_a_cycle_is_asked_in_order_with_its_place_and_value(setup: Setup) -> None:
    asked: list[HookContext] = []
    for point in POINTS:
        setup.agent.hooks.add(
            point,
            lambda ctx: asked.append(HookContext(ctx.point, ctx.agent, ctx.value, ctx.session, None, ctx.cycle_id)),
        )
    assert await setup.turn() == "acted"
    assert [ctx.point for ctx in asked] == [
        "service_start",
        "before_cycle",
        "before_sense",
        "after_sense",
        "before_plan",
        "after_plan",
        "before_act",
        "before_call",
        "after_call",
        "result_persist",
        "after_act",
        "before_reflect",
        "after_reflect",
        "service_stop",
    ]
    values = {ctx.point: ctx.value for ctx in asked}
    cycle_id = setup.of(LoopCompleted)[0].cycle_id
    assert values["service_start"] is values["service_stop"] is setup.agent
    assert values["before_cycle"] == cycle_id
    assert [p.content for p in values["before_plan"]] == ["hello"]
    assert isinstance(values["after_plan"], Action)
    assert isinstance(values["before_call"], Call)
    assert isinstance(values["after_call"], CallResult)
    assert values["before_sense"] is None
    assert [p.content for p in values["after_sense"]] == ["hello"]
    assert values["before_act"] == values["after_plan"]
    assert values["after_act"] == values["before_reflect"]
    assert values["before_reflect"].status == "ok"
    assert isinstance(values["after_reflect"], Reflection)
    assert {ctx.agent for ctx in asked} == {"watchman"}
    assert {ctx.cycle_id for ctx in asked[1:-1]} == {cycle_id}
    assert {ctx.session for ctx in asked} == {"main"}


async def test_before_plan_may_rewrite_the_perceptions(setup: Setup) -> None:
    setup.agent.hooks.add(OPEN, lambda ctx: Decision.rewrite([*ctx.value, Perception("more")]))
    await setup.turn()
    assert [p.content for p in setup.planner.seen[0]] == ["hello", "more"]


@pytest.mark.parametrize("junk", [None, "text", 5, [1], object()])
async def test_junk_that_a_hook_puts_in_place_of_the_perceptions_is_its_fault_alone(setup: Setup, junk: Any) -> None:
    setup.agent.hooks.add(OPEN, lambda ctx: Decision.rewrite(junk))
    assert await setup.turn() == "acted"
    assert [p.content for p in setup.planner.seen[0]] == ["hello"]
    assert [event.phase for event in setup.of(ErrorOccurred)] == [OPEN]


async def test_after_plan_may_rewrite_the_action(setup: Setup) -> None:
    setup.agent.hooks.add("after_plan", lambda ctx: Decision.rewrite(replace(ctx.value, calls=(CALL, Call("probe")))))
    assert await setup.turn() == "acted"
    assert len(setup.tool.calls) == 2


async def test_before_call_may_deny_and_reflect_sees_why(setup: Setup) -> None:
    setup.agent.hooks.add(GUARD, lambda ctx: Decision.deny("too late at night"))
    await setup.turn()
    [result] = setup.reflector.seen[0].results
    assert setup.tool.calls == []
    assert (result.status, result.fault.message if result.fault else "") == ("denied", "too late at night")


@pytest.mark.parametrize("hook", FAILING)
async def test_no_call_runs_past_a_broken_guard(setup: Setup, hook: Callable[..., Any]) -> None:
    setup.agent.hooks.add(GUARD, hook)
    await setup.turn()
    assert setup.tool.calls == []
    assert setup.of(CallStarted) == []
    assert [result.status for result in setup.reflector.seen[0].results] == ["denied"]
    assert len(setup.of(ErrorOccurred)) == 1


async def test_before_call_may_require_an_approval_that_nobody_gives(setup: Setup) -> None:
    setup.agent.hooks.add(GUARD, lambda ctx: Decision.require_approval("ask first"))
    await setup.turn()
    assert setup.tool.calls == []
    [result] = setup.reflector.seen[0].results
    assert (result.status, result.reason) == ("skipped", "parked")  # its cycle does not wait for a person


@pytest.mark.parametrize(("point", "output"), [("after_call", "output"), ("result_persist", "***")])
async def test_after_call_only_looks_and_result_persist_may_rewrite_the_result_as_it_is_kept(
    setup: Setup, point: str, output: str
) -> None:
    setup.agent.hooks.add(point, lambda ctx: Decision.rewrite(replace(ctx.value, output="***")))
    await setup.turn()
    assert setup.reflector.seen[0].results[0].output == output


@pytest.mark.parametrize(
    "point", ["before_cycle", "before_plan", "after_plan", "before_reflect", "service_start", "service_stop"]
)
@pytest.mark.parametrize("hook", [raises, strange, cancels_itself, talks_nonsense])
async def test_a_broken_hook_never_costs_a_cycle(setup: Setup, point: str, hook: Callable[..., Any]) -> None:
    setup.agent.hooks.add(point, hook)
    assert await setup.turn() == "acted"
    assert {(event.phase, event.error.part) for event in setup.of(ErrorOccurred)} == {(point, hook.__name__)}
    assert setup.agent.state == "stopped"


@pytest.mark.parametrize("point", ["before_plan", "after_plan", "before_reflect"])
async def test_a_hook_may_end_the_run(setup: Setup, point: str) -> None:
    setup.sense = ScriptedSense()
    agent = Agent(sense=setup.sense, plan=setup.planner, tools=[setup.tool], loop_interval="off", clock=setup.clock)
    agent.events.subscribe(Event, setup.seen.append)
    agent.hooks.add(point, lambda ctx: Decision.stop_run("out of bounds") if ctx.run_id else None)
    async with agent:
        receipt = await agent.submit("go")
        status = await agent.wait(receipt.run_id, 60)
    assert (status.status, status.error) == ("error", "out of bounds")
    assert len(setup.of(RunEnded)) == 1


async def test_message_received_may_refuse_or_rewrite_a_message(clock: VirtualClock) -> None:
    planner = ScriptedPlanner([Action(output="done")])
    agent = Agent(plan=planner, loop_interval="off", clock=clock)

    @agent.hook("message_received")
    async def censor(ctx: HookContext) -> Decision:
        if "spam" in ctx.value.text:
            return Decision.deny("no spam")
        return Decision.rewrite(replace(ctx.value, content=ctx.value.text.upper()))

    async with agent:
        with pytest.raises(PermissionError, match="no spam"):
            await agent.submit("spam")
        receipt = await agent.submit("hello")
        assert (await agent.wait(receipt.run_id)).status == "ok"
    assert [p.content for p in planner.seen[0]] == ["HELLO"]


@pytest.mark.parametrize(
    ("point", "phases", "outcome"),
    [
        ("before_sense", [], "skipped"),
        ("after_sense", ["sense"], "skipped"),
        ("before_plan", ["sense"], "skipped"),
        ("after_plan", ["sense", "plan"], "skipped"),
        ("before_act", ["sense", "plan"], "skipped"),
        ("after_act", ["sense", "plan", "act"], "acted"),
        ("before_reflect", ["sense", "plan", "act"], "acted"),
        ("after_reflect", ["sense", "plan", "act", "reflect"], "acted"),
    ],
)
async def test_a_hook_around_a_phase_may_leave_the_rest_out_and_undoes_nothing(
    setup: Setup, point: str, phases: list[str], outcome: str
) -> None:
    setup.agent.hooks.add(point, lambda ctx: Decision.deny("no"))
    assert await setup.turn() == outcome
    assert setup.phases == phases
    assert len(setup.tool.calls) == ("act" in phases)


async def test_what_was_sensed_is_fixed_when_hooks_are_shown_it(setup: Setup) -> None:
    setup.agent.hooks.add("after_sense", lambda ctx: ctx.value.clear())
    setup.agent.hooks.add("after_sense", lambda ctx: Decision.rewrite([]))
    assert await setup.turn() == "acted"
    assert [event.phase for event in setup.of(ErrorOccurred)] == ["after_sense"]


@pytest.mark.parametrize("point", ["after_plan", "before_act"])
async def test_a_hook_behind_the_plan_sees_a_streamed_one_whole(clock: VirtualClock, point: str) -> None:
    setup = Setup(clock, planned=stream([Call("probe"), 0.5, Call("probe")]))
    sizes: list[int] = []
    setup.agent.hooks.add(point, lambda ctx: sizes.append(len(ctx.value.calls)))
    assert await setup.turn() == "acted"
    assert sizes == [2]
    assert len(setup.tool.calls) == 2


async def test_a_slow_hook_is_not_taken_for_a_stuck_phase(clock: VirtualClock) -> None:
    setup = Setup(clock, agent={"phases": {"sense": {"timeout": 1.0}}})
    setup.agent.hooks.add("before_plan", lambda ctx: clock.sleep(10.0))
    kinds: list[str] = []

    async with setup.agent:
        await clock.sleep(9.0)
        kinds.extend(setup.agent.health.alerts)
    assert kinds == []


async def test_hooks_of_a_hand_made_actor_need_no_tools(clock: VirtualClock) -> None:
    asked: list[str] = []
    agent = Agent(
        sense=ScriptedSense(["x"]), plan=ScriptedPlanner([[CALL]]), act=ScriptedActor(), loop_interval=50.0, clock=clock
    )
    for point in ("before_plan", "after_plan", "before_reflect"):
        agent.hooks.add(point, lambda ctx: asked.append(ctx.point))
    async with agent:
        await clock.sleep(1)
    assert asked == ["before_plan", "after_plan", "before_reflect"]
