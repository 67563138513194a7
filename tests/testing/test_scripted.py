"""Scripted modules do what the script says, remember what they were given, and hang and fail on demand."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from typing import Any

import anyio.to_thread
import pytest

import spar.testing
from spar.protocols import Context, SensorContext
from spar.testing import (
    Fail,
    Hang,
    ScriptedActor,
    ScriptedModel,
    ScriptedPlanner,
    ScriptedReflector,
    ScriptedSense,
    ScriptedSensor,
    VirtualClock,
    stream,
)
from spar.types import Action, ActionResult, Call, Fault, Perception, Reflection

NOTE, PING = Call("note", {"text": "hello"}), Call("ping")


async def collected(plan: Any) -> list[Any]:
    return [piece async for piece in plan]


# -- scripts ----------------------------------------------------------------------------------------------


async def test_an_empty_script_plans_nothing() -> None:
    assert await ScriptedPlanner().plan([]) is None


async def test_an_endless_script_is_taken_item_by_item() -> None:
    planner = ScriptedPlanner(itertools.cycle([None, NOTE]))

    plans = [await planner.plan([]) for _ in range(4)]

    assert [plan is None for plan in plans] == [True, False, True, False]


def test_a_text_is_no_script() -> None:
    with pytest.raises(TypeError, match="a script must be a list"):
        ScriptedSense("disk is full")


async def test_failures_are_raised(clock: VirtualClock) -> None:
    lost = ConnectionError("lost")
    planner = ScriptedPlanner([lost, ValueError, Fail(lost), None])

    with pytest.raises(ConnectionError, match="lost"):
        await planner.plan([])
    with pytest.raises(ValueError):  # noqa: PT011 - raised from the bare class
        await planner.plan([])
    with pytest.raises(ConnectionError, match="lost"):
        await planner.plan([])

    assert await planner.plan([]) is None


async def test_a_script_that_ends_with_a_delay_waits_once_and_repeats_what_stood_before(clock: VirtualClock) -> None:
    planner = ScriptedPlanner([NOTE, 5])

    plans = [await planner.plan([]) for _ in range(3)]

    assert [plan.calls for plan in plans] == [(NOTE,)] * 3
    assert clock.elapsed == 5.0


async def test_a_delay_after_the_script_brings_nothing_each_time(clock: VirtualClock) -> None:
    planner = ScriptedPlanner([], then=5)

    assert [await planner.plan([]) for _ in range(2)] == [None, None]
    assert clock.elapsed == 10.0


async def test_a_function_decides_from_what_the_module_was_given() -> None:
    async def answer(perceptions: list[Perception]) -> list[Call]:
        return [Call("note", {"text": item.text}) for item in perceptions]

    plan = await ScriptedPlanner([answer]).plan([Perception("a"), Perception("b")])

    assert [call.params["text"] for call in plan.calls] == ["a", "b"]


async def test_junk_from_a_function_is_handed_on_untouched() -> None:
    assert await ScriptedPlanner([lambda _: 42]).plan([]) == 42
    assert await ScriptedSense([lambda: 42]).sense() == 42


async def test_a_planner_remembers_perceptions_and_contexts() -> None:
    planner = ScriptedPlanner()
    seen, context = Perception("seen"), Context("agent", "cycle")

    await planner.plan([seen], context)
    await planner.plan(())

    assert planner.seen == [[seen], []]
    assert planner.contexts == [context, None]


# -- streams ----------------------------------------------------------------------------------------------


async def test_a_plan_is_streamed_with_delays_between_its_calls(clock: VirtualClock) -> None:
    planner = ScriptedPlanner([stream([NOTE, 2, PING])])
    seen = [(piece.tool, clock.elapsed) async for piece in await planner.plan([])]

    assert seen == [("note", 0.0), ("ping", 2.0)]
    assert await collected(await planner.plan([])) == [NOTE, PING]  # repeated as a whole


async def test_a_stream_can_break_off() -> None:
    plan = await ScriptedPlanner([stream([NOTE, ConnectionError("lost"), PING])]).plan([])

    assert await anext(plan) == NOTE
    with pytest.raises(ConnectionError, match="lost"):
        await anext(plan)


async def test_a_stream_can_hang_until_released(clock: VirtualClock) -> None:
    with Hang() as hang:
        plan = await ScriptedPlanner([stream([NOTE, hang, PING])]).plan([])
        reader = asyncio.create_task(collected(plan))
        await clock.sleep(100)
        assert hang.waiting == 1
        hang.release()

        assert await reader == [NOTE, PING]


# -- hanging ----------------------------------------------------------------------------------------------


async def test_a_hang_can_end_by_itself(clock: VirtualClock) -> None:

    assert await ScriptedPlanner([Hang(30)]).plan([]) is None
    assert clock.elapsed == 30.0


async def test_a_hang_can_ignore_cancellation_until_it_is_released(clock: VirtualClock) -> None:
    with Hang(ignore_cancel=True) as hang:
        task = asyncio.create_task(ScriptedPlanner([hang]).plan([]))
        for _ in range(3):
            await clock.sleep(1)
            task.cancel()
        await clock.sleep(1)
        assert not task.done()
        assert hang.cancelled == 3
        hang.release()

        assert await task is None


async def test_a_released_hang_holds_nobody_any_more() -> None:
    hang = Hang()
    hang.release()

    assert await ScriptedPlanner([hang]).plan([]) is None
    hang.block()


async def test_a_hang_can_be_released_from_another_thread(clock: VirtualClock) -> None:
    hang = Hang()
    threading.Timer(0.01, hang.release).start()

    with clock.working():
        await hang.wait()

    assert hang.waiting == 0


async def test_a_plain_function_can_hang_in_its_thread(clock: VirtualClock) -> None:
    with clock.working(), Hang() as hang:
        task = asyncio.create_task(anyio.to_thread.run_sync(hang.block))
        while not hang.waiting:
            await asyncio.sleep(0)
        hang.release()
        await task

    assert hang.waiting == 0


async def test_a_blocking_hang_blocks_the_loop_itself() -> None:
    ticks: list[float] = []
    asyncio.get_running_loop().call_soon(lambda: ticks.append(time.monotonic()))
    started = time.monotonic()

    await ScriptedPlanner([Hang(0.02, blocking=True)]).plan([])
    await asyncio.sleep(0)

    assert ticks[0] - started >= 0.02


# -- the other phases -------------------------------------------------------------------------------------


async def test_sense_takes_texts_perceptions_and_lists_and_then_notices_nothing() -> None:
    disk = Perception("disk is full")
    sense = ScriptedSense(["one", disk, ["two", disk], None])

    noticed = [await sense.sense() for _ in range(6)]

    assert [[item.content for item in items] for items in noticed] == [
        ["one"], ["disk is full"], ["two", "disk is full"], [], [], []
    ]  # fmt: skip
    assert noticed[1] == [disk]
    assert sense.calls == 6


@pytest.mark.parametrize(
    ("item", "statuses", "whole"),
    [
        (None, ["ok", "ok"], "ok"),
        ("failed", ["failed", "failed"], "failed"),
        ("skipped", ["skipped", "skipped"], "ok"),
        ({"ping": TimeoutError("no answer")}, ["ok", "failed"], "partial"),
    ],
)
async def test_an_actor_gives_each_call_its_result(item: Any, statuses: list[str], whole: str) -> None:
    action = Action(calls=[NOTE, PING])
    actor = ScriptedActor([item])

    result = await actor.act(action)

    assert [found.call for found in result.results] == [NOTE, PING]
    assert [found.status for found in result.results] == statuses
    assert result.status == whole
    assert len(result.errors) == statuses.count("failed")
    assert actor.seen == [action]


async def test_an_actor_gives_outputs_by_tool() -> None:
    result = await ScriptedActor([{"note": {"id": 7}}]).act(Action(calls=[NOTE, PING]))

    assert [found.output for found in result.results] == [{"id": 7}, None]


async def test_an_actor_gives_a_prepared_result_as_it_is() -> None:
    prepared = ActionResult(status="interrupted")

    assert await ScriptedActor([prepared]).act(Action()) is prepared


async def test_a_reflector_scores_by_status_or_says_what_is_scripted() -> None:
    prepared = Reflection(score=0.3)
    reflector = ScriptedReflector([None, None, prepared])
    good, bad = ActionResult(), ActionResult(status="failed", fault=Fault("error", "broken"))

    assert (await reflector.reflect(good)).score == 1.0
    assert (await reflector.reflect(bad)).score == 0.0
    assert await reflector.reflect(good) is prepared
    assert reflector.seen == [good, bad, good]


async def test_a_model_answers_streams_and_keeps_its_requests(clock: VirtualClock) -> None:
    model = ScriptedModel([{"calls": [{"_tool": "ping"}]}, stream(['{"out', 1, 'put": 1}']), ConnectionError("down")])
    request = {"kind": "main", "context": ["hello"], "schema": {}}

    first = await model(request)
    first["calls"].clear()
    request["context"].append("changed later")  # type: ignore[attr-defined]
    pieces = await collected(await model(request))
    with pytest.raises(ConnectionError):
        await model(request)

    assert pieces == ['{"out', 'put": 1}']
    assert [len(item["context"]) for item in model.requests] == [1, 2, 2]


async def test_a_repeated_solution_is_a_copy_each_time() -> None:
    model = ScriptedModel([{"calls": []}])

    (await model({}))["calls"].append("changed by the asker")

    assert await model({}) == {"calls": []}


# -- sensors ----------------------------------------------------------------------------------------------


def sensor_context(clock: VirtualClock, taken: list[Perception], room: int = 100) -> SensorContext:
    def push(perception: Perception) -> bool:
        if len(taken) >= room:
            return False
        taken.append(perception)
        return True

    return SensorContext("door", clock, push)


async def test_a_closed_sensor_pushes_no_more_and_goes_on_where_it_was_when_opened_again(clock: VirtualClock) -> None:
    taken: list[Perception] = []
    sensor = ScriptedSensor(pushed=["first", 5, "second"])

    await sensor.open(sensor_context(clock, taken))
    await clock.sleep(1)
    await sensor.close()
    await clock.sleep(10)
    assert [item.content for item in taken] == ["first"]
    await sensor.open(sensor_context(clock, taken))
    await clock.sleep(1)
    await sensor.close()

    assert [item.content for item in taken] == ["first", "second"]


async def test_what_the_buffer_refuses_is_kept(clock: VirtualClock) -> None:
    sensor = ScriptedSensor()
    with pytest.raises(RuntimeError, match="opened"):
        sensor.push("too early")

    await sensor.open(sensor_context(clock, [], room=1))

    assert [sensor.push("one"), sensor.push("two")] == [True, False]
    assert [item.content for item in sensor.refused] == ["two"]
    await sensor.close()


async def test_a_failing_push_is_told_by_the_next_poll(clock: VirtualClock) -> None:
    sensor = ScriptedSensor(pushed=[OSError("unplugged")])
    await sensor.open(sensor_context(clock, []))
    await clock.sleep(1)

    with pytest.raises(OSError, match="unplugged"):
        await sensor.poll()

    assert await sensor.poll() == []
    await sensor.close()


async def test_opening_and_closing_follow_scripts_of_their_own(clock: VirtualClock) -> None:
    sensor = ScriptedSensor(opening=[OSError("no device"), None], closing=[None, OSError("stuck")])

    with pytest.raises(OSError, match="no device"):
        await sensor.open(sensor_context(clock, []))
    await sensor.close()
    await sensor.open(sensor_context(clock, []))
    assert sensor.is_open
    with pytest.raises(OSError, match="stuck"):
        await sensor.close()


# -- the package ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", spar.testing.__all__)
def test_every_public_name_can_be_imported(name: str) -> None:
    assert getattr(spar.testing, name).__name__ == name


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Missing'"):
        _ = spar.testing.Missing
