"""The metrics that tell whether an agent is well: read back by Prometheus' own parser, off agents that are not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families as read_plain

from memory import Memory
from perception.sense import Sense
from perception.sensors.schedule import ScheduleSensor
from reflection.reflect import Reflect
from spar import Agent, __version__
from spar.channels.conversations import ChannelAttachment
from spar.errors import PermanentError, TransientError
from spar.events import LoopCompleted
from spar.facts import PutAside
from spar.health.judge import Pressure, ResourceBounds
from spar.observe.stats import MOST_TOOLS
from spar.ports.channel import ChannelSpec
from spar.protocols import SensorContext, SensorSpec
from spar.records.journal import Item
from spar.service.agent_metrics import HEALTH, PER_AGENT, PUSHED
from spar.service.metrics import MOST_VALUES, OTHER, Metrics, bounded
from spar.testing import MemoryChannel, RecordingStore, ScriptedActor, ScriptedPlanner, ScriptedSense, VirtualClock
from spar.types import Action, Call, CallResult, Experience, Perception
from tests.journal.left import left_behind, opened, planned, started
from tests.waiting import until


def samples(agent: Agent, name: str) -> dict[tuple[str, ...], float]:
    """The samples of one name by their label values other than the agent's, sorted by label."""
    found = {}
    for family in read_plain(Metrics(lambda: [agent], __version__).render()[0].decode()):
        for sample in family.samples:
            if sample.name == name:
                labels = tuple(value for label, value in sorted(sample.labels.items()) if label != "agent")
                found[labels] = sample.value
    return found


class Pushing:
    """A sensor that hands over as much as the test likes."""

    async def open(self, ctx: SensorContext) -> None:
        self.push = ctx.push


class Flaky:
    every = 1.0
    is_well = False

    async def poll(self) -> list[Perception]:
        if not self.is_well:
            raise OSError("no")
        return []


async def test_progress_is_when_a_phase_or_a_cycle_was_last_completed(clock: VirtualClock) -> None:
    async def plan(perceptions: Any) -> None:
        await clock.sleep(100)

    agent = Agent(sense=ScriptedSense([None, "x"], then=None), plan=plan, loop_interval=10.0, clock=clock)
    name = "spar_loop_last_progress_timestamp_seconds"
    assert samples(agent, name) == {(): 0}
    start = clock.now().timestamp()
    async with agent:
        await clock.sleep(5)
        assert samples(agent, name) == {(): pytest.approx(start)}
        assert samples(agent, "spar_cycle_oldest_open_seconds") == {(): 0}
        await clock.sleep(65)  # it has sensed after ten and plans since
        assert samples(agent, name) == {(): pytest.approx(start + 10)}
        assert samples(agent, "spar_cycle_oldest_open_seconds") == {(): pytest.approx(60)}


async def test_each_stage_of_the_pipeline_tells_what_became_of_perceptions(clock: VirtualClock) -> None:
    sensor = Pushing()
    agent = Agent(sense=Sense([SensorSpec("log", sensor)]), loop_interval=1.0, clock=clock)  # type: ignore[arg-type]
    async with agent:
        for number in range(25):
            sensor.push(Perception(f"job {number} done", kind="log.line"))
        await clock.sleep(7)
        counted = samples(agent, "spar_pipeline_total")
    assert (counted["in", "templates"], counted["dropped", "templates"], counted["new", "templates"]) == (25, 24, 1)
    assert counted["in", "limit"] == 1


async def test_what_a_flooded_sensor_sheds_and_what_waits_is_told(clock: VirtualClock) -> None:
    sensor = Pushing()
    sense = Sense([SensorSpec("flood", sensor, when_full="latest")], buffer=10)  # type: ignore[arg-type]
    agent = Agent(sense=sense, loop_interval="off", clock=clock)
    async with agent:
        await agent.pause()
        for number in range(25):
            sensor.push(Perception(number))
        await clock.sleep(7)
        assert samples(agent, "spar_shed_total")["oldest", "flood"] == 15
        assert samples(agent, "spar_shed_total")["refused", PUSHED] == 0
        assert samples(agent, "spar_queue_depth")["sensors",] == 10
        assert samples(agent, "spar_queue_oldest_seconds")["sensors",] == pytest.approx(7)


async def test_incidents_are_counted_from_nought_for_each_severity_and_ending() -> None:
    agent = Agent(sense=Sense([]))

    opened, closed = (samples(agent, f"spar_incidents_{what}_total") for what in ("opened", "closed"))

    assert opened == {(severity,): 0 for severity in ("info", "warning", "error", "critical")}
    assert closed == {(ending,): 0 for ending in ("resolved", "quiet", "person", "room")}


