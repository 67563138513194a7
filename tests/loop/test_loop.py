"""A cycle is sense, plan, act, reflect: in this order, under one id, each given what the one before it brought."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from spar import Agent, tool
from spar.events import Event, LoopCompleted, LoopStarted, PhaseCompleted, PhaseStarted, RepetitionNoticed, RunEnded
from spar.hooks import Decision
from spar.protocols import Context
from spar.testing import RecordingStore, ScriptedActor, ScriptedPlanner, ScriptedReflector, ScriptedSense, VirtualClock
from spar.types import Action, ActionResult, Call, CallResult, Perception, Reflection

CALL = Call("note", {"text": "hello"})


async def heard_in(agent: Agent, clock: VirtualClock, seconds: float = 0.5) -> list[Any]:
    """Every event of the agent's cycles within so many seconds; the agent is stopped then."""
    events: list[Event] = []
    for kind in (LoopStarted, PhaseStarted, PhaseCompleted, LoopCompleted):
        agent.events.subscribe(kind, events.append)
    await agent.start()
    await clock.sleep(seconds)
    await agent.stop()
    return events


def outcomes(events: list[Any]) -> list[str]:
    return [event.outcome for event in events if isinstance(event, LoopCompleted)]


def story(events: list[Any]) -> list[str]:
    """The events in short: `loop`, `+sense`, `-sense`, …, `acted`."""
    told: list[str] = []
    for event in events:
        if isinstance(event, LoopStarted):
            told.append("loop")
        elif isinstance(event, PhaseStarted):
            told.append(f"+{event.phase}")
        elif isinstance(event, PhaseCompleted):
            told.append(f"-{event.phase}")
        else:
            told.append(event.outcome)
    return told


async def test_a_cycle_is_sense_plan_act_reflect_under_one_id_each_given_what_the_one_before_it_brought(
    clock: VirtualClock,
) -> None:
    first = Perception("x")
    planner, actor, reflector = ScriptedPlanner([CALL]), ScriptedActor(), ScriptedReflector()
    agent = Agent(sense=ScriptedSense([[first]]), plan=planner, act=actor, reflect=reflector, clock=clock)

    events = await heard_in(agent, clock)

    phases = [f"{sign}{phase}" for phase in ("sense", "plan", "act", "reflect") for sign in "+-"]
    assert story(events) == ["loop", *phases, "acted"]
    assert len({event.cycle_id for event in events}) == 1
    assert [event.seq for event in events] == sorted({event.seq for event in events})
    given = {event.phase: event.input for event in events if isinstance(event, PhaseStarted)}
    brought = {event.phase: event.output for event in events if isinstance(event, PhaseCompleted)}
    assert planner.seen == [[first]]
    assert given["sense"] is None
    assert given["plan"] == brought["sense"] == (first,)
    assert given["act"] is brought["plan"] is actor.seen[0]
    assert given["reflect"] is brought["act"] is reflector.seen[0]
    assert isinstance(brought["reflect"], Reflection)


async def test_ids_of_cycles_are_unique_and_sorted_also_when_the_wall_clock_is_set_back(clock: VirtualClock) -> None:
    agent = Agent(clock=clock, loop_interval=0.01)
    ids: list[str] = []
    agent.events.subscribe(LoopStarted, lambda event: ids.append(event.cycle_id))
    async with agent:
        await clock.sleep(1.0)
        clock.jump_wall(-3600)
        await clock.sleep(1.0)

    assert len(ids) >= 150
    assert ids == sorted(set(ids))


