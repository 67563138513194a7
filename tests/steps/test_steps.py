"""One phase at a time: `step_sense`, `step_plan`, `step_act`, `step_reflect`."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

from memory import Memory
from reflection import Reflect
from spar import (
    Action,
    ActionResult,
    Agent,
    Call,
    Decision,
    ErrorOccurred,
    Experience,
    LifecycleError,
    LoopCompleted,
    LoopStarted,
    Perception,
    PhaseCompleted,
    PhaseStarted,
    Reflection,
    SparError,
    TransientError,
    tool,
)  # fmt: skip
from spar.events import CallInDoubt, Event
from spar.testing import (
    Hang,
    RecordingStore,
    ScriptedActor,
    ScriptedPlanner,
    ScriptedReflector,
    ScriptedSense,
    VirtualClock,
    stream,
)  # fmt: skip
from tests.doubles import heard

GO = Perception("go")
NOTE = Call("note", {"text": "x"})


def agent_of(clock: VirtualClock, **more: Any) -> Agent:
    modules: dict[str, Any] = {
        "sense": ScriptedSense([[GO]]), "plan": ScriptedPlanner([NOTE]), "act": ScriptedActor(),
        "reflect": ScriptedReflector(),
    }  # fmt: skip
    return Agent(**{**modules, "clock": clock, **more})


def told_by(agent: Agent) -> list[str]:
    told: list[str] = []

    def note(event: Event) -> None:
        phase = getattr(event, "phase", "")
        told.append(f"{type(event).__name__} {phase}".strip())

    for kind in (LoopStarted, PhaseStarted, PhaseCompleted, ErrorOccurred, LoopCompleted):
        agent.events.subscribe(kind, note)
    return told


async def test_each_step_takes_the_product_of_the_one_before(clock: VirtualClock) -> None:
    planner, actor, reflector = ScriptedPlanner([NOTE]), ScriptedActor(), ScriptedReflector()
    agent = agent_of(clock, plan=planner, act=actor, reflect=reflector)
    told = told_by(agent)

    perceptions = await agent.step_sense()
    action = await agent.step_plan()
    result = await agent.step_act()
    reflection = await agent.step_reflect()

    assert perceptions == [GO]
    assert planner.seen == [[GO]]
    assert actor.seen == [action]
    assert reflector.seen == [result]
    assert result.action == action
    assert reflection.result == result
    phases = ("sense", "plan", "act", "reflect")
    each = [f"{what} {phase}" for phase in phases for what in ("PhaseStarted", "PhaseCompleted")]
    assert told == ["LoopStarted", *each, "LoopCompleted"], "as a cycle is told"


async def test_what_is_given_goes_before_what_was_left(clock: VirtualClock) -> None:
    planner, actor, reflector = ScriptedPlanner([NOTE]), ScriptedActor(), ScriptedReflector()
    agent = agent_of(clock, plan=planner, act=actor, reflect=reflector)
    mine, other = Perception("mine"), Action(calls=[Call("other")])

    await agent.step_sense()
    await agent.step_plan([mine])
    await agent.step_act(other)
    await agent.step_reflect(ActionResult(other, "failed"))

    assert planner.seen == [[mine]]
    assert actor.seen == [other]
    assert [result.status for result in reflector.seen] == ["failed"]


async def test_one_perception_is_accepted_where_a_list_is_expected_and_with_none_it_plans_on_nothing(
    clock: VirtualClock,
) -> None:
    planner = ScriptedPlanner([NOTE, None])
    action = await agent_of(clock, plan=planner).step_plan(GO)
    assert action.perceptions == (GO,)
    assert await agent_of(clock, plan=planner).step_plan() is None
    assert planner.seen == [[GO], []]


@pytest.mark.parametrize("step", ["act", "reflect"])
async def test_a_step_with_nothing_to_work_on_says_so_and_begins_no_cycle(step: str, clock: VirtualClock) -> None:
    agent = agent_of(clock, plan=ScriptedPlanner([None]))
    told = told_by(agent)

    with pytest.raises(ValueError, match=f"nothing to {step} on"):
        await getattr(agent, f"step_{step}")()

    assert told == []
    await agent.step_plan()
    with pytest.raises(ValueError, match=f"nothing to {step} on"):
        await getattr(agent, f"step_{step}")()


@pytest.mark.parametrize(("step", "junk"), [("plan", "text"), ("plan", ["text"]), ("act", NOTE), ("reflect", Action())])
async def test_what_is_of_the_wrong_type_is_refused(step: str, junk: Any, clock: VirtualClock) -> None:
    with pytest.raises(TypeError, match=f"step_{step} takes"):
        await getattr(agent_of(clock), f"step_{step}")(junk)


# -- what is told and recorded


async def test_a_chain_is_recorded_and_counted_like_any_cycle(clock: VirtualClock) -> None:
    store = RecordingStore()

    async def reflect(result: ActionResult) -> Reflection:
        return Reflection(result=result, experiences=(Experience("situation"),))

    agent = agent_of(clock, memory=store, reflect=reflect)
    given = Perception("given by hand")

    action = await agent.step_plan(given)
    await agent.step_act()
    await agent.step_reflect()
    await agent.stop()

    (record,) = store.cycles
    assert record.outcome == "acted"
    assert record.perceptions == (given,)
    assert record.action.id == action.id
    assert set(record.phases) == {"plan", "act", "reflect"}
    assert [item.situation for item in store.experiences.values()] == ["situation"]
    assert agent.stats.total_cycles == 1
    assert agent.stats.phase_mean_seconds["plan"] >= 0.0


async def test_the_looking_in_between_is_no_part_of_the_duration(clock: VirtualClock) -> None:
    agent = agent_of(clock, plan=ScriptedPlanner([2.0, NOTE]), act=ScriptedActor([3.0, "ok"]))
    durations: list[float] = []
    agent.events.subscribe(LoopCompleted, lambda event: durations.append(event.duration))

    await agent.step_sense()
    await asyncio.sleep(600.0)
    await agent.step_plan()
    await asyncio.sleep(600.0)
    await agent.step_act()
    await agent.step_reflect()

    assert durations == [pytest.approx(5.0)]


async def test_a_streamed_plan_is_written_to_its_end_before_the_step_returns(clock: VirtualClock) -> None:
    actor = ScriptedActor()
    agent = agent_of(clock, plan=ScriptedPlanner([stream([Call("a"), 1.0, Call("b")])]), act=actor)

    action = await agent.step_plan(GO)

    assert [call.tool for call in action.calls] == ["a", "b"]
    assert clock.elapsed == 1.0
    assert actor.seen == []


# -- failures


@pytest.mark.parametrize("step", ["sense", "plan", "reflect"])
async def test_a_failing_step_is_told_and_raised_and_can_be_repeated(step: str, clock: VirtualClock) -> None:
    error = OSError("no device")
    scripts: dict[str, Any] = {
        "sense": ScriptedSense([error, [GO]]), "plan": ScriptedPlanner([error, NOTE]),
        "reflect": ScriptedReflector([error, None]),
    }  # fmt: skip
    agent = agent_of(clock, **{step: scripts[step]})
    told = told_by(agent)
    given = [ActionResult(Action())] if step == "reflect" else []

    with pytest.raises(OSError, match="no device") as caught:
        await getattr(agent, f"step_{step}")(*given)

    assert caught.value is error
    assert told == ["LoopStarted", f"PhaseStarted {step}", f"ErrorOccurred {step}"]
    await getattr(agent, f"step_{step}")(*given)


async def test_a_step_past_its_deadline_raises_and_the_next_one_works(clock: VirtualClock) -> None:
    with Hang(ignore_cancel=True) as hang:
        agent = agent_of(
            clock, plan=ScriptedPlanner([hang, NOTE]), settings={"agent": {"phases": {"plan": {"timeout": 2}}}}
        )

        with pytest.raises(TimeoutError, match="took longer than 2 s"):
            await agent.step_plan(GO)

        assert agent.left_behind == 1
        assert await agent.step_plan(GO) is not None


async def test_a_hook_that_refuses_a_step_is_said(clock: VirtualClock) -> None:
    agent = agent_of(clock)

    @agent.hook("before_plan")
    async def refuse(ctx: Any) -> Decision:
        return Decision.deny("not today")

    with pytest.raises(PermissionError, match="step_plan"):
        await agent.step_plan(GO)


async def test_a_module_that_cancels_itself_does_not_cancel_who_steps(clock: VirtualClock) -> None:
    agent = agent_of(clock, plan=ScriptedPlanner([asyncio.CancelledError(), NOTE]))
    told = told_by(agent)

    with pytest.raises(SparError, match="step_plan was interrupted: ScriptedPlanner"):
        await agent.step_plan(GO)

    assert not any(line.startswith("ErrorOccurred") for line in told)
    assert await agent.step_plan(GO) is not None


# -- when, and together with what


@pytest.mark.parametrize("step", ["sense", "plan", "act", "reflect"])
async def test_while_it_runs_a_step_is_refused(step: str, clock: VirtualClock) -> None:
    given = {"sense": [], "plan": [GO], "act": [Action()], "reflect": [ActionResult()]}[step]
    async with agent_of(clock) as agent:
        with pytest.raises(LifecycleError, match=f"cannot step_{step} an agent that is running"):
            await getattr(agent, f"step_{step}")(*given)


class Opened:
    def __init__(self) -> None:
        self.log: list[str] = []

    async def __aenter__(self) -> Opened:
        self.log.append("open")
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.log.append("close")

    async def sense(self) -> list[Perception]:
        assert self.log[-1] == "open"
        return [GO]


async def test_steps_open_the_modules_once_and_stop_closes_them(clock: VirtualClock) -> None:
    part = Opened()
    agent = agent_of(clock, sense=part)

    await agent.step_sense()
    await agent.step_sense()
    assert part.log == ["open"]
    await agent.stop()
    assert part.log == ["open", "close"]
    assert agent.state == "created"

    await agent.step_sense()
    await agent.start()
    await agent.stop()
    assert part.log == ["open", "close"] * 2


async def test_a_stream_of_events_ends_when_the_stepped_agent_is_stopped(clock: VirtualClock) -> None:
    agent = agent_of(clock)
    events = agent.events.stream(PhaseCompleted)
    await agent.step_sense()

    await agent.stop()

    assert [type(event).__name__ async for event in events] == ["PhaseCompleted"]


async def test_a_resume_waits_for_the_step_in_hand_and_the_loop_then_turns(clock: VirtualClock) -> None:
    agent = agent_of(clock, plan=ScriptedPlanner([5.0, NOTE, None], then=None))
    await agent.start()
    await asyncio.sleep(0)
    await agent.pause()
    step = asyncio.create_task(agent.step_plan(GO))
    await asyncio.sleep(1.0)

    await agent.resume()

    assert step.done()
    assert agent.state == "running"
    before = agent.stats.total_cycles
    await asyncio.sleep(10.0)
    assert agent.stats.total_cycles > before + 5
    await agent.stop()


async def test_steps_asked_for_at_once_are_made_one_after_the_other(clock: VirtualClock) -> None:
    running = most = 0

    async def plan(perceptions: Any) -> Action:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(1.0)
        running -= 1
        return Action(calls=[NOTE])

    agent = agent_of(clock, plan=plan)

    await asyncio.gather(*(agent.step_plan(GO) for _ in range(4)))

    assert most == 1
    assert clock.elapsed == 4.0


async def test_a_step_inside_a_step_is_refused_instead_of_waiting_for_itself(clock: VirtualClock) -> None:
    async def plan(perceptions: Any) -> Any:
        return await agent.step_sense()

    agent = agent_of(clock, plan=plan)

    with pytest.raises(LifecycleError, match="step_sense"):
        await asyncio.wait_for(agent.step_plan(GO), 5.0)


@pytest.mark.parametrize("ignores", [False, True])
async def test_a_cancelled_step_ends_and_the_next_one_works(ignores: bool, clock: VirtualClock) -> None:
    with Hang(ignore_cancel=ignores) as hang:
        agent = agent_of(clock, plan=ScriptedPlanner([hang, NOTE]))

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(agent.step_plan(GO), 3.0)

        assert hang.cancelled >= 1
        assert clock.elapsed < 6.0
        assert await agent.step_plan(GO) is not None
        assert agent.left_behind == (1 if ignores else 0)


async def test_a_chain_that_was_cut_is_recorded_as_interrupted(clock: VirtualClock) -> None:
    outcomes: list[str] = []
    agent = agent_of(clock, plan=ScriptedPlanner([Hang()]))
    agent.events.subscribe(LoopCompleted, lambda event: outcomes.append(event.outcome))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(agent.step_plan(GO), 3.0)

    await agent.stop()

    assert outcomes == ["interrupted"]


async def test_a_stop_with_a_deadline_cuts_a_step_that_hangs(clock: VirtualClock) -> None:
    agent = agent_of(clock, plan=ScriptedPlanner([Hang()]))
    step = asyncio.create_task(agent.step_plan(GO))
    await asyncio.sleep(1.0)

    await agent.stop(deadline=2.0)

    with pytest.raises(LifecycleError, match="step_plan"):
        await step
    assert clock.elapsed == pytest.approx(3.0, abs=0.1)


async def test_a_stop_without_deadline_waits_for_the_step_in_hand(clock: VirtualClock) -> None:
    agent = agent_of(clock, plan=ScriptedPlanner([5.0, NOTE]))
    step = asyncio.create_task(agent.step_plan(GO))
    await asyncio.sleep(1.0)

    await agent.stop()

    assert (await step) is not None
    assert clock.elapsed == pytest.approx(5.0, abs=0.1)


def test_a_chain_goes_on_from_one_event_loop_to_the_next() -> None:
    agent = Agent(sense=ScriptedSense([[GO]]), plan=ScriptedPlanner([NOTE]), act=ScriptedActor())

    asyncio.run(agent.step_sense())
    action = asyncio.run(agent.step_plan())
    result = asyncio.run(agent.step_act())
    asyncio.run(agent.stop())

    assert action is not None
    assert result.status == "ok"
    assert agent.stats.outcomes["acted"] == 1


# -- tried again ------------------------------------------------------------------------------------------


async def test_after_the_reflection_each_phase_can_be_tried_again_under_the_same_cycle(clock: VirtualClock) -> None:
    made = Call("x")
    planner, actor, reflector = (
        ScriptedPlanner([Action([made], reason="because")]),
        ScriptedActor(),
        ScriptedReflector(),
    )
    agent = Agent(sense=ScriptedSense(["x"]), plan=planner, act=actor, reflect=reflector, clock=clock)
    cycles: list[str] = []
    agent.events.subscribe(PhaseStarted, lambda event: cycles.append(event.cycle_id))

    perceptions = await agent.step_sense()
    action = await agent.step_plan()
    await agent.step_act()
    await agent.step_reflect()
    again = await agent.step_reflect()
    result = await agent.step_act()
    planned = await agent.step_plan()

    assert action is not None
    assert again.result.action == action
    assert [each.call for each in result.results] == [made]
    assert planned is not None
    assert planner.seen == [perceptions, perceptions]
    assert len(set(cycles)) == 1
    await agent.step_sense()
    assert len(set(cycles)) == 2
    await agent.stop()


async def test_a_chain_that_is_tried_again_after_a_failure_ends_as_its_last_try(clock: VirtualClock) -> None:
    tries = iter([OSError("no device"), None])

    async def reflect(result: ActionResult) -> Reflection:
        if (error := next(tries)) is not None:
            raise error
        return Reflection(result)

    agent = Agent(sense=ScriptedSense(["x"]), plan=ScriptedPlanner([Call("x")]), act=ScriptedActor(), reflect=reflect,
                  clock=clock)  # fmt: skip
    outcomes: list[str] = []
    agent.events.subscribe(LoopCompleted, lambda event: outcomes.append(event.outcome))
    await agent.step_sense()
    await agent.step_plan()
    await agent.step_act()
    with pytest.raises(OSError, match="no device"):
        await agent.step_reflect()
    await agent.step_reflect()
    await agent.stop()

    assert outcomes == ["failed"]  # one cycle, one of whose tries failed


@pytest.mark.parametrize("policy", ["skip", "reflect", "continue", "pause", "stop"])
async def test_a_failing_act_brings_its_result_under_every_policy(clock: VirtualClock, policy: str) -> None:
    async def act(action: Action) -> ActionResult:
        raise ValueError("boom")

    agent = Agent(act=act, settings={"agent": {"errors": {"act": policy}}}, clock=clock)

    result = await agent.step_act(Action([Call("x")]))

    assert (result.status, [each.status for each in result.results]) == ("failed", ["failed"])
    assert result.fault.message == "boom"
    await agent.stop()


@pytest.mark.parametrize("steps", ["sense plan act", "sense plan act reflect"])
async def test_steps_before_a_start_that_fails_are_on_the_tape(tmp_path: Path, steps: str) -> None:
    class IllMemory(Memory):
        is_ill = False

        async def load(self, key: str) -> Any:
            if self.is_ill:
                raise TransientError("the disk does not answer")
            return await super().load(key)

    memory = IllMemory(f"sqlite:///{tmp_path}/m.db")
    async with VirtualClock() as clock:
        agent = agent_of(clock, memory=memory, reflect=Reflect())
        for step in steps.split():
            await getattr(agent, f"step_{step}")()
        memory.is_ill = True
        with pytest.raises(TransientError):
            await agent.start()
        assert agent.agent_state.account["lost"] == 0
        await agent.stop()
        assert agent.agent_state.account["lost"] == 0
    async with Memory(f"sqlite:///{tmp_path}/m.db", read_only=True) as kept:
        assert len(await kept.cycles()) == 1


@pytest.mark.parametrize("by", ["stop", "caller", "deadline", "kill"])
async def test_a_call_that_a_step_was_cut_off_in_is_listed_in_doubt_at_once(tmp_path: Path, by: str) -> None:
    effects, has_begun = list[str](), asyncio.Event()

    @tool(effect="once")
    async def write() -> None:
        """Write, then hang."""
        effects.append("did")
        has_begun.set()
        await asyncio.Event().wait()

    async def listed(folder: Path) -> list[str]:
        async with Memory(f"sqlite:///{folder}/m.db", read_only=True) as kept:
            doubts, _ = await kept.left("main")
            return [doubt.id.partition("/")[0] + "/" + doubt.call.tool for doubt in doubts]

    memory = Memory(f"sqlite:///{tmp_path}/m.db")
    limit = {"agent": {"phases": {"act": {"timeout": 5.0}}}} if by == "deadline" else {}
    async with VirtualClock() as clock, Agent(tools=[write], memory=memory, clock=clock, settings=limit) as agent:
        told = heard(agent, CallInDoubt)
        await agent.pause()
        step = asyncio.create_task(agent.step_act(Action([Call("write")])))
        await has_begun.wait()
        journal = agent.core.ledger.journal
        await journal.safe()
        if by == "kill":
            shutil.copytree(tmp_path, tmp_path / "left")
            assert await journal.views.doubts("main") == []  # the call is on its way
        if by == "deadline":
            await step
        elif by == "stop":
            await agent.stop(1.0)
        else:
            step.cancel()
        await asyncio.gather(step, return_exceptions=True)
        if by != "stop":
            await journal.safe()
            [doubt] = await journal.views.doubts("main")
            await agent.recovery.restart.doubts.resolve(doubt.id, "done", by="ann")
            await agent.step_reflect()  # which closes the chain again
            await agent.resume()
        await agent.stop()
        assert len(told) == 1
        assert agent.recovery.snapshot()["in_doubt"] == (1 if by == "stop" else 0)

    [id] = await listed(tmp_path)
    assert (id.partition("/")[2], effects) == ("write", ["did"])
    if by == "kill":
        assert await listed(tmp_path / "left") == [id]