async def test_missed_ticks_are_counted_by_trigger_and_reason(clock: VirtualClock) -> None:
    sense = Sense([SensorSpec("job", ScheduleSensor(cron="*/10 * * * *"))])
    agent = Agent(sense=sense, loop_interval=5.0, clock=clock)
    async with agent:
        await clock.sleep(60)
        clock.jump_wall(3600)
        await clock.sleep(60)
        found = samples(agent, "spar_trigger_missed_total")
        # The sixth is merely late. Those that never came are there, too: from 1 on nothing would have increased.
        never = dict.fromkeys([("overlap", "job"), ("refused", "job"), ("many", "job"), ("other", "job")], 0)
        assert found == {("late", "job"): 5, **never}


async def test_restarts_quarantine_and_steps_are_told_by_child(clock: VirtualClock) -> None:
    flaky = Flaky()

    def handler(event: LoopCompleted) -> None:
        raise RuntimeError("no")

    async def plan(perceptions: Any) -> None:
        raise OSError("no")

    sense = Sense([SensorSpec("flaky", flaky), SensorSpec("ok", ScheduleSensor(interval=0.5))])  # type: ignore[arg-type]
    agent = Agent(
        sense=sense,
        plan=plan,
        loop_interval=1.0,
        clock=clock,
        settings={"health": {"backoff": 0, "max_restarts": 1000}},
    )
    agent.events.subscribe(LoopCompleted, handler)
    assert set(samples(agent, "spar_child_restarts_total").values()) == {0}
    async with agent:
        await clock.sleep(60)
        restarts = samples(agent, "spar_child_restarts_total")
        assert restarts["plan",] == agent.health.judge.ladder.restarted["plan"] > 0
        assert restarts["sensor:flaky",] == 1
        assert restarts["loop",] == 0
        assert samples(agent, "spar_quarantined") == {
            ("handlers",): 1,
            ("hooks",): 0,
            ("sensor:flaky",): 1,
            ("sensor:ok",): 0,
        }
        assert samples(agent, "spar_recovery_steps_total")["restart",] > 0
        assert samples(agent, "spar_alerts_active")["failing",] == 1
        assert samples(agent, "spar_sensor_state")["flaky", "quarantined"] == 1
        assert samples(agent, "spar_sensor_overdue_seconds")["flaky",] > 0
        flaky.is_well = True
        await clock.sleep(700)
        assert samples(agent, "spar_quarantined")["sensor:flaky",] == 0
        assert samples(agent, "spar_sensor_state")["flaky", "ok"] == 1
        assert samples(agent, "spar_sensor_overdue_seconds")["flaky",] == 0


async def test_what_waits_for_its_turn_and_what_a_channel_cannot_send_is_told(
    tmp_path: Path, clock: VirtualClock
) -> None:
    async def plan(perceptions: Any) -> Action | None:
        return Action(output="fine") if perceptions else None

    line = MemoryChannel(fails=[PermanentError("no such person"), *[TransientError("down")] * 9])
    attach = ["senders", ChannelAttachment([ChannelSpec("line", line)])]
    settings = {"senders": {"allow": [{"senders": ["line:bob"]}]}}
    memory = Memory(f"sqlite:///{tmp_path / 'memory.db'}")
    agent = Agent(plan=plan, memory=memory, clock=clock, settings=settings, attach=attach)
    async with agent:
        assert samples(agent, "spar_channel_up") == {("line", "receive"): 1, ("line", "send"): 1}
        for number in range(2):
            line.say(f"message {number}", "bob")
            await clock.sleep(1)
        assert samples(agent, "spar_channel_undelivered") == {("line",): 1}
        assert samples(agent, "spar_channel_up")["line", "send"] == 0
        await agent.pause()
        waiting = samples(agent, "spar_items_waiting")[()]
        await agent.submit("one more")
        assert samples(agent, "spar_items_waiting")[()] == waiting + 1
        await clock.sleep(7)
        assert samples(agent, "spar_queue_oldest_seconds")["inbox",] == pytest.approx(7)


async def test_what_the_store_does_not_take_is_lost_and_counted(clock: VirtualClock) -> None:
    class Forgetful(RecordingStore):
        async def store(self, experience: Experience) -> None:
            raise PermanentError("the page is torn")

    agent = Agent(sense=ScriptedSense(["x"], then=None), plan=ScriptedPlanner([Call("look")]), act=ScriptedActor(),
                  reflect=Reflect(), memory=Forgetful(), clock=clock)  # fmt: skip
    assert samples(agent, "spar_memory_writes_total")["lost",] == 0
    async with agent:
        await clock.sleep(60)
        assert samples(agent, "spar_memory_writes_total")["lost",] == 1