async def test_durations_are_those_of_the_phases_and_of_the_whole(clock: VirtualClock) -> None:
    def taking(seconds: float, product: Any) -> Callable[..., Any]:
        async def phase(*given: Any) -> Any:
            await clock.sleep(seconds)
            return product

        return phase

    agent = Agent(
        sense=taking(0.5, [Perception("x")]),
        plan=taking(1.0, Action([CALL])),
        act=taking(2.0, ActionResult()),
        reflect=taking(4.0, Reflection()),
        clock=clock,
        loop_interval=100,
    )

    events = await heard_in(agent, clock, 10)

    assert {event.phase: event.duration for event in events if isinstance(event, PhaseCompleted)} == {
        "sense": 0.5,
        "plan": 1.0,
        "act": 2.0,
        "reflect": 4.0,
    }
    assert [event.duration for event in events if isinstance(event, LoopCompleted)] == [7.5]
    assert agent.stats.phase_mean_seconds == {"sense": 0.5, "plan": 1.0, "act": 2.0, "reflect": 4.0}
    assert agent.stats.cycle_mean_seconds == agent.stats.last_cycle_seconds == 7.5


async def test_values_carry_their_past_where_modules_left_it_empty(clock: VirtualClock) -> None:
    perception, action = Perception("x"), Action([CALL])

    async def act(action: Action) -> ActionResult:
        return ActionResult(results=(CallResult(CALL, "ok"),))

    async def reflect(result: ActionResult) -> Reflection:
        return Reflection(score=1.0)

    agent = Agent(
        sense=ScriptedSense([[perception]]), plan=ScriptedPlanner([action]), act=act, reflect=reflect, clock=clock
    )

    events = await heard_in(agent, clock)

    reflection = next(e.output for e in events if isinstance(e, PhaseCompleted) and e.phase == "reflect")
    assert reflection.score == 1.0
    assert reflection.result.action.id == action.id
    assert reflection.result.action.perceptions == (perception,)


async def test_the_past_that_a_module_states_itself_is_left_alone(clock: VirtualClock) -> None:
    mine, other = Perception("mine"), Action(goal="other")
    actor = ScriptedActor([ActionResult(action=other)])
    reflector = ScriptedReflector([Reflection(result=ActionResult(other))])
    planner = ScriptedPlanner([Action([CALL], perceptions=[mine])])
    agent = Agent(sense=ScriptedSense(["x"]), plan=planner, act=actor, reflect=reflector, clock=clock)

    events = await heard_in(agent, clock)

    assert actor.seen[0].perceptions == (mine,)
    assert reflector.seen[0].action is other
    assert (
        next(e.output for e in events if isinstance(e, PhaseCompleted) and e.phase == "reflect").result.action is other
    )


@pytest.mark.parametrize(
    ("sensed", "planned_on"),
    [
        (None, None),
        ([], None),
        ((), None),
        (Perception("one"), ["one"]),
        ([Perception("a"), Perception("b")], ["a", "b"]),
        ((Perception("t"),), ["t"]),
    ],
)
async def test_none_is_no_perceptions_and_a_bare_one_is_a_list_of_one(
    clock: VirtualClock, sensed: Any, planned_on: Any
) -> None:
    async def sense() -> Any:
        return sensed

    planner = ScriptedPlanner([None])
    agent = Agent(sense=sense, plan=planner, clock=clock)

    events = await heard_in(agent, clock)

    assert [[item.content for item in seen] for seen in planner.seen] == ([] if planned_on is None else [planned_on])
    assert outcomes(events) == ["idle"]


async def test_a_reflection_of_none_is_an_empty_one(clock: VirtualClock) -> None:
    async def reflect(result: ActionResult) -> None:
        return None

    agent = Agent(
        sense=ScriptedSense(["x"]), plan=ScriptedPlanner([CALL]), act=ScriptedActor(), reflect=reflect, clock=clock
    )

    events = await heard_in(agent, clock)

    reflection = next(e.output for e in events if isinstance(e, PhaseCompleted) and e.phase == "reflect")
    assert reflection.score == 0.0
    assert reflection.result.status == "ok"
    assert outcomes(events) == ["acted"]


