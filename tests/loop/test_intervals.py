"""The pace of a running agent, on the virtual clock."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from spar import Action, Agent, Context, LoopCompleted, LoopStarted, Perception
from spar.testing import ScriptedActor, ScriptedPlanner, ScriptedSense, VirtualClock
from tests.waiting import until


def starts_of(agent: Agent, clock: VirtualClock) -> list[float]:
    """When each cycle began, in virtual seconds."""
    starts: list[float] = []
    agent.events.subscribe(LoopStarted, lambda event: starts.append(round(clock.elapsed, 6)))
    return starts


async def test_the_interval_is_counted_from_the_end_of_a_cycle(clock: VirtualClock) -> None:
    async def sense() -> list[Perception]:
        await asyncio.sleep(0.25)
        return []

    agent = Agent(sense=sense, loop_interval=1.0, clock=clock)
    starts = starts_of(agent, clock)

    async with agent:
        await asyncio.sleep(5.5)

    assert starts == [0.0, 1.25, 2.5, 3.75, 5.0]


async def test_adaptive_keeps_to_its_own_bounds(clock: VirtualClock) -> None:
    bounds = {"agent": {"min_interval": 2, "max_interval": 20, "busy_count": 2}}
    agent = Agent(sense=ScriptedSense([["a", "b"], ["a"]]), loop_interval="adaptive", clock=clock, settings=bounds)
    starts = starts_of(agent, clock)

    async with agent:
        await asyncio.sleep(40.0)

    assert starts == [0.0, 2.0, 13.0, 33.0]


@pytest.mark.parametrize(("interval", "wait"), [("adaptive", 0.5), ("off", 0.5), (60.0, 0.5), (0.2, 0.2), (0, 0.0)])
@pytest.mark.parametrize("session", ["main", "guest"])
async def test_an_unfinished_run_does_not_wait_for_the_clock_of_sensing(
    interval: Any, wait: float, session: str, clock: VirtualClock
) -> None:
    from spar import Call

    planned: list[float] = []

    async def plan(perceptions: Any, context: Context) -> Action | None:
        if context.run is None:
            return None
        planned.append(clock.elapsed)
        return Action(output="done") if len(planned) == 3 else Action([Call(f"call {len(planned)}")])

    async with Agent(plan=plan, act=ScriptedActor(), loop_interval=interval, clock=clock) as agent:
        receipt = await agent.submit("go", session=session)
        assert (await agent.wait(receipt.run_id, 10.0)).status == "ok"

    assert planned == pytest.approx([0.0, wait, 2 * wait])


@pytest.mark.parametrize(("interval", "polls"), [(30.0, [0.0, 1.0, 31.0, 61.0]), ("off", [1.0])])
async def test_a_run_that_goes_on_does_not_bring_the_next_poll_forward(
    interval: Any, polls: list[float], clock: VirtualClock
) -> None:
    from spar import Call

    polled: list[float] = []

    async def sense() -> list[Perception]:
        polled.append(clock.elapsed)
        return []

    planner = ScriptedPlanner([*[Call("again")] * 50, Action(output="done")])
    async with Agent(sense=sense, plan=planner, act=ScriptedActor(), loop_interval=interval, clock=clock) as agent:
        await asyncio.sleep(1.0)
        receipt = await agent.submit("go")
        assert (await agent.wait(receipt.run_id, 40.0)).status == "ok"
        await asyncio.sleep(50.0)

    assert polled == pytest.approx(polls)  # the message calls for a cycle, which notices what there is


@pytest.mark.parametrize(("wakes", "polls"), [(False, [0.0, 1.0, 11.1]), (True, [0.0, 1.0, 1.2, 11.3])])
async def test_messages_that_wait_do_not_bring_the_next_poll_forward_and_who_wakes_the_agent_does(
    wakes: bool, polls: list[float], clock: VirtualClock
) -> None:
    polled: list[float] = []

    async def sense() -> list[Perception]:
        polled.append(clock.elapsed)
        return []

    async def plan(perceptions: list[Perception], context: Context) -> Action | None:
        if context.run is None:
            return None
        await asyncio.sleep(0.1)
        return Action(output="done")

    async with Agent(sense=sense, plan=plan, loop_interval=10.0, clock=clock) as agent:
        await asyncio.sleep(1.0)
        receipts = [await agent.submit(f"message {number}", mode="followup") for number in range(5)]
        await asyncio.sleep(0.15)
        if wakes:
            agent.wake()
        assert {(await agent.wait(each.run_id, 5.0)).status for each in receipts} == {"ok"}
        await asyncio.sleep(11.0)

    assert polled == pytest.approx(polls)  # counted from the end of the cycle that polled


async def test_zero_is_continuous_and_yet_others_get_their_turn(clock: VirtualClock) -> None:
    agent = Agent(loop_interval=0, clock=clock)
    turns = 0
    async with agent:
        for _ in range(500):
            await asyncio.sleep(0)
            turns += 1
        cycles = agent.stats.total_cycles

    assert turns == 500
    assert 100 <= cycles <= 1000


async def test_zero_lets_timers_and_threads_have_their_turn_in_real_time() -> None:
    agent = Agent(loop_interval=0)
    async with agent:
        await until(lambda: agent.stats.total_cycles > 10)
        assert await asyncio.to_thread(lambda: "thread") == "thread"
        await agent.pause()
        assert agent.state == "paused"


async def test_off_turns_only_for_what_is_pushed(clock: VirtualClock) -> None:
    planner = ScriptedPlanner([None])
    agent = Agent(plan=planner, loop_interval="off", clock=clock)
    starts = starts_of(agent, clock)

    async with agent:
        await asyncio.sleep(3600.0)
        assert agent.push(Perception("knock"))
        await asyncio.sleep(3600.0)

        await agent.pause()
        await agent.resume()
        await asyncio.sleep(3600.0)

    assert starts == [3600.0]
    assert [[perception.text for perception in seen] for seen in planner.seen] == [["knock"]]


@pytest.mark.parametrize("interval", [60.0, "adaptive", "off"])
async def test_a_push_wakes_the_loop_at_once(interval: Any, clock: VirtualClock) -> None:
    planner = ScriptedPlanner([None])
    bounds = {"agent": {"min_interval": 30, "max_interval": 60}}
    agent = Agent(plan=planner, loop_interval=interval, clock=clock, settings=bounds)
    starts = starts_of(agent, clock)

    async with agent:
        await asyncio.sleep(7.0)
        agent.push(Perception("knock"))
        await asyncio.sleep(0.5)

    assert starts == ([7.0] if interval == "off" else [0.0, 7.0])
    assert len(planner.seen) == 1


@pytest.mark.parametrize("how", ["push", "wake"])
async def test_another_thread_wakes_the_loop_at_once(how: str) -> None:
    planner = ScriptedPlanner([None])
    agent = Agent(plan=planner, loop_interval=600)
    seen: list[int] = []
    agent.events.subscribe(LoopCompleted, lambda event: seen.append(threading.get_ident()))
    async with agent:
        await until(lambda: seen)
        if how == "push":
            assert await asyncio.to_thread(agent.push, Perception("knock"))
        else:
            await asyncio.to_thread(agent.wake)
        await until(lambda: len(seen) > 1)

    assert set(seen) == {threading.get_ident()}
    assert len(planner.seen) == (1 if how == "push" else 0)


@pytest.mark.parametrize(("interval", "how"), [(60.0, "push"), ("off", "wake")])
async def test_a_push_or_a_wake_that_comes_during_a_cycle_begins_the_next_at_once(
    interval: Any, how: str, clock: VirtualClock
) -> None:
    async def sense() -> list[Perception]:
        await asyncio.sleep(1.0)
        return []

    agent = Agent(sense=sense, plan=ScriptedPlanner([None]), loop_interval=interval, clock=clock)
    starts = starts_of(agent, clock)
    async with agent:
        agent.wake()
        await asyncio.sleep(0.5)
        agent.push(Perception("knock")) if how == "push" else agent.wake()
        await asyncio.sleep(5.0)

    assert starts == [0.0, 1.0]


async def test_pushes_to_a_stopped_or_closed_loop_are_no_error() -> None:
    agent = Agent(loop_interval="off")
    agent.wake()
    async with agent:
        pass
    agent.wake()
    assert agent.push(Perception("for later"))


def test_a_push_from_a_thread_after_its_event_loop_closed_is_refused() -> None:
    agent = Agent(loop_interval="off")

    async def main() -> None:
        async with agent:
            pass

    asyncio.run(main())
    taken: list[bool] = []
    thread = threading.Thread(target=lambda: (taken.append(agent.push(Perception("late"))), agent.wake()))
    thread.start()
    thread.join()

    assert taken == [False]


async def test_an_inbox_takes_perceptions_alone_and_a_full_one_counts_what_it_refuses_to_threads(
    clock: VirtualClock,
) -> None:
    agent = Agent()
    taken = [agent.push(Perception(str(number))) for number in range(1001)]

    assert taken == [True] * 1000 + [False]
    assert await asyncio.to_thread(agent.push, Perception("one more")) is False
    assert agent.refused == 2
    with pytest.raises(TypeError, match="push takes a Perception"):
        agent.push("text")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("interval", "by", "proposed", "wait"),
    [
        ("adaptive", "plan", 2.0, 2.0),
        ("adaptive", "reflect", 2.0, 2.0),
        ("adaptive", "plan", 0.001, 0.5),
        ("adaptive", "reflect", -1.0, 0.5),
        ("adaptive", "plan", 3600.0, 4.55),
        ("adaptive", "reflect", 3600.0, 4.55),
        (1.0, "plan", 5.5, 5.5),
        (1.0, "plan", 0.001, 1.0),
        (1.0, "reflect", 5.5, 1.0),
        (1.0, "reflect", 0.001, 1.0),
        (4.0, "reflect", 2.0, 4.0),
        (4.0, "plan", 2.0, 4.0),
    ],
)
async def test_a_proposed_next_look_comes_forward_under_adaptive_and_only_a_plan_lengthens_a_fixed_interval(
    interval: Any, by: str, proposed: float, wait: float, clock: VirtualClock
) -> None:
    from spar import Call, Reflection

    action = Action(calls=[Call("note")], next_look=proposed if by == "plan" else None)

    async def reflect(result: Any) -> Reflection:
        return Reflection(result=result, next_look=proposed if by == "reflect" else None)

    agent = Agent(sense=ScriptedSense(["go"]), plan=ScriptedPlanner([action]), act=ScriptedActor(), reflect=reflect,
                  loop_interval=interval, clock=clock)  # fmt: skip
    starts = starts_of(agent, clock)

    async with agent:
        await asyncio.sleep(6.0)

    assert starts[:2] == [0.0, pytest.approx(wait)]


async def test_a_plan_puts_the_next_look_off_by_an_hour_at_most_and_status_says_so(clock: VirtualClock) -> None:
    from spar.service.app import describe

    agent = Agent(sense=ScriptedSense([["go"]]), plan=ScriptedPlanner([Action(next_look=86_400.0), None]),
                  loop_interval=1.0, clock=clock)  # fmt: skip
    starts = starts_of(agent, clock)

    async with agent:
        await asyncio.sleep(10.0)
        [lane] = describe(agent)["lanes"]
        assert (lane["next_look"], lane["next_cycle_in"]) == (86_400.0, pytest.approx(3590.0))
        agent.push(Perception("knock"))  # what comes is not kept waiting
        await asyncio.sleep(1.0)
        [lane] = describe(agent)["lanes"]
        assert lane["next_look"] is None

    assert starts[:2] == [0.0, 10.0]


async def test_after_a_resume_the_loop_senses_at_once_and_then_keeps_its_interval(clock: VirtualClock) -> None:
    agent = Agent(loop_interval=10.0, clock=clock)
    starts = starts_of(agent, clock)

    async with agent:
        await asyncio.sleep(5.0)
        await agent.pause()
        await asyncio.sleep(100.0)
        await agent.resume()
        await asyncio.sleep(15.0)

    assert starts == [0.0, 105.0, 115.0]


async def test_without_an_interval_a_wake_up_during_a_pause_begins_a_cycle_after_it(clock: VirtualClock) -> None:
    agent = Agent(loop_interval="off", clock=clock)
    starts = starts_of(agent, clock)

    async with agent:
        await agent.pause()
        await agent.resume()
        await asyncio.sleep(5.0)
        await agent.pause()
        agent.wake()
        await asyncio.sleep(5.0)
        assert starts == []
        await agent.resume()
        await asyncio.sleep(5.0)

    assert starts == [10.0]


async def test_while_paused_no_cycle_begins_whatever_is_pushed(clock: VirtualClock) -> None:
    planner = ScriptedPlanner([None])
    agent = Agent(plan=planner, loop_interval=1.0, clock=clock)
    async with agent:
        await agent.pause()
        before = agent.stats.total_cycles
        agent.push(Perception("knock"))
        agent.wake()
        agent.loop_interval = 0.5
        await asyncio.sleep(100.0)
        assert agent.stats.total_cycles == before

        await agent.resume()
        await asyncio.sleep(0.1)

    assert [[perception.text for perception in seen] for seen in planner.seen] == [["knock"]]
