"""Many sensors, one list of perceptions."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import pytest

from perception.pipeline import Pipeline
from perception.sense import Sense
from perception.stages.intent import recognise
from spar import Agent
from spar.clock import Clock, SystemClock
from spar.errors import ConfigError, ContractError
from spar.events import ErrorOccurred, Event, TriggerMissed
from spar.hooks import Hooks
from spar.protocols import Context, Host, SensorContext, SensorSpec
from spar.testing import VirtualClock
from spar.types import Perception, replace
from tests.doubles import Cursors
from tests.effort import Effort
from tests.waiting import cancelled, until

CONTEXT = Context("main", "cycle-1")


class Recorder:
    def __init__(self) -> None:
        self.events: list[Event] = []

    def publish(self, event: Event) -> None:
        assert threading.current_thread() is threading.main_thread()
        self.events.append(event)

    @property
    def faults(self) -> list[Any]:
        return [event.error for event in self.events if isinstance(event, ErrorOccurred)]


class Surroundings:
    """What an agent would lend."""

    def __init__(self, clock: Clock, store: Any = None) -> None:
        self.events, self.wakes = Recorder(), 0
        self.host = Host("main", clock, self.events, Hooks(), self.wake, store)

    def wake(self) -> None:
        self.wakes += 1


class Plain:
    """Hands the pipeline's input on; stands for one whose stages are all off."""

    counts: dict[str, Any] = {"in": 0}  # noqa: RUF012
    dropped = ()

    def process(self, perceptions: Any) -> list[Perception]:
        return list(perceptions)


class Eye:
    """A sensor that takes `seconds` for each poll and then sees `what`."""

    def __init__(self, clock: Clock, what: str = "", *, seconds: float = 0.0, every: float = 0.0) -> None:
        self.clock, self.what, self.seconds, self.every = clock, what, seconds, every
        self.polls = self.closed = 0
        self.context: SensorContext | None = None

    async def open(self, ctx: SensorContext) -> None:
        self.context = ctx

    async def poll(self) -> list[Perception]:
        self.polls += 1
        await self.clock.sleep(self.seconds)
        return [Perception(f"{self.what} {self.polls}")] if self.what else []

    async def close(self) -> None:
        self.closed += 1


class Pusher:
    """A sensor that is never polled."""

    context: SensorContext

    async def open(self, ctx: SensorContext) -> None:
        self.context = ctx


def sensing(sensors: dict[str, Any], around: Surroundings, **more: Any) -> Sense:
    spec = {name: more.pop(name) for name in list(more) if name in sensors}
    sense = Sense([SensorSpec(name, sensor, **spec.get(name, {})) for name, sensor in sensors.items()], **more)
    sense.attach(around.host)
    sense.pipeline = Plain()  # type: ignore[assignment]
    return sense


def contents(perceptions: list[Perception]) -> list[Any]:
    return [item.content for item in perceptions]


async def test_a_slow_poll_does_not_hold_back_the_others_and_wakes_when_it_is_there(clock: VirtualClock) -> None:
    around = Surroundings(clock)
    sensors = {"slow": Eye(clock, "slow", seconds=3.0, every=60), "fast": Eye(clock, "fast", every=60)}
    async with sensing(sensors, around) as sense:
        began = clock.monotonic()
        first = await sense.sense(CONTEXT)
        waited = clock.monotonic() - began
        wakes = around.wakes
        await clock.sleep(4)
        second = await sense.sense(CONTEXT)

    assert contents(first) == ["fast 1"]
    assert waited == pytest.approx(0.05, abs=0.01)
    assert around.wakes == wakes + 1
    assert contents(second) == ["slow 1"]


async def test_a_poll_that_is_slow_alone_is_waited_for_a_little_longer_until_something_is_pushed(
    clock: VirtualClock,
) -> None:
    async with sensing({"slow": Eye(clock, "slow", seconds=0.8)}, Surroundings(clock)) as sense:
        assert contents(await sense.sense(CONTEXT)) == ["slow 1"]
    pusher = Pusher()
    async with sensing({"slow": Eye(clock, seconds=30.0), "hook": pusher}, Surroundings(clock)) as sense:
        clock.call_at(clock.monotonic() + 0.2, lambda: pusher.context.push(Perception("now")))
        began = clock.monotonic()
        found = await sense.sense(CONTEXT)
    assert contents(found) == ["now"]
    assert clock.monotonic() - began == pytest.approx(0.25, abs=0.01)