async def test_a_module_that_asks_for_a_context_is_told_its_cycle_and_deadline(clock: VirtualClock) -> None:
    told: dict[str, Context] = {}

    async def sense(context: Context) -> list[Perception]:
        told["sense"] = context
        return [Perception("x")]

    async def plan(perceptions: Sequence[Perception], context: Context) -> Action:
        told["plan"] = context
        return Action([CALL])

    async def act(action: Action, ctx: Any) -> ActionResult:
        told["act"] = ctx
        return ActionResult()

    async def reflect(result: ActionResult, anything: Any) -> Reflection:
        told["reflect"] = anything
        return Reflection()

    settings = {"agent": {"phases": {"plan": {"timeout": 7}, "act": {"timeout": 0}}}}
    agent = Agent(sense=sense, plan=plan, act=act, reflect=reflect, name="rex", settings=settings, clock=clock)

    events = await heard_in(agent, clock)

    assert {context.cycle_id for context in told.values()} == {events[0].cycle_id}
    assert {(context.agent, context.session) for context in told.values()} == {("rex", "main")}
    assert told["plan"].deadline == clock.monotonic() - clock.elapsed + 7
    assert told["act"].deadline == float("inf")
    assert told["sense"].clock is clock


# -- idle -------------------------------------------------------------------------------------------------


async def test_without_perceptions_nothing_but_sense_is_called_or_written(clock: VirtualClock) -> None:
    planner, actor, reflector, store = ScriptedPlanner([CALL]), ScriptedActor(), ScriptedReflector(), RecordingStore()
    agent = Agent(sense=ScriptedSense(), plan=planner, act=actor, reflect=reflector, memory=store, clock=clock)

    events = await heard_in(agent, clock, 10.5)

    assert story(events) == ["loop", "+sense", "-sense", "idle"] * 11
    assert (planner.seen, actor.seen, reflector.seen) == ([], [], [])
    assert store.cycles == []
    assert not store.experiences


async def test_plan_when_idle_plans_on_nothing(clock: VirtualClock) -> None:
    planner = ScriptedPlanner([None, CALL])
    agent = Agent(
        sense=ScriptedSense(),
        plan=planner,
        act=ScriptedActor(),
        settings={"agent": {"plan_when_idle": True}},
        clock=clock,
    )

    events = await heard_in(agent, clock, 1.5)

    assert planner.seen == [[], []]
    assert outcomes(events) == ["idle", "acted"]


# -- outcomes ---------------------------------------------------------------------------------------------


async def _raises(*given: Any) -> Any:
    raise OSError("broken")


def _deny(point: str) -> Callable[[Agent], None]:
    def prepare(agent: Agent) -> None:
        agent.hooks.add(point, lambda ctx: Decision.deny("not now"))

    return prepare


def _as_it_is(agent: Agent) -> None:
    return None


OUTCOMES: list[tuple[str, dict[str, Any], Callable[[Agent], None], str]] = [
    ("all goes well", {}, _as_it_is, "acted"),
    ("a failing call is not a failing cycle", {"act": ScriptedActor(["failed"])}, _as_it_is, "acted"),
    ("nothing sensed", {"sense": ScriptedSense()}, _as_it_is, "idle"),
    ("nothing planned", {"plan": ScriptedPlanner([None])}, _as_it_is, "idle"),
    ("an empty action", {"plan": ScriptedPlanner([Action()])}, _as_it_is, "acted"),
    ("a degraded plan", {"plan": ScriptedPlanner([Action([CALL], degraded=True)])}, _as_it_is, "degraded"),
    ("sense fails", {"sense": _raises}, _as_it_is, "failed"),
    ("plan fails", {"plan": _raises}, _as_it_is, "failed"),
    ("act fails", {"act": _raises}, _as_it_is, "failed"),
    ("reflect fails", {"reflect": _raises}, _as_it_is, "failed"),
    ("a hook is against the cycle", {}, _deny("before_cycle"), "skipped"),
    ("a hook is against planning", {}, _deny("before_plan"), "skipped"),
    ("a hook is against the plan", {}, _deny("after_plan"), "skipped"),
]