async def test_tools_without_end_overflow_into_one_series_and_that_is_counted() -> None:
    agent = Agent()
    for number in range(MOST_TOOLS + 40):
        agent.account.calls.add([CallResult(Call(f"tool {number}"), "ok")])
    assert len(samples(agent, "spar_calls_total")) <= (MOST_TOOLS + 1) * 6
    assert samples(agent, "spar_series_overflow_total") == {(): 40}


async def test_slow_readers_gaps_and_what_waits_for_them_are_told(clock: VirtualClock) -> None:
    agent = Agent(loop_interval=1.0, clock=clock)
    stream = agent.events.stream(LoopCompleted, buffer=2)
    async with agent:
        await clock.sleep(10.5)
        assert samples(agent, "spar_queue_depth")["events",] == 2
        assert samples(agent, "spar_subscriber_gaps_total") == {(): 0}
        await anext(stream)
        assert samples(agent, "spar_subscriber_gaps_total") == {(): 1}


async def test_memory_disk_and_journal_are_as_last_read(clock: VirtualClock) -> None:
    agent = Agent(clock=clock)
    assert samples(agent, "spar_wal_bytes") == {}
    pressure = agent.health.pressure = Pressure(ResourceBounds())
    pressure.take_memory(123)
    pressure.take_disk(1000, 2000)
    pressure.store = {"wal_bytes": 77, "bytes": 99, "queued": 5, "commit_seconds": {"count": 3, "sum": 0.5}}
    assert samples(agent, "spar_memory_resident_bytes") == {(): 123}
    assert samples(agent, "spar_disk_free_bytes") == {(): 1000}
    assert samples(agent, "spar_disk_least_free_bytes") == {(): 100}
    assert samples(agent, "spar_wal_bytes") == {(): 77}
    assert samples(agent, "spar_queue_depth")["journal",] == 5
    assert samples(agent, "spar_journal_commit_seconds_count") == {(): 3}
    assert samples(agent, "spar_journal_commit_seconds_sum") == {(): 0.5}


async def test_the_lag_of_the_event_loop_is_the_longest_of_late() -> None:
    async def sense() -> None:
        return None

    agent = Agent(sense=sense, loop_interval=0.05)
    async with agent:
        assert await until(lambda: samples(agent, "spar_event_loop_lag_seconds")[()]) > 0
    assert samples(agent, "spar_event_loop_lag_seconds") == {(): 0}


async def test_calls_sandboxes_and_what_is_in_doubt_are_told_where_parts_tell_them() -> None:
    class Actor:
        def snapshot(self) -> dict[str, Any]:
            running = [{"id": "1", "tool": "shell", "seconds": 5.0}, {"id": "2", "tool": "shell", "seconds": 9.0},
                       {"id": "3", "tool": "http"}]  # fmt: skip
            return {"running": running, "parts": {"shell": {"sandbox": {"level": 2}}, "git": {"server": "git"}}}

        async def act(self, action: Any) -> None:
            return None

    agent = Agent(act=Actor())
    assert samples(agent, "spar_call_longest_running_seconds") == {("shell",): 9.0}
    assert samples(agent, "spar_sandbox_level") == {("shell",): 2.0}


async def test_what_a_dead_process_left_for_people_is_told(tmp_path: Path, clock: VirtualClock) -> None:
    pay = Call("pay", id="p")
    poison = PutAside(session="main", item=Item("p1", Perception("poison", id="p1"), attempts=3), reason="why")
    await left_behind(tmp_path, opened(Perception("go", id="g")), planned(Action((pay,))), started(pay), poison)
    async with Agent(memory=Memory(f"sqlite:///{tmp_path / 'memory.db'}"), clock=clock) as agent:
        await clock.sleep(1)
        assert samples(agent, "spar_in_doubt") == samples(agent, "spar_dead_letters") == {(): 1.0}


async def test_a_part_that_cannot_tell_how_it_is_costs_nobody_the_rest() -> None:
    class Broken:
        def snapshot(self) -> dict[str, Any]:
            raise RuntimeError("no")

        async def sense(self) -> None:
            return None

        async def act(self, action: Any) -> None:
            return None

    agent = Agent(sense=Broken(), act=Broken())
    assert samples(agent, "spar_quarantined") == {("handlers",): 0, ("hooks",): 0}


def test_of_a_label_only_so_many_values_are_told_apart() -> None:
    rows = [([f"tool {number}", "ok"], 1.0) for number in range(MOST_VALUES + 50)]
    found = {tuple(values): number for values, number in bounded(rows, lambda one, other: one + other)}
    assert len(found) == MOST_VALUES + 1
    assert found[OTHER, "ok"] == 50
    assert sum(found.values()) == len(rows)


def test_no_metric_is_there_twice() -> None:
    names = [name for _, name, *_ in (*PER_AGENT, *HEALTH)]
    assert len(set(names)) == len(names)