async def test_only_sensors_with_a_rhythm_of_their_own_are_a_reason_to_wake(clock: VirtualClock) -> None:
    around = Surroundings(clock)
    async with sensing({"each": Eye(clock), "hook": Pusher()}, around) as sense:
        await sense.sense(CONTEXT)
        await sense.settled()
        wakes = around.wakes
        await clock.sleep(3600.0)
        assert around.wakes == wakes
    async with Sense() as sense:
        assert await sense.sense(CONTEXT) == []
        await sense.settled()


async def test_idle_sensing_costs_a_few_steps_a_sensor(clock: VirtualClock) -> None:
    sensors = {f"eye-{i}": Eye(clock, every=3600.0) for i in range(5)} | {"hook": Pusher()}
    async with sensing(sensors, Surroundings(clock)) as sense:
        await sense.sense(CONTEXT)
        await sense.sense(CONTEXT)
        with Effort() as counted:
            await sense.sense(CONTEXT)

    assert counted.steps < 20 * len(sensors)


async def test_pushes_from_any_thread_arrive_complete_and_in_order() -> None:
    around, pusher = Surroundings(SystemClock()), Pusher()
    async with sensing({"hook": pusher}, around) as sense:
        threads = [
            threading.Thread(target=lambda i=i: [pusher.context.push(Perception((i, n))) for n in range(100)])
            for i in range(4)
        ]
        for thread in threads:
            thread.start()
        found: list[Perception] = []
        for thread in threads:
            while thread.is_alive():
                found += await sense.sense(CONTEXT)
                await asyncio.sleep(0)
        found += await sense.sense(CONTEXT)

    assert sorted(contents(found)) == [(i, n) for i in range(4) for n in range(100)]
    assert all([n for who, n in contents(found) if who == i] == list(range(100)) for i in range(4))
    assert around.wakes >= 1  # told when something waits, not for each


async def test_a_flood_is_taken_in_portions_and_starves_nobody(clock: VirtualClock) -> None:
    around, loud, quiet = Surroundings(clock), Pusher(), Pusher()
    async with sensing({"loud": loud, "quiet": quiet}, around) as sense:
        for i in range(2_000):
            loud.context.push(Perception(i))
        quiet.context.push(Perception("quiet"))
        wakes = around.wakes
        first = await sense.sense(CONTEXT)
        assert around.wakes == wakes + 1

        taken = list(first)
        while found := await sense.sense(CONTEXT):
            assert len(found) <= 1_000
            taken += found

    assert "quiet" in contents(first)
    assert [item for item in contents(taken) if item != "quiet"] == list(range(2_000))


async def test_the_pipeline_sees_what_is_sensed_and_what_is_pushed_through_the_agent(clock: VirtualClock) -> None:
    around, pusher = Surroundings(clock), Pusher()
    sense = Sense([SensorSpec("hook", pusher)])
    sense.attach(around.host)
    async with sense:
        pusher.context.push(Perception("disk is full", key="k"))
        pusher.context.push(Perception("disk is full", key="k"))
        sensed = await sense.sense(CONTEXT)
        perceived = await sense.perceive([Perception("hello", key="m")], CONTEXT)

    assert contents(sensed) == ["disk is full"]
    assert contents(perceived) == ["hello"]
    assert json.loads(json.dumps(sense.snapshot()))["pipeline"]["dedup"]["dropped"] == 1


# -- cursors


# -- opening and closing


async def test_a_sensor_that_hangs_in_opening_delays_the_start_only_a_little(clock: VirtualClock) -> None:
    class Hanging:
        async def open(self, ctx: SensorContext) -> None:
            await clock.sleep(1e6)

    around, pusher = Surroundings(clock), Pusher()
    began = clock.monotonic()
    async with sensing({"hung": Hanging(), "hook": pusher}, around) as sense:
        assert clock.monotonic() - began <= 1.0
        pusher.context.push(Perception("works"))
        assert contents(await sense.sense(CONTEXT)) == ["works"]

        await clock.sleep(31)
        assert [fault.part for fault in around.events.faults] == ["hung"]
        assert sense.snapshot()["sensors"]["hung"]["state"] == "backing_off"


