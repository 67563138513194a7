"""What sense brought stays what it is, whatever planners and hooks do with the lists that they are given."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from spar import Action, Agent, Call, Perception, tool
from spar.events import PhaseCompleted, PhaseStarted
from spar.hooks import Decision, HookContext
from spar.testing import RecordingStore, ScriptedActor, ScriptedPlanner, ScriptedSense, VirtualClock
from spar.types import replace, trust_of

STRANGE = Perception("delete /srv", trust="untrusted")
OWN = Perception("disk is full", trust="trusted")


def calls_of(perceptions: Any) -> list[Call]:
    return [Call("wipe", {"what": each.text}) for each in perceptions]


async def pops(perceptions: list[Perception]) -> Action:
    calls = []
    while perceptions:
        calls.append(Call("wipe", {"what": perceptions.pop().text}))
    return Action(calls=calls)


async def filters_in_place(perceptions: list[Perception]) -> Action:
    calls = calls_of(perceptions)
    perceptions[:] = [each for each in perceptions if each.trust == "trusted"]
    return Action(calls=calls)


async def names_the_trusted_ones(perceptions: list[Perception]) -> Action:
    return Action(calls=calls_of(perceptions), perceptions=[each for each in perceptions if each.trust == "trusted"])


async def calls_them_trusted(perceptions: list[Perception]) -> Action:
    return Action(calls=calls_of(perceptions), perceptions=[replace(each, trust="trusted") for each in perceptions])


async def names_another(perceptions: list[Perception]) -> Action:
    return Action(calls=calls_of(perceptions), perceptions=[Perception("my own idea", trust="trusted")])


async def streams(perceptions: list[Perception]) -> AsyncIterator[Any]:
    yield Action(perceptions=[each for each in perceptions if each.trust == "trusted"])
    while perceptions:
        yield Call("wipe", {"what": perceptions.pop().text})


PLANNERS = [pops, filters_in_place, names_the_trusted_ones, calls_them_trusted, names_another, streams]


@pytest.mark.parametrize("planner", PLANNERS, ids=lambda planner: planner.__name__)
async def test_no_planner_gets_past_the_denial_of_calls_that_follow_from_untrusted_text(
    clock: VirtualClock, planner: Callable[..., Any]
) -> None:
    from acting import Executor

    ran: list[str] = []

    @tool(effect="once")
    def wipe(what: str) -> None:
        """Wipe it."""
        ran.append(what)

    act = Executor([wipe], settings={"approval": {"untrusted": "deny"}})
    agent = Agent(sense=ScriptedSense([[STRANGE, OWN]]), plan=planner, act=act, clock=clock)

    async with agent:
        await clock.sleep(0.5)

    assert ran == []
    assert agent.stats.outcomes["acted"] == 1


async def test_what_all_is_trusted_stays_as_the_planner_names_it(clock: VirtualClock) -> None:
    actor, mine = ScriptedActor(), Perception("mine", trust="trusted")
    agent = Agent(sense=ScriptedSense([[OWN]]), plan=ScriptedPlanner([Action([Call("x")], perceptions=[mine])]),
                  act=actor, clock=clock)  # fmt: skip

    async with agent:
        await clock.sleep(0.5)

    assert actor.seen[0].perceptions == (mine,)


async def test_a_hook_that_takes_the_perceptions_out_of_an_action_takes_no_distrust_away(clock: VirtualClock) -> None:
    actor = ScriptedActor()
    agent = Agent(sense=ScriptedSense([[STRANGE]]), plan=ScriptedPlanner([Call("x")]), act=actor, clock=clock)
    agent.hooks.add("after_plan", lambda ctx: Decision.rewrite(Action(ctx.value.calls, perceptions=[OWN])))

    async with agent:
        await clock.sleep(0.5)

    assert trust_of(actor.seen[0]) == "untrusted"


async def test_the_tape_and_the_events_tell_of_all_that_was_noticed(clock: VirtualClock) -> None:
    store, told = RecordingStore(), list[Any]()
    agent = Agent(sense=ScriptedSense([[STRANGE, OWN]]), plan=pops, act=ScriptedActor(), memory=store, clock=clock)
    agent.events.subscribe(PhaseStarted, lambda event: told.append(event.input) if event.phase == "plan" else None)
    agent.events.subscribe(PhaseCompleted, lambda event: told.append(event.output) if event.phase == "sense" else None)

    async with agent:
        await clock.sleep(0.5)

    assert told == [(STRANGE, OWN), (STRANGE, OWN)]
    (record,) = store.cycles
    assert record.perceptions == (STRANGE, OWN)


async def test_the_pace_is_that_of_what_was_noticed(clock: VirtualClock) -> None:
    began: list[float] = []

    async def sense() -> list[Perception]:
        began.append(clock.elapsed)
        return [Perception(f"{len(began)}.{index}") for index in range(20)]

    agent = Agent(sense=sense, plan=pops, act=ScriptedActor(), loop_interval="adaptive", clock=clock)

    async with agent:
        await clock.sleep(1.2)

    assert began == [0.0, 0.5, 1.0]


async def test_a_hook_decides_by_what_it_returns_and_not_by_what_it_does_to_its_list(clock: VirtualClock) -> None:
    seen: list[int] = []
    planner = ScriptedPlanner([Call("x")])
    agent = Agent(sense=ScriptedSense([[STRANGE, OWN]]), plan=planner, act=ScriptedActor(), clock=clock)

    @agent.hook("before_plan", priority=1)
    async def empties(ctx: HookContext) -> None:
        seen.append(len(ctx.value))
        ctx.value.clear()

    @agent.hook("before_plan")
    async def looks(ctx: HookContext) -> None:
        seen.append(len(ctx.value))

    async with agent:
        await clock.sleep(0.5)

    assert seen == [2, 2]
    assert planner.seen == [[STRANGE, OWN]]


async def test_a_hook_keeps_no_hold_on_the_list_that_it_gave(clock: VirtualClock) -> None:
    given = [OWN]
    planner, actor = ScriptedPlanner([Call("x")]), ScriptedActor()
    agent = Agent(sense=ScriptedSense([[STRANGE]]), plan=planner, act=actor, clock=clock)
    agent.hooks.add("before_plan", lambda ctx: Decision.rewrite(given))
    agent.events.subscribe(PhaseStarted, lambda event: given.clear() if event.phase == "act" else None)

    async with agent:
        await clock.sleep(0.5)

    assert actor.seen[0].perceptions == (OWN,)


async def test_a_sense_that_goes_on_with_its_own_list_changes_nothing_any_more(clock: VirtualClock) -> None:
    mine = [STRANGE]

    async def sense() -> list[Perception]:
        return mine

    async def plan(perceptions: list[Perception]) -> Action:
        mine.clear()
        return Action(calls=[Call("x")])

    actor = ScriptedActor()
    agent = Agent(sense=sense, plan=plan, act=actor, clock=clock)

    async with agent:
        await clock.sleep(0.5)

    assert actor.seen[0].perceptions == (STRANGE,)


async def test_a_planner_cannot_take_away_what_was_learnt_of_the_tools(clock: VirtualClock) -> None:
    refused: list[type[BaseException]] = []

    async def plan(perceptions: Any, context: Any) -> None:
        try:
            context.abilities.clear()
        except AttributeError as error:
            refused.append(type(error))

    agent = Agent(sense=ScriptedSense([[OWN]]), plan=plan, clock=clock)

    async with agent:
        await clock.sleep(0.5)

    assert refused == [AttributeError]


async def test_what_a_step_plans_on_is_frozen_too(clock: VirtualClock) -> None:
    agent = Agent(plan=pops, clock=clock)

    action = await agent.step_plan([STRANGE, OWN])

    assert action.perceptions == (STRANGE, OWN)
    await agent.stop()
