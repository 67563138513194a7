"""What a failing phase leads to: by phase, by policy, by what was raised. Nothing a module raises ends the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from acting import Executor
from spar import Agent
from spar.errors import ContractError, PermanentError, PhaseTimeoutError, TransientError
from spar.events import ErrorOccurred, HealthAlert, LoopCompleted, PhaseCompleted, PhaseStarted, RecoveryStep
from spar.protocols.tools import tool
from spar.testing import (
    Hang,
    RecordingStore,
    RecordingTool,
    ScriptedActor,
    ScriptedPlanner,
    ScriptedReflector,
    ScriptedSense,
    VirtualClock,
)
from spar.types import (
    PHASES,
    Ability,
    Action,
    ActionResult,
    Call,
    CallResult,
    Experience,
    Perception,
    Phase,
    Reflection,
)

CALL = Call("probe", {})
LAST_RESORT = {"sense": "skip", "plan": "skip", "act": "reflect", "reflect": "continue"}
POLICIES = ("skip", "continue", "retry", "pause", "stop")


class Lab:
    """An agent of scripted modules, one of them exchanged, and everything it told."""

    def __init__(
        self, clock: VirtualClock, *, settings: dict[str, Any] | None = None, memory: Any = None, **modules: Any
    ) -> None:
        self.clock = clock
        self.sense, self.planner = ScriptedSense(["x"], then="x"), ScriptedPlanner([[CALL]])
        self.actor, self.reflector = ScriptedActor(), ScriptedReflector()
        given = {"sense": self.sense, "plan": self.planner, "act": self.actor, "reflect": self.reflector} | modules
        self.agent = Agent(**given, settings={"agent": settings or {}}, memory=memory, clock=clock)
        self.errors: list[ErrorOccurred] = []
        self.completed: list[str] = []
        self.started: list[str] = []
        self.outcomes: list[str] = []
        on = self.agent.events.subscribe
        on(ErrorOccurred, self.errors.append)
        on(PhaseStarted, lambda event: self.started.append(event.phase))
        on(PhaseCompleted, lambda event: self.completed.append(event.phase))
        on(LoopCompleted, lambda event: self.outcomes.append(event.outcome))

    async def turn(self, seconds: float = 0.5) -> Lab:
        """Run for so many seconds (one cycle takes none, the next begins after one)."""
        await self.agent.start()
        await self.clock.sleep(seconds)
        await self.agent.stop()
        return self

    @property
    def result(self) -> ActionResult:
        """The last that reflect received."""
        return self.reflector.seen[-1]


def raising(error: BaseException | type[BaseException], times: int | None = None) -> Callable[..., Awaitable[Any]]:
    """A module that raises, for good or so many times; afterwards it brings nothing."""
    left = times

    async def module(*given: Any) -> Any:
        nonlocal left
        if left is not None:
            left -= 1
            if left < 0:
                return ActionResult() if given and isinstance(given[0], Action) else None
        raise error

    return module


def bringing(product: Any) -> Callable[..., Awaitable[Any]]:
    async def module(*given: Any) -> Any:
        return product

    return module


def timed(phase: Phase, **terms: Any) -> dict[str, Any]:
    return {"phases": {phase: terms}}


# -- each phase under each policy -------------------------------------------------------------------------


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("phase", PHASES)
async def test_a_failing_phase_is_told_counted_and_answered_by_its_policy(
    clock: VirtualClock, phase: Phase, policy: str
) -> None:
    error = OSError("no route")
    lab = Lab(clock, settings={"errors": {phase: policy}, "loop_interval": 1000}, **{phase: raising(error)})

    await lab.agent.start()
    await clock.sleep(100)
    state = lab.agent.state

    answer = LAST_RESORT[phase] if policy == "retry" else policy
    assert [event.policy for event in lab.errors] == [*["retry"] * (3 if policy == "retry" else 0), answer]
    for event in lab.errors:
        assert (event.phase, event.error.kind, event.error.message, event.exception) == (phase, "io", "no route", error)
        assert event.error.phase == phase
        assert "raising" in event.error.part
        assert event.cycle_id
    assert lab.outcomes == ["failed"]
    assert state == {"pause": "paused", "stop": "stopped"}.get(policy, "running")
    stats = lab.agent.stats
    assert stats.errors_by_phase == {**dict.fromkeys(PHASES, 0), phase: 1}
    assert (stats.failed_cycles, stats.error_rate, stats.consecutive_failures) == (1, 1.0, 1)
    before = list(PHASES[: PHASES.index(phase)])
    goes_on = phase == "act" and answer != "skip"
    assert lab.completed == (["sense", "plan", "reflect"] if goes_on else before)
    assert lab.started == [*before, phase, *(["reflect"] if goes_on else [])]
    await lab.agent.stop()


async def test_the_next_cycle_is_not_affected_by_the_last(clock: VirtualClock) -> None:
    for phase in PHASES:
        lab = await Lab(clock, settings={"loop_interval": 1.0}, **{phase: raising(OSError("once"), times=1)}).turn(1.5)
        assert lab.outcomes[0] == "failed", phase
        assert lab.outcomes[1] in ("acted", "idle"), phase
        assert lab.agent.stats.consecutive_failures == 0


async def test_the_outcome_of_an_action_is_remembered_when_reflect_fails(clock: VirtualClock) -> None:
    store = RecordingStore()
    await Lab(clock, memory=store, reflect=raising(OSError("no model"))).turn()

    experience = next(iter(store.experiences.values())) if isinstance(store.experiences, dict) else store.experiences[0]
    assert (experience.action, experience.outcome) == ("probe", "ok")
    assert experience.situation == "x"
    assert "no model" in experience.cause
    (record,) = store.cycles
    assert record.outcome == "failed"
    assert record.result is not None
    assert record.reflection is None


# -- attempts ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", PHASES)
async def test_retries_are_made_within_the_cycle_and_back_off(clock: VirtualClock, phase: Phase) -> None:
    at: list[float] = []
    module = raising(OSError("busy"), times=3)

    async def timed_module(*given: Any) -> Any:
        at.append(clock.elapsed)
        return await module(*given)

    settings = {**timed(phase, retries=3, backoff=0.5), "loop_interval": 1000}
    lab = await Lab(clock, settings=settings, **{phase: timed_module}).turn(100)

    assert at == [0.0, 0.5, 1.5, 3.5]
    assert [event.policy for event in lab.errors] == ["retry"] * 3
    assert len(lab.outcomes) == 1
    assert lab.outcomes != ["failed"]
    assert lab.agent.stats.errors_by_phase[phase] == 0
    assert lab.started.count(phase) == lab.completed.count(phase) == 1


async def test_a_transient_error_says_when_to_try_again(clock: VirtualClock) -> None:
    at: list[float] = []

    async def plan(perceptions: Any) -> Action | None:
        at.append(clock.elapsed)
        if len(at) < 3:
            raise TransientError("rate limited", retry_after=3.0)
        return Action([CALL])

    lab = await Lab(clock, plan=plan, settings={**timed("plan", retries=5, backoff=0.1), "loop_interval": 1000}).turn(
        50
    )

    assert at == [0.0, 3.0, 6.0]
    assert lab.outcomes == ["acted"]
    assert [event.error.detail["retry_after"] for event in lab.errors] == [3.0, 3.0]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (PermanentError("bad key"), "permanent"),
        (ExceptionGroup("both", [OSError("busy"), PermanentError("bad key")]), "permanent"),
        (TransientError("come back tomorrow", retry_after=86_400), "transient"),
    ],
)
async def test_an_error_that_is_permanent_or_asks_for_more_patience_than_a_cycle_has_is_not_retried(
    clock: VirtualClock, error: Exception, kind: str
) -> None:
    lab = await Lab(clock, plan=raising(error), settings={**timed("plan", retries=5), "loop_interval": 1000}).turn(50)

    assert [(event.policy, event.error.kind, event.error.retryable) for event in lab.errors] == [
        ("skip", kind, kind == "transient")
    ]


@pytest.mark.parametrize("wait", ["soon", -5.0, float("nan"), float("inf"), None, object()])
async def test_a_senseless_retry_after_is_as_good_as_none(clock: VirtualClock, wait: Any) -> None:
    lab = await Lab(
        clock,
        plan=raising(TransientError("busy", retry_after=wait)),
        settings={**timed("plan", retries=1, backoff=0.5), "loop_interval": 1000},
    ).turn(50)

    assert [event.policy for event in lab.errors] == ["retry", "skip"]
    assert "retry_after" not in lab.errors[0].error.detail


async def test_stopping_does_not_wait_for_attempts_beyond_its_deadline(clock: VirtualClock) -> None:
    lab = Lab(clock, plan=raising(OSError("busy")), settings=timed("plan", retries=100, backoff=5))

    await lab.agent.start()
    await clock.sleep(1)
    await lab.agent.stop(deadline=2)

    assert clock.elapsed <= 4
    assert lab.outcomes == ["interrupted"]


# -- what was raised --------------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", PHASES)
async def test_a_group_is_told_with_the_messages_of_its_leaves(clock: VirtualClock, phase: Phase) -> None:
    group = ExceptionGroup("tasks", [OSError("disk full"), ExceptionGroup("inner", [ValueError("bad page")])])
    lab = await Lab(clock, **{phase: raising(group)}).turn()

    (event,) = lab.errors
    assert event.exception is group
    assert "disk full" in event.error.message
    assert "bad page" in event.error.message
    assert event.error.detail["leaves"] == ["disk full", "bad page"]


@pytest.mark.parametrize("error", [asyncio.CancelledError, BaseExceptionGroup("g", [asyncio.CancelledError()])])
@pytest.mark.parametrize("phase", PHASES)
async def test_a_module_that_cancels_itself_interrupts_its_cycle(clock: VirtualClock, phase: Phase, error: Any) -> None:
    lab = await Lab(clock, settings={"loop_interval": 1.0}, **{phase: raising(error)}).turn(2.5)

    assert lab.outcomes == ["interrupted"] * 3
    assert lab.errors == []
    assert lab.agent.stats.failed_cycles == 0
    assert sum(lab.agent.stats.errors_by_phase.values()) == 0


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")

    @property
    def output(self) -> Any:
        raise RuntimeError("nor this")


class Uninitialised(TransientError):
    def __init__(self) -> None:
        pass


@pytest.mark.parametrize(
    "error",
    [
        Unspeakable(),
        Uninitialised(),
        Exception("\udcff{x}\x00"),
        Exception("x" * 1_000_000),
        StopIteration(1),
        StopAsyncIteration(),
        RecursionError(),
        MemoryError(),
        AssertionError(),
    ],
)
@pytest.mark.parametrize("phase", PHASES)
async def test_whatever_an_exception_is_like_the_loop_goes_on(
    clock: VirtualClock, phase: Phase, error: Exception
) -> None:
    lab = await Lab(clock, settings={"loop_interval": 1.0}, **{phase: raising(error)}).turn(1.5)

    assert lab.outcomes == ["failed", "failed"]
    assert all(event.error.message for event in lab.errors)


# -- junk -------------------------------------------------------------------------------------------------


def made(kind: type, **fields: Any) -> Any:
    """A value whose fields are not what they must be."""
    return kind(**fields)


class Gibberish:
    def __repr__(self) -> str:
        raise RuntimeError("no words")


CIRCLE: dict[str, Any] = {}
CIRCLE["me"] = CIRCLE

JUNK: dict[str, list[Any]] = {
    "sense": ["text", 7, {"content": "x"}, ["text"], [Perception("x"), None], {Perception}, Gibberish(), [Gibberish()]],
    "plan": [
        "text",
        7,
        ["not a call"],
        [CALL, None],
        {"_tool": "probe"},
        CALL,
        Gibberish(),
        [Gibberish()],
        Action(output={1, 2}),
        Action(output={("a", "b"): 1}),
        Action(output=CIRCLE),
        Action(output=Gibberish()),
    ],
    "act": [
        None,
        "ok",
        7,
        Action(),
        [CallResult(CALL, "ok")],
        {"status": "ok"},
        Gibberish(),
        made(ActionResult, results="ok"),
        made(ActionResult, results=[{"status": "ok"}]),
        made(ActionResult, status="fine"),
        made(ActionResult, duration=float("nan")),
        made(ActionResult, errors=[{"error": "it broke"}]),
        made(ActionResult, messages=None),
        made(ActionResult, action={"calls": []}),
        ActionResult(results=[made(CallResult, call={"_tool": "x"}, status="ok")]),
        ActionResult(results=[made(CallResult, call=CALL, status="done")]),
        ActionResult(results=[made(CallResult, call=CALL, status="ok", duration=None)]),
        ActionResult(results=[made(CallResult, call=CALL, status="ok", duration=-1.0)]),
        ActionResult(results=[made(CallResult, call=CALL, status="ok", attempts="two")]),
        ActionResult(results=[made(CallResult, call=CALL, status="failed", fault="it broke")]),
    ],
    "reflect": [
        "text",
        7,
        ActionResult(),
        [],
        Gibberish(),
        made(Reflection, score="well"),
        made(Reflection, score=2.0),
        made(Reflection, failures=["x"]),
        *[made(Reflection, experiences=each) for each in (None, ("x",))],
        made(Reflection, abilities=("x",)),
        made(Reflection, next_look="soon"),
        Reflection(experiences=[made(Experience, situation=object())]),
        Reflection(experiences=[made(Experience, situation="s", cost="much")]),
        Reflection(experiences=[made(Experience, situation="s", at="now")]),
        Reflection(abilities=[made(Ability, tool="x", task="", estimate="high", uncertainty=0.1, trials=1)]),
    ],
}


@pytest.mark.parametrize(
    ("phase", "junk"),
    [(phase, junk) for phase, many in JUNK.items() for junk in many],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
async def test_junk_is_an_error_of_the_phase_that_names_the_module(clock: VirtualClock, phase: str, junk: Any) -> None:
    lab = await Lab(clock, **{phase: bringing(junk)}).turn()

    (event,) = lab.errors
    assert (event.phase, event.error.kind) == (phase, "contract")
    assert isinstance(event.exception, ContractError)
    assert "bringing" in event.error.message
    assert lab.outcomes == ["failed"]
    assert all(isinstance(seen, ActionResult) for seen in lab.reflector.seen)


@pytest.mark.parametrize("ignoring", [False, True])
@pytest.mark.parametrize("phase", PHASES)
async def test_a_hung_phase_never_stalls_the_loop_beyond_its_deadline(
    clock: VirtualClock, phase: Phase, ignoring: bool
) -> None:
    with Hang(ignore_cancel=ignoring) as hang:

        async def hung(*given: Any) -> Any:
            await hang.wait()

        settings = {"phases": {phase: {"timeout": 5, "grace": 0.5}}, "loop_interval": 1.0}
        lab = Lab(clock, settings=settings, **{phase: hung})
        alerts: list[HealthAlert] = []
        steps: list[RecoveryStep] = []
        lab.agent.events.subscribe(HealthAlert, alerts.append)
        lab.agent.events.subscribe(RecoveryStep, steps.append)
        await lab.agent.start()
        await clock.sleep(14)

        assert len(lab.outcomes) == 2
        for event in lab.errors:
            assert (event.phase, event.error.kind) == (phase, "timeout")
            assert isinstance(event.exception, PhaseTimeoutError)
            assert event.exception.was_left_behind == ignoring
        assert [alert.kind for alert in alerts] == ["stuck"]
        assert {step.step for step in steps} == {"abandon" if ignoring else "cancel"}
        assert lab.agent.left_behind == (len(lab.errors) if ignoring else 0)
        await lab.agent.stop(deadline=1)
    await clock.sleep(0.1)
    assert lab.agent.left_behind == 0


async def test_a_blocking_module_is_left_to_its_thread_at_the_deadline(clock: VirtualClock) -> None:
    hang = Hang()

    def plan(perceptions: Any) -> None:
        hang.block()

    lab = Lab(clock, plan=plan, settings={**timed("plan", timeout=2), "loop_interval": 1000})
    try:
        await lab.agent.start()
        await clock.sleep(5)
        assert [event.error.kind for event in lab.errors] == ["timeout"]
        assert lab.outcomes == ["failed"]
        assert lab.agent.left_behind == 1
    finally:
        hang.release()
        await lab.agent.stop()


async def test_the_deadline_holds_after_a_pause_in_the_middle_of_an_earlier_one(clock: VirtualClock) -> None:
    hang_from = 2

    async def sense() -> None:
        nonlocal hang_from
        hang_from -= 1
        await clock.sleep(0.5 if hang_from >= 0 else 10_000)

    lab = Lab(clock, sense=sense, settings={**timed("sense", timeout=30), "loop_interval": 1.0})
    await lab.agent.start()
    await clock.sleep(0.25)
    await lab.agent.pause()
    await clock.sleep(5)
    await lab.agent.resume()
    await clock.sleep(60)

    assert lab.outcomes[:3] == ["idle", "idle", "failed"]
    await lab.agent.stop(deadline=0)


@pytest.mark.parametrize("ignoring", [False, True])
async def test_what_the_executor_had_done_is_kept_when_act_is_late_also_if_a_tool_ignores_its_cancellation(
    clock: VirtualClock, ignoring: bool
) -> None:
    with Hang(ignore_cancel=ignoring) as hang:

        @tool(timeout=5000)
        async def stuck() -> None:
            await hang.wait()

        planner = ScriptedPlanner([[Call("quick"), Call("stuck")]])
        act = Executor([RecordingTool("quick", "done"), stuck])
        lab = Lab(clock, plan=planner, act=act, settings=timed("act", timeout=10))
        await lab.agent.start()
        await clock.sleep(11)

        first, second = lab.result.results
        assert (lab.result.status, lab.result.fault.kind) == ("failed", "timeout")
        assert (first.call.tool, first.status, first.output) == ("quick", "ok", "done")
        assert second.status != "ok"
    await lab.agent.stop()


async def test_what_the_executor_had_done_is_kept_when_the_cycle_is_cut(clock: VirtualClock) -> None:
    store = RecordingStore()
    quick, slow = RecordingTool("quick", "done"), RecordingTool("slow", delay=1000, timeout=5000)
    lab = Lab(clock, plan=ScriptedPlanner([[Call("quick"), Call("slow")]]), act=Executor([quick, slow]), memory=store)

    await lab.agent.start()
    await clock.sleep(1)
    await lab.agent.stop(deadline=1)

    (record,) = store.cycles
    assert record.outcome == "interrupted"
    assert {item.call.tool: item.status for item in record.result.results}["quick"] == "ok"
    assert lab.reflector.seen == []


async def test_a_result_that_comes_between_cancellation_and_grace_is_kept(clock: VirtualClock) -> None:
    async def act(action: Action) -> ActionResult:
        try:
            await clock.sleep(1000)
        except asyncio.CancelledError:
            pass
        return ActionResult(action, "partial", (CallResult(CALL, "ok", output="half"),))

    lab = await Lab(clock, act=act, settings=timed("act", timeout=3)).turn(3.5)

    assert lab.result.status == "failed"
    assert lab.result.results[0].output == "half"
    assert lab.result.fault.kind == "timeout"


@pytest.mark.parametrize("answer", [RuntimeError("cannot tell"), "junk", 7, None])
async def test_an_actor_that_cannot_tell_what_it_did_disturbs_nobody(clock: VirtualClock, answer: Any) -> None:
    class Actor:
        async def act(self, action: Action) -> ActionResult:
            raise OSError("no route")

        def interrupted(self, action_id: str) -> Any:
            if isinstance(answer, Exception):
                raise answer
            return answer

    lab = await Lab(clock, act=Actor(), settings={"loop_interval": 1.0}).turn(1.5)

    assert lab.outcomes == ["failed", "failed"]
    assert [item.status for item in lab.result.results] == ["failed"]


# -- cut --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["lets it through", "swallows it", "ignores it", "makes an error of it"])
async def test_an_aborted_run_ends_whatever_its_phase_does_about_it(clock: VirtualClock, way: str) -> None:
    with Hang(ignore_cancel=True) as hang:

        async def act(action: Action) -> ActionResult:
            try:
                await clock.sleep(500)
            except asyncio.CancelledError:
                if way == "lets it through":
                    raise
                if way == "makes an error of it":
                    raise OSError("connection lost") from None
                if way == "ignores it":
                    await hang.wait()
            return ActionResult(action)

        lab = Lab(clock, sense=ScriptedSense(), act=act, plan=ScriptedPlanner([[CALL]], then=None))
        await lab.agent.start()
        receipt = await lab.agent.submit("do it")
        await clock.sleep(2)
        await lab.agent.abort(receipt.run_id)
        status = await lab.agent.wait(receipt.run_id, 0)
        assert (status.status, status.error) == ("error", "aborted")
        assert clock.elapsed < 5

        # and the lane is as good as new
        again = await lab.agent.submit("and again")
        assert (await lab.agent.wait(again.run_id)).status == "ok"
        assert lab.errors == []
        assert lab.outcomes.count("interrupted") == 1
        await lab.agent.stop(deadline=1)


# -- GeneratorExit, which closes nothing but a coroutine that is being closed -------------------------------------


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("waits", [False, True])
async def test_a_generator_exit_of_a_module_is_an_error_of_its_phase(
    clock: VirtualClock, phase: Phase, waits: bool
) -> None:
    async def exits(*given: Any) -> None:
        if waits:
            await clock.sleep(0.1)
        raise GeneratorExit("x")

    lab = await Lab(clock, **{phase: exits}, settings={"loop_interval": 1.0}).turn(5)

    assert {event.phase for event in lab.errors} == {phase}
    assert {event.error.detail["type"] for event in lab.errors} == {"GeneratorExit"}
    assert len(lab.outcomes) > 1
    assert lab.agent.failure == ""


async def test_a_generator_exit_of_a_streamed_plan_is_an_error_of_the_plan(clock: VirtualClock) -> None:
    async def plan(perceptions: Any) -> Any:
        yield CALL
        await clock.sleep(0.1)
        raise GeneratorExit("x")

    lab = await Lab(clock, plan=plan, settings={"loop_interval": 1.0}).turn(5)

    assert {event.phase for event in lab.errors} == {"plan"}
    assert all("raised GeneratorExit" in event.error.message for event in lab.errors)
    assert len(lab.outcomes) > 1


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_generator_exit_of_a_hook_is_a_fault_of_the_hook(clock: VirtualClock, is_async: bool) -> None:
    lab = Lab(clock, settings={"loop_interval": 1.0})

    async def exits(ctx: Any) -> None:
        raise GeneratorExit("x")

    def exits_at_once(ctx: Any) -> None:
        raise GeneratorExit("x")

    lab.agent.hooks.add("before_plan", exits if is_async else exits_at_once)
    await lab.turn(5)

    assert {(event.phase, event.error.detail["type"]) for event in lab.errors} == {("before_plan", "GeneratorExit")}
    assert set(lab.outcomes) == {"acted"}


async def test_a_generator_exit_of_an_async_handler_is_counted_and_turns_it_off(clock: VirtualClock) -> None:
    lab = Lab(clock, settings={"loop_interval": 1.0})

    async def exits(event: LoopCompleted) -> None:
        raise GeneratorExit("x")

    handle = lab.agent.events.subscribe(LoopCompleted, exits)
    await lab.turn(30)

    assert handle.is_off
    assert lab.agent.events.handler_errors == 10
    assert len(lab.outcomes) > 20