class Closing:
    """A sensor that is closed within `seconds`, and may fail then."""

    def __init__(
        self, clock: Clock, name: str, closed: list[str], seconds: float = 0.0, *, fails: bool = False
    ) -> None:
        self.clock, self.name, self.closed, self.seconds, self.fails = clock, name, closed, seconds, fails

    async def open(self, ctx: SensorContext) -> None:
        pass

    async def close(self) -> None:
        await self.clock.sleep(self.seconds)
        self.closed.append(self.name)
        if self.fails:
            raise OSError("cannot close")


async def test_sensors_are_closed_in_reverse_order_and_all_of_them(clock: VirtualClock) -> None:
    closed: list[str] = []
    how: dict[str, Any] = {"a": {}, "b": {"fails": True}, "c": {"seconds": 1e6}, "d": {}}
    around = Surroundings(clock)
    sense = sensing({name: Closing(clock, name, closed, **options) for name, options in how.items()}, around)

    await sense.__aenter__()
    began = clock.monotonic()
    await sense.__aexit__(None, None, None)

    assert closed == ["d", "b", "a"]
    assert clock.monotonic() - began <= 31
    assert sorted(fault.part for fault in around.events.faults) == ["b", "c"]


async def test_a_closing_that_is_cancelled_closes_the_sensors_that_are_left_and_leaves_no_task(
    clock: VirtualClock,
) -> None:
    before, closed = asyncio.all_tasks(), list[str]()
    seconds = {"a": 0.0, "b": 0.0, "slow": 0.9}
    sense = sensing({name: Closing(clock, name, closed, seconds[name]) for name in seconds}, Surroundings(clock))
    await sense.__aenter__()
    leaving = asyncio.ensure_future(sense.__aexit__(None, None, None))
    await clock.sleep(0.1)
    assert closed == []
    await cancelled(leaving)

    assert closed == ["b", "a", "slow"]
    await clock.sleep(0.0)
    assert asyncio.all_tasks() == before


async def test_it_can_be_opened_again_after_it_was_closed_which_leaves_nothing_running(clock: VirtualClock) -> None:
    before, eye = asyncio.all_tasks(), Eye(clock, "x")
    sense = sensing({"eye": eye, "slow": Eye(clock, seconds=100.0), "hook": Pusher()}, Surroundings(clock))
    found = []

    for _ in range(2):
        async with sense:
            found += contents(await sense.sense(CONTEXT))
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == before

    assert found == ["x 1", "x 2"]
    assert eye.closed == 2


async def test_a_cancelled_sense_loses_nothing(clock: VirtualClock) -> None:
    pusher = Pusher()
    async with sensing({"slow": Eye(clock, "slow", seconds=5.0), "hook": pusher}, Surroundings(clock)) as sense:
        cycle = asyncio.create_task(sense.sense(CONTEXT))
        await clock.sleep(0.01)
        pusher.context.push(Perception("pushed"))
        await cancelled(cycle)
        await clock.sleep(6)

        assert sorted(contents(await sense.sense(CONTEXT))) == ["pushed", "slow 1"]


# -- much at once


class Slow(Plain):
    """Says in which thread it works, and stands still there until it may go on."""

    def __init__(self) -> None:
        self.threads: list[bool] = []
        self.may_go_on, self.shed_at = threading.Event(), -1

    def process(self, perceptions: Any) -> list[Perception]:
        is_main = threading.current_thread() is threading.main_thread()
        self.threads.append(is_main)
        if not is_main:
            self.may_go_on.wait(20)
        return list(perceptions)

    def shed(self) -> int:
        self.shed_at = len(self.threads)
        return 7


def crowd(size: int) -> list[Perception]:
    return [Perception(i) for i in range(size)]


