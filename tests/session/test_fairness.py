"""Who has its turn: a place for each run under way, given back after each run, to the oldest message first."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from spar import Action, Agent, Call, Context, Decision, Perception
from spar.events import LoopStarted, RunEnded, RunStarted
from spar.testing import ScriptedActor, VirtualClock
from tests.effort import Effort


class Planner:
    """Answers each run after a while and notes for whom, and how many runs were under way at once."""

    def __init__(self, seconds: float = 1.0) -> None:
        self.seconds, self.served = seconds, list[str]()

    async def plan(self, perceptions: Any, context: Context) -> Action | None:
        if context.run is None:
            return None
        await asyncio.sleep(self.seconds)
        self.served.append(context.run.goal)
        return Action(output=context.run.goal)


def watched(agent: Agent) -> list[int]:
    """How many runs were under way whenever one began."""
    under_way: set[str] = set()
    numbers: list[int] = []

    def began(event: RunStarted) -> None:
        under_way.add(event.run_id)
        numbers.append(len(under_way))

    agent.events.subscribe(RunStarted, began)
    agent.events.subscribe(RunEnded, lambda event: under_way.discard(event.run_id))
    return numbers


def limited(limit: int) -> dict[str, Any]:
    return {"runs": {"limit": limit}}


@pytest.mark.parametrize("busy", ["A", "main"])
@pytest.mark.parametrize("guest", ["B", "main"])
async def test_the_oldest_message_goes_first_whatever_session_it_is_in(
    busy: str, guest: str, clock: VirtualClock
) -> None:
    planner = Planner()
    async with Agent(plan=planner, clock=clock, settings=limited(1)) as agent:
        receipts = []
        for text, session in (("a1", busy), ("a2", busy), ("b1", guest), ("a3", busy), ("c1", "C"), ("b2", guest)):
            await asyncio.sleep(0.01)
            receipts.append(await agent.submit(text, session=session))
        for receipt in receipts:
            assert (await agent.wait(receipt.run_id, 60)).status == "ok"

    assert planner.served == ["a1", "a2", "b1", "a3", "c1", "b2"]


async def test_a_session_that_always_has_something_to_say_keeps_nobody_waiting(clock: VirtualClock) -> None:
    planner = Planner(0.1)
    async with Agent(plan=planner, clock=clock, settings=limited(1)) as agent:

        async def talk() -> None:
            while True:
                await agent.submit("hello", session="A")
                await asyncio.sleep(0.05)

        task = asyncio.create_task(talk())
        await asyncio.sleep(2.0)
        served, waiting = len(planner.served), agent.sessions.by_key["A"].waiting
        receipt = await agent.submit("me too", session="B")
        assert (await agent.wait(receipt.run_id, 60)).status == "ok"
        assert len(planner.served) <= served + waiting + 2
        task.cancel()


async def test_what_is_pushed_without_end_leaves_room_for_the_runs_of_others(clock: VirtualClock) -> None:
    async def plan(perceptions: Any, context: Context) -> Action | None:
        await asyncio.sleep(0.01)
        if context.run is None:
            agent.push(Perception("again", session="A"))
            return None
        return Action(output="done")

    async with Agent(plan=plan, clock=clock, settings=limited(1)) as agent:
        agent.push(Perception("again", session="A"))
        await asyncio.sleep(1.0)
        receipt = await agent.submit("hello", session="B")
        assert (await agent.wait(receipt.run_id, 1.0)).status == "ok"


@pytest.mark.parametrize("limit", [1, 2, 3])
async def test_the_run_in_main_counts_among_those_under_way(limit: int, clock: VirtualClock) -> None:
    agent = Agent(plan=Planner(), clock=clock, loop_interval="off", settings=limited(limit))
    numbers = watched(agent)
    async with agent:
        sessions = ("a", "main", "b", "main", "c", "main")
        receipts = [await agent.submit(session, session=session) for session in sessions]
        for receipt in receipts:
            assert (await agent.wait(receipt.run_id, 60)).status == "ok"

    assert max(numbers) == limit


async def test_main_goes_on_noticing_while_its_message_waits_for_a_place(clock: VirtualClock) -> None:
    noticed = 0

    async def sense() -> list[Perception]:
        nonlocal noticed
        noticed += 1
        return []

    planner = Planner(10.0)
    async with Agent(sense=sense, plan=planner, clock=clock, loop_interval=1.0, settings=limited(1)) as agent:
        first = await agent.submit("first", session="A")
        second = await agent.submit("second")
        await asyncio.sleep(9.5)
        assert noticed >= 9
        for receipt in (first, second):
            assert (await agent.wait(receipt.run_id, 60)).status == "ok"
    assert planner.served == ["first", "second"]


async def test_a_long_cycle_of_main_that_is_no_run_keeps_no_place_from_the_others_and_main_is_not_forgotten(
    clock: VirtualClock,
) -> None:
    served: list[str] = []

    async def sense() -> list[Perception]:
        return [Perception("noticed")]

    async def plan(perceptions: Any, context: Context) -> Action | None:
        await asyncio.sleep(1.0 if context.run is not None else 7.0)
        if context.run is None:
            return None
        served.append(context.run.goal)
        return Action(output="done")

    async with Agent(sense=sense, plan=plan, clock=clock, loop_interval=0, settings=limited(1)) as agent:
        await asyncio.sleep(0.5)
        first = await agent.submit("main")
        others = [await agent.submit(f"{n}", session=f"guest {n}") for n in range(60)]
        assert (await agent.wait(others[0].run_id, 3.0)).status == "ok"
        assert (await agent.wait(first.run_id, 30.0)).status == "ok"
        assert len(served) < 20


async def test_places_are_given_in_the_order_of_messages_again_after_a_pause(clock: VirtualClock) -> None:
    planner = Planner(1.0)
    agent = Agent(plan=planner, clock=clock, settings=limited(2))
    numbers = watched(agent)
    async with agent:
        receipts = []
        for number in range(9):
            receipts.append(await agent.submit(f"{number}", session=("main", "A", "B")[number % 3]))
            await asyncio.sleep(0.001)
        await asyncio.sleep(1.5)
        await agent.pause()
        await agent.resume()
        for receipt in receipts:
            assert (await agent.wait(receipt.run_id, 60)).status == "ok"

    assert max(numbers) == 2
    assert sorted(planner.served[:6]) == [str(n) for n in range(6)]


async def test_a_run_that_is_called_off_between_its_cycles_leaves_its_place_at_once(clock: VirtualClock) -> None:
    async def plan(perceptions: Any, context: Context) -> Action | None:
        if context.run is not None and context.run.goal == "waits":
            return Action(deferred="the provider is down", next_look=200.0)
        return Action(output="done") if context.run is not None else None

    for session in ("A", "main"):
        async with Agent(plan=plan, clock=clock, settings=limited(1)) as agent:
            first = await agent.submit("waits", session=session)
            second = await agent.submit("hello", session="B")
            await asyncio.sleep(1.0)
            assert (await agent.wait(second.run_id, 0)).status == "timeout"
            await agent.abort(first.run_id)
            assert (await agent.wait(second.run_id, 1.0)).status == "ok"


async def test_collected_messages_hold_no_place_while_people_still_speak(clock: VirtualClock) -> None:
    planner = Planner(1.0)
    settings = {"runs": {"limit": 1, "quiet": 5.0}}
    async with Agent(plan=planner, clock=clock, settings=settings) as agent:
        await agent.submit("first", session="A")
        collected = await agent.submit("more", session="A", mode="collect")
        await asyncio.sleep(1.5)
        other = await agent.submit("hello", session="B")
        assert (await agent.wait(other.run_id, 2.0)).status == "ok"
        assert (await agent.wait(collected.run_id, 0)).status == "timeout"
        assert (await agent.wait(collected.run_id, 10.0)).status == "ok"


# -- a hook that denies


@pytest.mark.parametrize("session", ["main", "A"])
@pytest.mark.parametrize("kind", ["push", "submit"])
@pytest.mark.parametrize(("interval", "most"), [(1.0, 7), ("adaptive", 3), ("off", 14), (0, 14), (3600.0, 3)])
async def test_a_denied_cycle_costs_the_usual_pace_and_the_work_waits(
    session: str, kind: str, interval: Any, most: int, clock: VirtualClock
) -> None:
    planner = Planner(0.0)
    agent = Agent(plan=planner, clock=clock, loop_interval=interval, settings=limited(1))
    asked, is_quiet = 0, interval == 0  # there, a cycle is always under way

    @agent.hook("before_cycle")
    async def quiet_hours(ctx: Any) -> Decision | None:
        nonlocal asked
        asked += 1
        return Decision.deny("quiet hours") if is_quiet else None

    async with agent:
        await asyncio.sleep(0.01)
        is_quiet, asked = True, 0
        if kind == "submit":
            receipt = await agent.submit("hello", session=session)
        else:
            agent.push(Perception("hello", session=session))
        await asyncio.sleep(6.2 if interval != 0 else 0.1)  # there, it asks all the time
        others = 7 if session == "A" and interval == 1.0 else 2
        assert 1 <= asked <= most + (others if interval != 0 else 1_000_000)
        if kind == "submit":
            assert (await agent.wait(receipt.run_id, 0)).status == "timeout"
            is_quiet = False
            assert (await agent.wait(receipt.run_id, 61.0)).status == "ok"


async def test_a_run_in_hand_outlasts_hours_in_which_a_hook_denies_cycles(clock: VirtualClock) -> None:
    agent = Agent(plan=TwoSteps(), act=ScriptedActor(), clock=clock, loop_interval=1.0)
    is_quiet = False
    agent.hook("before_cycle")(lambda ctx: Decision.deny("quiet hours") if is_quiet else None)
    async with agent:
        receipt = await agent.submit("hello", session="A")
        await asyncio.sleep(0.1)
        is_quiet = True
        assert (await agent.wait(receipt.run_id, 60.0)).status == "timeout"
        is_quiet = False
        assert (await agent.wait(receipt.run_id, 5.0)).status == "ok"


class TwoSteps:
    async def plan(self, perceptions: Any, context: Context) -> Action | None:
        if context.run is None:
            return None
        return Action(output="done") if context.run.number > 1 else Action([Call("look")])


# -- what it costs


def steps_for(messages: int, sessions: int) -> int:
    """The steps that it takes to serve so many messages in so many sessions, two at a time."""

    async def plan(perceptions: Any) -> Action:
        return Action(output="a")

    async def main() -> int:
        agent = Agent(plan=plan, loop_interval=1000.0, settings=limited(2))
        await agent.start()
        with Effort() as counted:
            receipts = [await agent.submit("hello", session=f"s{n % sessions}") for n in range(messages)]
            for receipt in receipts:
                assert (await agent.wait(receipt.run_id, 600)).status == "ok"
        await agent.stop()
        return counted.steps

    return asyncio.run(main())


def test_what_a_message_costs_does_not_depend_on_how_many_sessions_there_are() -> None:
    steps_for(8, 8)
    few, many, most = steps_for(200, 4), steps_for(200, 100), steps_for(400, 200)

    assert most / many <= 2.2
    assert many / few <= 2.0  # a session of its own is made and forgotten for each


def test_what_starts_and_goes_on_costs_as_much_as_there_is() -> None:
    def served(number: int) -> int:
        async def plan(perceptions: Any) -> Action:
            return Action(output="a")

        async def main() -> int:
            agent = Agent(plan=plan, loop_interval=1000.0, settings=limited(2))
            runs = [await agent.submit("hello", session=f"s{n}") for n in range(number)]
            with Effort() as counted:
                await agent.start()
                for run in runs:
                    assert (await agent.wait(run.run_id, 600)).status == "ok"
            await agent.stop()
            return counted.steps

        return asyncio.run(main())

    served(8)
    assert served(400) / served(200) <= 2.2


async def test_who_submits_or_waits_for_many_in_a_row_leaves_others_their_turn(clock: VirtualClock) -> None:
    async def plan(perceptions: Any) -> Action:
        return Action(output="done")

    async with Agent(plan=plan, clock=clock, loop_interval="off") as agent:
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        beside = asyncio.create_task(other())
        receipts = [await agent.submit("hello", session=f"s{number}") for number in range(160)]
        after_submits = turns
        for receipt in receipts:
            assert (await agent.wait(receipt.run_id)).status == "ok"
        before = turns
        for receipt in receipts:  # they have ended
            await agent.wait(receipt.run_id)
        beside.cancel()

    assert after_submits >= 10
    assert turns >= before + 2


async def test_no_cycle_begins_for_a_session_that_only_waits_for_its_turn(clock: VirtualClock) -> None:
    agent = Agent(plan=Planner(), clock=clock, loop_interval="off", settings=limited(1))
    begun: list[str] = []
    agent.events.subscribe(LoopStarted, lambda event: begun.append(event.session))
    async with agent:
        receipts = [await agent.submit(f"{n}", session=f"guest {n}") for n in range(20)]
        for receipt in receipts:
            assert (await agent.wait(receipt.run_id, 60)).status == "ok"

    assert len(begun) == 20