@pytest.mark.parametrize(
    ("parts", "prepare", "expected"), [case[1:] for case in OUTCOMES], ids=[case[0] for case in OUTCOMES]
)
async def test_the_outcome_of_a_cycle_says_what_it_came_to(
    clock: VirtualClock, parts: dict[str, Any], prepare: Callable[[Agent], None], expected: str
) -> None:
    given = {
        "sense": ScriptedSense(["x"]),
        "plan": ScriptedPlanner([CALL]),
        "act": ScriptedActor(),
        "reflect": ScriptedReflector(),
    }
    agent = Agent(**(given | parts), clock=clock)  # type: ignore[arg-type]
    prepare(agent)

    events = await heard_in(agent, clock)

    assert outcomes(events) == [expected]
    assert agent.stats.outcomes[expected] == agent.stats.total_cycles == 1
    assert agent.stats.failed_cycles == (expected == "failed")


# -- pace under failure -----------------------------------------------------------------------------------


async def test_a_failing_sense_with_messages_waiting_does_not_turn_in_circles(clock: VirtualClock) -> None:
    calls = 0

    async def sense() -> None:
        nonlocal calls
        calls += 1
        raise OSError("no device")

    agent = Agent(sense=sense, plan=ScriptedPlanner([Action(output="heard")]), loop_interval=1.0, clock=clock)

    async with agent:
        await agent.submit("are you there?")
        await clock.sleep(4.5)

    assert 4 <= calls <= 7


async def test_what_is_pushed_while_sense_fails_arrives_with_the_next_that_works(clock: VirtualClock) -> None:
    planner = ScriptedPlanner([None])
    agent = Agent(
        sense=ScriptedSense([OSError("no device"), OSError("no device"), None]),
        plan=planner,
        loop_interval=1.0,
        clock=clock,
    )

    async with agent:
        agent.push(Perception("door bell"))
        await clock.sleep(5)

    assert [[item.content for item in seen] for seen in planner.seen] == [["door bell"]]


# -- a run that does the same again and again is told so, and ended when it goes on like that


@tool(name="look")
def look_closed(at: str) -> str:
    """Look at something."""
    return f"the {at} is closed"


def guard_messages(context: Context | None) -> list[dict[str, Any]]:
    return [message["data"] for message in context.run.messages if message.get("kind") == "guard"]


async def test_a_run_that_keeps_asking_the_same_is_told_and_then_ended(clock: VirtualClock) -> None:
    planner = ScriptedPlanner([Call("look", {"at": "door"})])
    agent = Agent(plan=planner, tools=[look_closed], clock=clock, loop_interval="off")
    noticed: list[RepetitionNoticed] = []
    ended: list[RunEnded] = []
    agent.events.subscribe(RepetitionNoticed, noticed.append)
    agent.events.subscribe(RunEnded, ended.append)

    async with agent:
        receipt = await agent.submit("is it open?")
        status = await agent.wait(receipt.run_id, 60)

    assert status.status == "error"
    assert status.error.startswith("no_progress: look gave the same for the same parameters 4 times")
    assert len(planner.seen) == 4
    assert [len(guard_messages(context)) for context in planner.contexts] == [0, 0, 0, 1]
    assert "do something else" in guard_messages(planner.contexts[3])[0]["message"]
    assert [(event.run_id, event.times) for event in noticed] == [(receipt.run_id, 3), (receipt.run_id, 4)]
    assert [event.run_id for event in ended] == [receipt.run_id]


async def test_an_answer_is_taken_even_if_it_comes_with_the_same_call_again(clock: VirtualClock) -> None:
    same = Call("look", {"at": "door"})
    planner = ScriptedPlanner([same, same, same, Action([same], output="still closed")])
    async with Agent(plan=planner, tools=[look_closed], clock=clock, loop_interval="off") as agent:
        status = await agent.wait((await agent.submit("is it open?")).run_id, 60)

    assert (status.status, status.output) == ("ok", "still closed")