async def test_much_at_once_is_worked_on_in_a_thread_and_a_little_in_the_loop() -> None:
    pusher = Pusher()
    async with sensing({"hook": pusher}, Surroundings(SystemClock())) as sense:
        sense.pipeline = slow = Slow()  # type: ignore[assignment]
        slow.may_go_on.set()
        for batch in (crowd(3), crowd(100), [Perception("x" * 1_000_000)], [Perception({"a": ["x" * 1_000_000]})]):
            for each in batch:
                pusher.context.push(each)
            assert await sense.sense(CONTEXT) == [replace(each, source="hook") for each in batch]
            assert await sense.perceive(batch, CONTEXT) == batch

    assert slow.threads == [True] * 2 + [False] * 6


async def test_batches_go_through_the_pipeline_one_after_the_other() -> None:
    async with sensing({"hook": Pusher()}, Surroundings(SystemClock())) as sense:
        sense.pipeline = slow = Slow()  # type: ignore[assignment]
        large = asyncio.create_task(sense.perceive(crowd(100), CONTEXT))
        await until(lambda: slow.threads == [False])
        small = asyncio.create_task(sense.perceive([Perception("hello")], CONTEXT))
        assert sense.shed() == 0
        await asyncio.sleep(0.01)
        assert slow.threads == [False]
        assert slow.shed_at == -1

        slow.may_go_on.set()
        assert len(await large) == 100
        assert contents(await small) == ["hello"]
        assert slow.threads == [False, True]
        assert slow.shed_at == 1
        assert sense.shed() == 7


async def test_what_a_thread_works_on_when_a_cycle_is_cancelled_comes_with_the_next() -> None:
    store, pusher = Cursors(), Pusher()
    async with sensing({"hook": pusher}, Surroundings(SystemClock(), store)) as sense:
        sense.pipeline = slow = Slow()  # type: ignore[assignment]
        for each in crowd(100):
            pusher.context.push(each)
        pusher.context.checkpoint("all of them")
        cycle = asyncio.create_task(sense.sense(CONTEXT))
        await until(lambda: slow.threads == [False])
        await cancelled(cycle)
        await sense.settled()
        assert store.values == {}

        slow.may_go_on.set()
        assert contents(await sense.sense(CONTEXT)) == list(range(100))
        await sense.settled()
        assert store.values == {"cursor:main:hook": "all of them"}


async def test_incidents_of_a_run_that_is_aborted_while_a_thread_works_are_kept_and_told() -> None:
    class Rows(dict[str, Any]):
        keep = dict.__setitem__

    surroundings = Surroundings(SystemClock())
    sense = Sense([SensorSpec("hook", Pusher())])
    sense.attach(surroundings.host)
    async with sense:
        rows = sense.incidents._rows = Rows()  # type: ignore[assignment]
        may_go_on, process = threading.Event(), sense.pipeline.process
        sense.pipeline.process = lambda batch: may_go_on.wait(20) and process(batch)  # type: ignore[method-assign,assignment,return-value]
        alarm = Perception("shop is down", source="am", kind="alert", attributes={"status": "firing"})
        run = asyncio.create_task(sense.perceive([alarm, *crowd(100)], CONTEXT))
        await asyncio.sleep(0)
        await cancelled(run)
        may_go_on.set()
        await until(lambda: surroundings.wakes > 0)

        assert sense.incidents._changes_of_batch == {}
        assert "I-1" in rows
        (told,) = await sense.sense(CONTEXT)
        assert (told.kind, told.attributes["incident"]) == ("incident.opened", "I-1")
        assert await sense.sense(CONTEXT) == []


async def test_what_the_pipeline_knows_of_a_batch_is_not_written_before_a_cycle_has_got_it() -> None:
    class Written(Cursors):
        async def rows(self, owner: str) -> dict[str, Any]:
            return {}

        async def change(self, changes: Any) -> None:
            self.values |= {change.key: change.value for change in changes}

    store, pusher = Written(), Pusher()
    sense = Sense([SensorSpec("hook", pusher)], pipeline={"incidents": {"enabled": False}})
    sense.attach(Surroundings(SystemClock(), store).host)
    async with sense:
        for number in range(100):
            pusher.context.push(Perception(f"job {number} is done", kind="log.line"))
        cycle = asyncio.create_task(sense.sense(CONTEXT))
        await asyncio.sleep(0)
        await cancelled(cycle)
        await until(lambda: not sense._parts.processing.is_busy)
        await sense.settled()
        assert (store.values, sense.row_changes()) == ({}, [])

        (told,) = await sense.sense(CONTEXT)
        assert told.attributes["count"] == 100
        assert [change.key for change in sense.row_changes()] == ["template/1"]


