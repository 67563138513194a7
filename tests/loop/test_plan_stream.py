"""Calls start while their plan is still being written; the results are those of a plan that was written first."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from acting import Executor
from spar import Agent
from spar.errors import PhaseTimeoutError
from spar.events import ErrorOccurred, Event, LoopCompleted, PhaseCompleted, PhaseStarted
from spar.loop.plan_stream import MOST_CALLS, OpenPlan
from spar.protocols import Context
from spar.testing import Hang, RecordingTool, ScriptedReflector, ScriptedSense, VirtualClock, stream
from spar.types import Action, ActionResult, Call, CallResult, Perception

FIRST, SECOND, THIRD = Call("first", id="1"), Call("second", id="2"), Call("third", id="3")


class Planner:
    """Streams the pieces of a script each time: delays, failures and hangs may stand between calls."""

    def __init__(self, *pieces: Any) -> None:
        self.pieces, self.closed, self.plans = pieces, 0, 0

    async def plan(self, perceptions: Any) -> AsyncIterator[Any]:
        self.plans += 1
        try:
            async for piece in stream(self.pieces).play():
                yield piece
        finally:
            self.closed += 1


class Stage:
    """An agent whose plan is streamed to a real executor, and everything it told, with the time."""

    def __init__(
        self, clock: VirtualClock, plan: Any, *, act: Any = None, settings: dict[str, Any] | None = None
    ) -> None:
        self.clock = clock
        self.tools = {name: RecordingTool(name, f"{name} done", delay=1.0) for name in ("first", "second", "third")}
        self.reflector = ScriptedReflector()
        self.agent = Agent(
            sense=ScriptedSense(["x"]),
            plan=plan,
            act=act or Executor(self.tools.values()),
            reflect=self.reflector,
            settings={"agent": {"loop_interval": 10_000, **(settings or {})}},
            clock=clock,
        )
        self.told: list[tuple[float, str]] = []
        self.events: list[Any] = []
        for kind in (PhaseStarted, PhaseCompleted, ErrorOccurred, LoopCompleted):
            self.agent.events.subscribe(kind, self._hear)

    def _hear(self, event: Event) -> None:
        sign = {PhaseStarted: "+", PhaseCompleted: "-", ErrorOccurred: "!"}.get(type(event))
        self.told.append((round(self.clock.elapsed, 3), f"{sign}{event.phase}" if sign else event.outcome))  # type: ignore[attr-defined]
        self.events.append(event)

    async def turn(self, seconds: float = 100.0) -> Stage:
        await self.agent.start()
        await self.clock.sleep(seconds)
        await self.agent.stop()
        return self

    @property
    def result(self) -> ActionResult:
        (result,) = self.reflector.seen
        return result

    @property
    def statuses(self) -> list[str]:
        return [f"{item.call.tool} {item.status}" for item in self.result.results]

    def completed(self, phase: str) -> PhaseCompleted:
        (event,) = [e for e in self.events if isinstance(e, PhaseCompleted) and e.phase == phase]
        return event

    @property
    def errors(self) -> list[ErrorOccurred]:
        return [event for event in self.events if isinstance(event, ErrorOccurred)]


def limits(**terms: Any) -> dict[str, Any]:
    return {"phases": {"plan": terms}}


# -- streaming --------------------------------------------------------------------------------------------


async def test_act_begins_before_the_plan_completes_and_each_phase_has_its_own_times(clock: VirtualClock) -> None:
    planner = Planner(2.0, FIRST, 3.0, SECOND, 0.5)
    stage = await Stage(clock, planner).turn()

    assert stage.told == [
        (0.0, "+sense"),
        (0.0, "-sense"),
        (0.0, "+plan"),
        (2.0, "+act"),
        (5.5, "-plan"),
        (6.0, "-act"),
        (6.0, "+reflect"),
        (6.0, "-reflect"),
        (6.0, "acted"),
    ]
    assert {
        name: tool.calls[0].started_at - clock.monotonic() + clock.elapsed
        for name, tool in stage.tools.items()
        if tool.calls
    } == {"first": pytest.approx(2.0), "second": pytest.approx(5.0)}
    assert (stage.completed("plan").duration, stage.completed("act").duration) == (5.5, 4.0)
    assert stage.agent.stats.phase_mean_seconds["plan"] == 5.5
    assert planner.closed == 1


HEADER = Action(goal="tidy", reason="dusty", output={"said": "yes"}, next_look=7.0)


@pytest.mark.parametrize(
    "pieces",
    [
        [FIRST, SECOND],
        [HEADER, FIRST, SECOND],
        [FIRST, 0.5, HEADER, SECOND],
        [FIRST, 0.5, SECOND, 0.5, HEADER],
        [HEADER],
        [Action([FIRST], goal="one"), 1.0, SECOND],
    ],
    ids=["calls", "header first", "header between", "header last", "only a header", "header with calls"],
)
async def test_the_result_is_the_same_as_without_streaming(clock: VirtualClock, pieces: list[Any]) -> None:
    streamed = await Stage(clock, Planner(*pieces)).turn()
    whole = Stage(clock, Planner(*pieces))
    whole.agent.hooks.add("after_plan", lambda ctx: None)  # whoever guards the whole plan prevents streaming
    await whole.turn()

    for read in (
        lambda result: [(item.call, item.status, item.output, item.attempts) for item in result.results],
        lambda result: (result.status, result.state, result.errors, result.fault),
        lambda result: sorted((message["data"] for message in result.messages), key=str),  # they come as calls end
        lambda result: (
            result.action.calls,
            result.action.goal,
            result.action.reason,
            result.action.output,
            result.action.next_look,
        ),
        lambda result: [item.content for item in result.action.perceptions],
    ):
        assert read(streamed.result) == read(whole.result)
    assert streamed.completed("plan").output.calls == whole.completed("plan").output.calls
    assert [name for _, name in streamed.told[-4:]] == [name for _, name in whole.told[-4:]]


@pytest.mark.parametrize("late", [False, True])
async def test_an_action_among_the_calls_sets_goal_output_and_the_like(clock: VirtualClock, late: bool) -> None:
    stage = await Stage(clock, Planner(*([FIRST, 0.5, HEADER] if late else [HEADER, 0.5, FIRST]))).turn()

    plan = stage.completed("plan").output
    assert (plan.goal, plan.reason, plan.output, plan.next_look, plan.calls) == (
        "tidy",
        "dusty",
        {"said": "yes"},
        7.0,
        (FIRST,),
    )
    assert [item.content for item in plan.perceptions] == ["x"]
    assert stage.result.action.id == plan.id
    assert (plan.id == HEADER.id) == (not late), "once a call is handed out, the action is known by its id"


async def test_wire_objects_are_calls(clock: VirtualClock) -> None:
    stage = await Stage(clock, Planner({"_tool": "first", "_id": "a"}, {"_tool": "second", "_after": ["a"]})).turn()

    assert stage.statuses == ["first ok", "second ok"]


async def returns_an_iterator(perceptions: Any, context: Context) -> AsyncIterator[Any]:
    assert context.cycle_id
    return stream([FIRST, 1.0, SECOND]).play()


async def is_a_generator(perceptions: Any, context: Context) -> AsyncIterator[Any]:
    assert context.cycle_id
    yield FIRST
    await asyncio.sleep(1)
    yield SECOND


@pytest.mark.parametrize("plan", [returns_an_iterator, is_a_generator])
async def test_a_function_with_a_context_streams_too(clock: VirtualClock, plan: Any) -> None:
    stage = await Stage(clock, plan).turn()

    assert (0.0, "+act") in stage.told
    assert stage.statuses == ["first ok", "second ok"]


@pytest.mark.parametrize("pieces", [[], [1.0]])
async def test_a_stream_that_ends_without_calls_is_nothing_to_do(clock: VirtualClock, pieces: list[Any]) -> None:
    stage = await Stage(clock, Planner(*pieces)).turn()

    assert [name for _, name in stage.told] == ["+sense", "-sense", "+plan", "-plan", "idle"]


# -- who cannot stream ------------------------------------------------------------------------------------


async def test_an_actor_that_cannot_stream_gets_the_finished_action(clock: VirtualClock) -> None:
    seen: list[Action] = []

    async def act(action: Action) -> ActionResult:
        seen.append(action)
        return ActionResult(action)

    stage = await Stage(clock, Planner(FIRST, 2.0, SECOND), act=act).turn()

    assert [(action.calls, len(action.perceptions)) for action in seen] == [((FIRST, SECOND), 1)]
    assert stage.told[3:5] == [(2.0, "-plan"), (2.0, "+act")]


async def test_a_step_of_a_streaming_planner_returns_the_whole_action(clock: VirtualClock) -> None:
    stage = Stage(clock, Planner(FIRST, 2.0, SECOND))

    action = await stage.agent.step_plan(Perception("x"))
    assert action.calls == (FIRST, SECOND)
    assert not stage.tools["first"].calls

    result = await stage.agent.step_act()
    assert [item.status for item in result.results] == ["ok", "ok"]
    await stage.agent.stop()


async def test_a_streaming_actor_of_ones_own_is_given_the_calls_as_they_come(clock: VirtualClock) -> None:
    seen: list[tuple[float, str]] = []

    class Actor:
        async def act(self, action: Action) -> ActionResult:
            raise AssertionError("it can stream")

        async def act_stream(self, action: Action, calls: AsyncIterator[Call], context: Context) -> ActionResult:
            assert context.cycle_id
            assert action.calls == ()
            results = []
            async for call in calls:
                seen.append((clock.elapsed, call.tool))
                results.append(CallResult(call, "ok"))
            return ActionResult(action, "ok", tuple(results))

    stage = await Stage(clock, Planner(FIRST, 2.0, SECOND), act=Actor()).turn()

    assert seen == [(0.0, "first"), (2.0, "second")]
    assert stage.result.action.calls == (FIRST, SECOND)


async def test_an_actor_that_ends_early_ends_the_plan(clock: VirtualClock) -> None:
    class Actor:
        async def act(self, action: Action) -> ActionResult:
            raise AssertionError("it can stream")

        async def act_stream(self, action: Action, calls: AsyncIterator[Call]) -> ActionResult:
            async for call in calls:
                return ActionResult(action, "ok", (CallResult(call, "ok"),))
            raise AssertionError("there was no call")

    planner = Planner(FIRST, 1000.0, SECOND)
    stage = await Stage(clock, planner, act=Actor()).turn(1.0)

    assert [name for _, name in stage.told] == [
        "+sense",
        "-sense",
        "+plan",
        "+act",
        "-plan",
        "-act",
        "+reflect",
        "-reflect",
        "acted",
    ]
    assert stage.completed("plan").output.calls == (FIRST,)
    assert planner.closed == 1
    assert stage.agent.left_behind == 0


# -- plans that break off ---------------------------------------------------------------------------------


async def test_a_planner_that_raises_before_its_first_call_fails_as_any_planner(clock: VirtualClock) -> None:
    stage = await Stage(clock, Planner(1.0, OSError("no model"))).turn()

    assert [name for _, name in stage.told] == ["+sense", "-sense", "+plan", "!plan", "failed"]
    assert (stage.errors[0].error.message, stage.errors[0].policy) == ("no model", "skip")


@pytest.mark.parametrize("policy", ["skip", "retry", "pause"])
async def test_calls_that_a_broken_plan_had_started_finish_and_reflect_sees_them(
    clock: VirtualClock, policy: str
) -> None:
    stage = Stage(
        clock,
        Planner(FIRST, 0.5, OSError("connection lost")),
        settings={"errors": {"plan": policy}, **limits(retries=2)},
    )
    await stage.agent.start()
    await clock.sleep(100)

    assert stage.told[3:] == [
        (0.0, "+act"),
        (0.5, "!plan"),
        (1.0, "-act"),
        (1.0, "+reflect"),
        (1.0, "-reflect"),
        (1.0, "failed"),
    ]
    assert (stage.errors[0].phase, stage.errors[0].error.message) == ("plan", "connection lost")
    assert stage.errors[0].policy == ("pause" if policy == "pause" else "skip")
    assert stage.statuses == ["first ok"]
    assert stage.result.action.calls == (FIRST,)
    assert stage.agent.stats.errors_by_phase == {"sense": 0, "plan": 1, "act": 0, "reflect": 0}
    assert stage.agent.state == ("paused" if policy == "pause" else "running")
    await stage.agent.stop()


@pytest.mark.parametrize("ignoring", [False, True])
async def test_a_plan_that_hangs_in_the_middle_is_broken_off_at_its_deadline(
    clock: VirtualClock, ignoring: bool
) -> None:
    with Hang(ignore_cancel=ignoring) as hang:
        stage = await Stage(clock, Planner(FIRST, hang, SECOND), settings=limits(timeout=5, grace=0.5)).turn(10)

        (error,) = stage.errors
        assert isinstance(error.exception, PhaseTimeoutError)
        assert (error.phase, error.error.kind) == ("plan", "timeout")
        assert error.exception.was_left_behind == ignoring
        assert stage.told[4] == (5.5 if ignoring else 5.0, "!plan")
        assert stage.statuses == ["first ok"]
        assert stage.agent.left_behind == ignoring
    await clock.sleep(0.1)
    assert stage.agent.left_behind == 0
    assert not stage.tools["second"].calls


async def test_a_plan_that_hangs_before_its_first_call_is_cancelled_at_its_deadline(clock: VirtualClock) -> None:
    planner = Planner(1000.0, FIRST)
    stage = await Stage(clock, planner, settings=limits(timeout=5)).turn(10)

    assert [name for _, name in stage.told][2:] == ["+plan", "!plan", "failed"]
    assert stage.told[3][0] == 5.0
    assert planner.closed == 1


async def test_a_planner_that_goes_on_after_its_deadline_is_not_listened_to(clock: VirtualClock) -> None:
    async def plan(perceptions: Any) -> AsyncIterator[Any]:
        yield FIRST
        while True:
            try:
                await asyncio.sleep(1000)
            except asyncio.CancelledError:
                yield SECOND

    stage = await Stage(clock, plan, settings=limits(timeout=5, grace=0.5)).turn(10)

    assert stage.statuses == ["first ok"]
    assert [event.error.kind for event in stage.errors] == ["timeout"]
    assert stage.agent.left_behind == 0


@pytest.mark.parametrize("junk", ["text", 7, None, {"no": "tool"}, [FIRST], {"_tool": 7}])
@pytest.mark.parametrize("first", [True, False])
async def test_junk_in_a_stream_is_an_error_of_the_plan(clock: VirtualClock, junk: Any, first: bool) -> None:
    closed: list[bool] = []

    async def plan(perceptions: Any) -> AsyncIterator[Any]:
        try:
            if not first:
                yield FIRST
                await asyncio.sleep(0.5)
            yield junk
            yield SECOND
        finally:
            closed.append(True)

    stage = await Stage(clock, plan).turn()

    (error,) = stage.errors
    assert error.phase == "plan"
    assert error.error.kind in ("contract", "bad_input")
    assert bool(stage.reflector.seen) == (not first)
    assert not stage.tools["second"].calls
    assert closed == [True]
    assert stage.events[-1].outcome == "failed"


async def test_a_planner_that_cancels_itself_interrupts_the_cycle_and_its_calls_finish(clock: VirtualClock) -> None:
    stage = await Stage(clock, Planner(FIRST, 0.5, asyncio.CancelledError())).turn()

    assert [name for _, name in stage.told][3:] == ["+act", "-act", "+reflect", "-reflect", "interrupted"]
    assert stage.statuses == ["first ok"]
    assert stage.errors == []


async def test_a_planner_that_cancels_itself_before_its_first_call_interrupts_the_cycle(clock: VirtualClock) -> None:
    stage = await Stage(clock, Planner(0.5, asyncio.CancelledError()), settings=limits(timeout=0)).turn()

    assert [name for _, name in stage.told][2:] == ["+plan", "interrupted"]
    assert stage.errors == []


async def test_a_plan_without_end_is_a_fault_of_its_planner(clock: VirtualClock) -> None:
    async def endless() -> AsyncIterator[Any]:
        while True:
            yield FIRST

    plan = OpenPlan(endless(), (), "endless", clock, lambda task: None)
    with pytest.raises(TypeError, match=f"endless planned more than {MOST_CALLS} calls"):
        await plan.begin(float("inf"), 0.5, at_once=False)


# -- acts that break off ----------------------------------------------------------------------------------


class Breaking:
    """A streaming actor that fails some times at its first call and reads to the end then."""

    def __init__(self, times: int) -> None:
        self.left, self.read = times, 0

    async def act(self, action: Action) -> ActionResult:
        raise AssertionError("it can stream")

    async def act_stream(self, action: Action, calls: AsyncIterator[Call]) -> ActionResult:
        results = []
        async for call in calls:
            self.left -= 1
            if self.left >= 0:
                raise OSError("no route")
            results.append(CallResult(call, "ok"))
        return ActionResult(action, "ok", tuple(results))


@pytest.mark.parametrize(("settings", "reflected"), [({}, ["first failed"]), ({"errors": {"act": "skip"}}, None)])
async def test_an_act_that_fails_ends_the_plan_and_is_reflected_on_unless_it_is_skipped(
    clock: VirtualClock, settings: dict[str, Any], reflected: list[str] | None
) -> None:
    planner = Planner(FIRST, 1000.0, SECOND)

    stage = await Stage(clock, planner, act=Breaking(1), settings=settings).turn(1.0)

    assert [event.phase for event in stage.errors] == ["act"]
    if reflected is None:
        assert stage.reflector.seen == []
    else:
        assert (stage.result.status, stage.result.action.calls, stage.statuses) == ("failed", (FIRST,), reflected)
    assert planner.closed == 1
    assert stage.events[-1].outcome == "failed"
    assert stage.agent.left_behind == 0


async def test_an_act_that_is_tried_again_sees_the_whole_plan(clock: VirtualClock) -> None:
    settings = {"phases": {"act": {"retries": 1, "backoff": 0.1}}}
    stage = await Stage(clock, Planner(FIRST, 2.0, SECOND), act=Breaking(1), settings=settings).turn()

    assert stage.statuses == ["first ok", "second ok"]
    assert stage.events[-1].outcome == "acted"


async def test_a_cycle_that_is_cut_while_both_run_ends_both(clock: VirtualClock) -> None:
    planner = Planner(FIRST, 1000.0, SECOND)
    stage = Stage(clock, planner)
    await stage.agent.start()
    await clock.sleep(3)
    await stage.agent.stop(deadline=1)

    assert clock.elapsed == pytest.approx(4.0)
    assert [name for _, name in stage.told] == ["+sense", "-sense", "+plan", "+act", "interrupted"]
    assert planner.closed == 1
    assert stage.errors == []
    assert {task.get_name() for task in asyncio.all_tasks()} & {"plan of Planner", "first"} == set()