async def test_a_look_at_lines_gathers_nothing_that_nobody_takes() -> None:
    sense, alone = Sense(), Pipeline()
    for number in range(3):
        alarms = [Perception(f"{word} is down {number}", kind="alert") for word in ("shop", "mail")]
        sense.examine(alarms)
        alone.process(alarms)

    for register in (sense.pipeline.incidents, alone.incidents):
        assert register.open
        assert (register.news, register.has_changes) == ([], False)


class Working(Pipeline):
    """Stands still in the thread until it may go on; says whether it was settled meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.may_go_on, self.is_working, self.settled = threading.Event(), False, list[bool]()

    def process(self, perceptions: Iterable[Perception]) -> list[Perception]:
        self.is_working = True
        self.may_go_on.wait(20)
        found = super().process(perceptions)
        self.is_working = False
        return found

    def settle(self) -> None:
        self.settled.append(self.is_working)
        super().settle()


async def test_closing_does_not_touch_the_pipeline_while_a_thread_works_on_a_batch() -> None:
    pusher = Pusher()
    sense = sensing({"hook": pusher}, around := Surroundings(SystemClock()))
    sense.pipeline = working = Working()
    sense.attach(around.host)
    async with sense:
        for each in crowd(100):
            pusher.context.push(each)
        cycle = asyncio.create_task(sense.sense(CONTEXT))
        await until(lambda: working.is_working)
        await cancelled(cycle)
        asyncio.get_running_loop().call_later(0.01, working.may_go_on.set)

    assert True not in working.settled


# -- while the agent thinks


@pytest.mark.parametrize("every", [0.0, 1.0])
async def test_sensors_are_polled_while_a_plan_takes_its_time(clock: VirtualClock, every: float) -> None:
    eye = Eye(clock, "news", every=every)
    seen: list[Any] = []
    planned: list[int] = []

    async def plan(perceptions: list[Perception]) -> None:
        seen.extend(contents(perceptions))
        if not planned:
            await clock.sleep(60.0)
        planned.append(eye.polls)

    async with Agent(sense=Sense([SensorSpec("eye", eye)]), plan=plan, clock=clock, loop_interval=5.0):
        while len(planned) < 2:
            await clock.sleep(1.0)

    assert planned[0] >= 55
    assert seen[: planned[0]] == [f"news {i + 1}" for i in range(planned[0])]


# -- the rest


async def test_a_sensor_can_report_a_fact_from_any_thread() -> None:
    around, pusher = Surroundings(SystemClock()), Pusher()
    due_at = datetime(2026, 1, 1, tzinfo=UTC)
    async with sensing({"clock": pusher}, around):
        report = pusher.context.report
        thread = threading.Thread(
            target=report, args=("TriggerMissed",), kwargs={"trigger": "clock", "due_at": due_at, "reason": "asleep"}
        )
        thread.start()
        await until(lambda: bool(around.events.events))
        thread.join()

        with pytest.raises(ValueError, match="no event named 'Nonsense'"):
            report("Nonsense")

    assert around.events.events == [TriggerMissed(trigger="clock", due_at=due_at, reason="asleep")]


async def test_the_snapshot_says_how_each_sensor_is(clock: VirtualClock) -> None:
    async with sensing({"eye": Eye(clock, "x", every=60.0)}, Surroundings(clock)) as sense:
        await sense.sense(CONTEXT)
        await clock.sleep(5)
        found = json.loads(json.dumps(sense.snapshot()))["sensors"]["eye"]

    assert found["state"] == "ok"
    assert found["failures"] == 0
    assert found["last_poll_age"] == pytest.approx(5.0, abs=0.2)
    assert (found["polls"], found["pushed"], found["dropped"], found["waiting"]) == (1, 1, 0, 0)


def test_two_sensors_of_one_name_and_settings_that_cannot_be_used_are_refused() -> None:
    with pytest.raises(ConfigError, match="two sensors are named 'a'"):
        Sense([SensorSpec("a", Pusher()), SensorSpec("a", Pusher())])  # type: ignore[arg-type]
    with pytest.raises(ConfigError):
        Sense(pipeline={"dedup": {"window": -1}})


@pytest.mark.parametrize(
    ("name", "sensor", "told"),
    [
        ("x", "y", "a sensor is an object with open, poll or hear, found 'y'"),
        (Pusher(), "x", "the name must be text, found <"),
        ("", Pusher(), "the name must be text, found ''"),
        ("x", Pusher, "found <class"),
        ("x", None, "found None"),
    ],
)
def test_what_is_no_sensor_or_no_name_is_refused_when_it_is_named(name: Any, sensor: Any, told: str) -> None:
    with pytest.raises(ContractError, match=told):
        SensorSpec(name, sensor)


class PipelineThatFails(Pipeline):
    """Pipeline whose first batches fail."""

    failures = 2

    def process(self, perceptions: Iterable[Perception]) -> list[Perception]:
        if self.failures:
            self.failures -= 1
            raise RuntimeError("a stage is broken")
        return super().process(perceptions)


class Follower:
    """Pushes one line, and says how far it has read."""

    async def open(self, ctx: SensorContext) -> None:
        self.context = ctx
        ctx.push(Perception("line 1"))
        ctx.checkpoint(1)


async def test_what_a_failing_pipeline_was_given_is_processed_again_and_its_cursor_waits() -> None:
    surroundings = Surroundings(VirtualClock(), Cursors())
    sense = Sense([SensorSpec("follower", Follower())])
    sense.pipeline = PipelineThatFails()
    sense.attach(surroundings.host)
    async with sense:
        for _ in range(2):
            with pytest.raises(RuntimeError, match="a stage is broken"):
                await sense.sense(CONTEXT)
            await sense.settled()
            assert sense.cursors() == {}
        (perception,) = await sense.sense(CONTEXT)
        assert perception.content == "line 1"
        assert list(sense.cursors().values()) == [1]


async def test_what_a_stage_fails_on_keeps_no_session_from_sensing(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*given: Any, **options: Any) -> Any:
        if any(perception.text == "bad" for perception in given[-1]):
            raise RuntimeError("a stage is broken")
        return recognise(*given, **options)

    monkeypatch.setattr("perception.pipeline.recognise", broken)
    seen: list[str] = []
    errors: list[ErrorOccurred] = []

    async def plan(perceptions: list[Perception]) -> None:
        seen.extend(perception.text for perception in perceptions)

    eye = Follower()
    agent = Agent(sense=Sense([SensorSpec("eye", eye)]), plan=plan, clock=clock, loop_interval=1.0)
    agent.events.subscribe(ErrorOccurred, errors.append)

    async with agent:
        for text in ("bad", "good"):
            eye.context.push(Perception(text))
            agent.push(Perception(f"{text} and pushed"))
            await clock.sleep(60.0)

    assert sorted(seen) == ["bad", "bad and pushed", "good", "good and pushed", "line 1"]
    assert [(error.phase, error.error.part, error.policy) for error in errors] == [
        ("sense", "pipeline.intent", "continue")
    ]


@pytest.mark.parametrize("interval", [1.0, "off"])
async def test_an_incident_that_a_person_closes_during_a_pause_is_closed_after_it(
    interval: Any, clock: VirtualClock
) -> None:
    sense = Sense([])
    async with Agent(sense=sense, loop_interval=interval, clock=clock) as agent:
        agent.push(Perception("disk of db1 is full", source="x", kind="alert", subject="db1"))
        await asyncio.sleep(5.0)
        await agent.pause()
        (incident,) = sense.incidents.list()
        sense.incidents.ask_closing(incident.id, "ann")
        await asyncio.sleep(5.0)
        assert incident.is_open
        await agent.resume()
        await asyncio.sleep(5.0)

        assert [each.reason for each in sense.incidents.list()] == ["ann closed it"]
