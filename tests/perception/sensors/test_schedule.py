"""Ticks: when they come, and what becomes of those that did not come in time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from perception.sensors.crontab import following
from perception.sensors.schedule import ScheduleSensor
from spar.errors import ConfigError
from spar.protocols import SensorContext
from spar.testing import VirtualClock, check_sensor
from spar.types import Perception

START = datetime(2026, 1, 1, tzinfo=UTC)  # a Thursday


class Inbox:
    """What a sensor pushes into; `waiting` as the real one has it."""

    def __init__(self) -> None:
        self.found: list[Perception] = []
        self.waiting = 0
        self.is_full = False

    def __call__(self, perception: Perception) -> bool:
        if self.is_full:
            return False
        self.found.append(perception)
        return True


class Told:
    """One schedule in its surroundings, over any number of restarts."""

    def __init__(self, clock: VirtualClock, name: str = "job", **options: Any) -> None:
        self.clock, self.name, self.options = clock, name, options
        self.inbox = Inbox()
        self.reported: list[tuple[str, dict[str, Any]]] = []
        self.cursor: Any = None
        self.sensor: ScheduleSensor | None = None

    async def start(self, **options: Any) -> Told:
        self.options |= options
        self.sensor = ScheduleSensor(**self.options)
        context = SensorContext(
            self.name,
            self.clock,
            self.inbox,
            cursor=self.cursor,
            checkpoint=lambda cursor: setattr(self, "cursor", cursor),
            report=lambda event, **fields: self.reported.append((event, fields)),
        )
        await self.sensor.open(context)
        return self

    async def stop(self) -> None:
        await self.sensor.close()

    async def down(self, seconds: float) -> Told:
        """The service is down for a while and starts again."""
        await self.stop()
        await self.clock.advance(seconds)
        return await self.start()

    @property
    def due(self) -> list[str]:
        """The ticks that became perceptions, as day and time."""
        return [datetime.fromisoformat(item.attributes["due_at"]).strftime("%d %H:%M:%S") for item in self.inbox.found]

    @property
    def missed(self) -> list[str]:
        return [f"{fields['due_at']:%d %H:%M:%S}" for _, fields in self.reported]


# -- on time


async def test_an_interval_ticks_from_its_start_without_drift_until_it_is_closed(clock: VirtualClock) -> None:
    job = await Told(clock, interval=10.0).start()

    await clock.advance(35)
    await job.stop()
    await clock.advance(10)

    assert job.due == ["01 00:00:10", "01 00:00:20", "01 00:00:30"]
    assert job.reported == []


async def test_a_cron_line_ticks_by_the_wall_clock(clock: VirtualClock) -> None:
    job = await Told(clock, cron="30 9 * * *", text="good morning").start()

    await clock.advance(34 * 3_600)

    assert job.due == ["01 09:30:00", "02 09:30:00"]
    (first, _) = job.inbox.found
    assert first.content == "good morning"
    assert (first.kind, first.source, first.trust) == ("schedule.tick", "job", "trusted")
    assert first.key == "job 2026-01-01T09:30:00+00:00"
    assert first.attributes == {"due_at": "2026-01-01T09:30:00+00:00", "missed": 0, "late": 0.0}


@pytest.mark.parametrize(
    ("options", "due"),
    [
        ({"cron": "0 0 * * *"}, ["01 00:00:00"]),
        ({"at": "2026-01-01 05:00", "timezone": "America/New_York"}, ["01 10:00:00"]),
    ],
    ids=["a cron line ticks at the very moment of its first start", "a moment is meant in the zone of the schedule"],
)
async def test_a_first_tick_comes_when_it_is_meant(
    clock: VirtualClock, options: dict[str, str], due: list[str]
) -> None:
    job = await Told(clock, **options).start()

    await clock.advance(86_399)

    assert job.due == due


@pytest.mark.parametrize(
    "at",
    ["2026-01-01T05:00:00", "2026-01-01T06:00:00+01:00", datetime(2026, 1, 1, 5), datetime(2026, 1, 1, 5, tzinfo=UTC)],
    ids=["text", "with offset", "datetime", "aware datetime"],
)
async def test_a_moment_comes_once(clock: VirtualClock, at: Any) -> None:
    job = await Told(clock, at=at).start()

    await clock.advance(86_400)
    await job.down(86_400)

    assert job.due == ["01 05:00:00"]


async def test_jitter_delays_a_tick_and_always_by_the_same(clock: VirtualClock) -> None:
    job = await Told(clock, interval=3600.0, jitter=600.0).start()
    other = await Told(clock, "other", interval=3600.0, jitter=600.0).start()
    again = await Told(clock, interval=3600.0, jitter=600.0).start()

    await clock.advance(5 * 3600 + 601)

    delays = [(item.at - datetime.fromisoformat(item.attributes["due_at"])).total_seconds() for item in job.inbox.found]
    assert job.due == [f"01 0{hour}:00:00" for hour in range(1, 6)]
    assert all(0 <= delay <= 601 for delay in delays)
    assert len({round(delay) for delay in delays}) > 1
    assert [item.at for item in job.inbox.found] == [item.at for item in again.inbox.found]
    assert [item.at for item in job.inbox.found] != [item.at for item in other.inbox.found]
    assert job.reported == []


# -- not on time


async def test_ticks_missed_while_down_become_one_perception_and_each_is_told(clock: VirtualClock) -> None:
    job = await Told(clock, cron="0 * * * *", grace=60.0).start()
    await job.down(5 * 3600 + 1800)

    assert job.due == ["01 00:00:00", "01 05:00:00"]
    assert job.inbox.found[-1].attributes["missed"] == 5
    assert job.inbox.found[-1].attributes["late"] == 1800.0
    assert job.missed == [f"01 0{hour}:00:00" for hour in range(1, 6)]
    assert {event for event, _ in job.reported} == {"TriggerMissed"}
    assert job.reported[0][1]["trigger"] == "job"
    assert job.reported[0][1]["reason"] == "late: 16200 s, missed = 'run_once'"


async def test_a_late_tick_stands_for_the_missed_ones_before_it(clock: VirtualClock) -> None:
    job = await Told(clock, interval=3600.0, grace=300.0).start()
    await job.down(3 * 3600 + 10)

    assert job.due == ["01 03:00:00"]
    assert job.inbox.found[0].attributes["missed"] == 2
    assert job.missed == ["01 01:00:00", "01 02:00:00"]


async def test_the_anchor_of_an_interval_survives_restarts(clock: VirtualClock) -> None:
    job = await Told(clock, interval=3600.0).start()
    for _ in range(3):
        await job.down(1500)  # never up for a whole interval
        await clock.advance(10)

    assert job.due == ["01 01:00:00"]


async def test_a_changed_schedule_begins_anew_and_misses_nothing(clock: VirtualClock) -> None:
    job = await Told(clock, cron="0 0 * * *").start()
    await job.stop()
    await clock.advance(10 * 3600)
    await job.start(cron="*/5 * * * *")

    assert job.missed == []
    assert job.due == ["01 00:00:00", "01 10:00:00"]


async def test_after_a_year_off_the_telling_is_bounded_and_says_so(clock: VirtualClock) -> None:
    job = await Told(clock, cron="* * * * *", grace=90.0).start()
    await job.down(365 * 86_400)

    assert len(job.reported) == 1001
    assert "more than 1000 ticks were missed" in job.reported[-1][1]["reason"]
    assert len(job.due) == 2
    assert job.inbox.found[-1].attributes["due_at"] == "2027-01-01T00:00:00+00:00"
    assert job.inbox.found[-1].attributes["missed"] >= 1000

    await clock.advance(60)
    assert job.inbox.found[-1].attributes["due_at"] == "2027-01-01T00:01:00+00:00"


async def test_a_tick_that_comes_while_another_waits_or_is_refused_is_skipped_and_told(clock: VirtualClock) -> None:
    job = await Told(clock, interval=10.0).start()
    await clock.advance(10)
    job.inbox.waiting = 1
    await clock.advance(20)
    job.inbox.waiting = 0
    await clock.advance(10)
    job.inbox.is_full = True
    await clock.advance(10)

    assert job.due == ["01 00:00:10", "01 00:00:40"]
    assert job.missed == ["01 00:00:20", "01 00:00:30", "01 00:00:50"]
    assert "overlap" in job.reported[0][1]["reason"]
    assert "refused" in job.reported[2][1]["reason"]


# -- a clock that is set


async def test_a_clock_set_forward_gives_no_burst(clock: VirtualClock) -> None:
    job = await Told(clock, interval=60.0).start()
    clock.jump_wall(3 * 3600)
    await clock.advance(31)

    assert job.due == ["01 03:00:00"]
    assert job.inbox.found[0].attributes["missed"] == 175  # the last five are merely late
    assert len(job.reported) == len(set(job.missed)) == 179


async def test_a_clock_set_back_repeats_no_tick(clock: VirtualClock) -> None:
    job = await Told(clock, cron="*/10 * * * *").start()
    await clock.advance(1800)
    assert len(job.due) == 4
    clock.jump_wall(-1200)
    await clock.advance(1199)
    assert len(job.due) == 4
    await clock.advance(601)

    assert job.due[4:] == ["01 00:40:00"]
    assert job.reported == []


async def test_a_suspended_machine_is_noticed_within_half_a_minute(clock: VirtualClock) -> None:
    job = await Told(clock, cron="0 6 * * *").start()
    await clock.advance(10)
    clock.jump_wall(6 * 3600 + 60)  # the monotonic clock stood still meanwhile
    await clock.advance(30)

    assert job.due == ["01 06:00:00"]


# -- cron lines


@pytest.mark.parametrize(
    ("line", "zone", "after", "expected"),
    [
        ("0 9 * * 0", "UTC", "2026-01-01T00:00", ["04 09:00", "11 09:00"]),
        ("0 9 * * 7", "UTC", "2026-01-01T00:00", ["04 09:00", "11 09:00"]),
        ("0 9 * * 1-5", "UTC", "2026-01-02T10:00", ["05 09:00", "06 09:00"]),
        ("0 9 * * MON-FRI", "UTC", "2026-01-02T10:00", ["05 09:00", "06 09:00"]),
        ("0 9 * * fri-sun", "UTC", "2026-01-04T10:00", ["09 09:00", "10 09:00"]),
        ("0 9 * * 5-7", "UTC", "2026-01-04T10:00", ["09 09:00", "10 09:00"]),
        ("0 9 * * */3", "UTC", "2026-01-01T00:00", ["03 09:00", "04 09:00", "07 09:00"]),
        ("0 9 13 * fri", "UTC", "2026-01-08T00:00", ["09 09:00", "13 09:00", "16 09:00"]),
        ("0 9 */2 * fri", "UTC", "2026-01-01T10:00", ["09 09:00", "23 09:00"]),
        ("15,45 8-9 * * *", "UTC", "2026-01-01T08:20", ["01 08:45", "01 09:15", "01 09:45", "02 08:15"]),
        ("0 9 * * *", "Asia/Tokyo", "2026-01-01T01:00", ["02 00:00", "03 00:00"]),
        # Berlin: 2026-03-29 02:00 becomes 03:00, 2026-10-25 03:00 becomes 02:00
        ("30 2 * * *", "Europe/Berlin", "2026-03-28T00:00", ["28 01:30", "29 01:00", "30 00:30"]),  # in the gap
        ("0 3 * * *", "Europe/Berlin", "2026-03-28T00:00", ["28 02:00", "29 01:00", "30 01:00"]),  # after the gap
        ("*/30 * * * *", "Europe/Berlin", "2026-03-29T00:10", ["29 00:30", "29 01:00", "29 01:30"]),  # through the gap
        ("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00", ["25 00:30", "26 01:30"]),  # repeated
        ("30 2 * * *", "Europe/Berlin", "2026-10-25T01:10", ["26 01:30"]),  # started between
        # every hour
        ("*/30 * * * *", "Europe/Berlin", "2026-10-25T00:10", ["25 00:30", "25 01:00", "25 01:30", "25 02:00"]),
        # Santiago: midnight itself is in the gap, 2026-09-06 00:00 becomes 01:00
        ("0 0 * * *", "America/Santiago", "2026-09-05T12:00", ["06 04:00", "07 03:00"]),  # midnight
        ("0 */6 * * *", "America/Santiago", "2026-09-05T23:00", ["06 09:00", "06 15:00"]),  # 6 h
        # a minute or hour that begins with a star: by real time
        ("0 */2 * * *", "Europe/Berlin", "2026-03-29T00:30", ["29 02:00", "29 04:00"]),  # 2 h, forward
        ("0 */2 * * *", "Europe/Berlin", "2026-10-24T23:30", ["25 00:00", "25 01:00", "25 03:00"]),  # 2 h, back
        ("*/30 2 * * *", "Europe/Berlin", "2026-03-28T12:00", ["30 00:00", "30 00:30"]),  # half hours, forward
        # half hours, back
        (
            "*/30 2 * * *",
            "Europe/Berlin",
            "2026-10-24T12:00",
            ["25 00:00", "25 00:30", "25 01:00", "25 01:30", "26 01:00"],
        ),
        ("0,30 2 * * *", "Europe/Berlin", "2026-03-28T12:00", ["29 01:00", "30 00:00"]),  # two in the gap
        ("15 2 * * *", "Europe/Berlin", "2026-03-29T01:00", ["30 00:15"]),  # right after the gap
        # Lord Howe: half an hour, 2026-10-04 02:00 becomes 02:30
        ("15 2 * * *", "Australia/Lord_Howe", "2026-10-03T12:00", ["03 15:30", "04 15:15"]),  # half an hour
    ],
)
def test_a_cron_line_means_what_crontab_says_and_daylight_saving_neither_loses_nor_doubles_a_tick(
    line: str, zone: str, after: str, expected: list[str]
) -> None:
    assert [tick[8:16].replace("T", " ") for tick in ticks(line, zone, after, len(expected))] == expected


def ticks(line: str, zone: str, after: str, count: int) -> list[str]:
    from zoneinfo import ZoneInfo

    next_tick = following(line, ZoneInfo(zone))
    moment: datetime | None = datetime.fromisoformat(after).replace(tzinfo=UTC)
    found: list[str] = []
    while len(found) < count and moment is not None and (moment := next_tick(moment)) is not None:
        found.append(moment.isoformat())
    return found


# -- what becomes of ticks, as a table


@pytest.mark.parametrize(
    ("missed", "overlap", "late_by", "due", "told"),
    [
        ("skip", "skip", [900, 600, 30, 10], [(10, 0)], [900, 600, 30]),
        ("skip", "queue", [900, 600, 30, 10], [(30, 0), (10, 0)], [900, 600]),
        ("run_once", "skip", [900, 600, 30, 10], [(10, 2)], [900, 600, 30]),
        ("run_once", "queue", [900, 600, 30, 10], [(30, 2), (10, 0)], [900, 600]),
        ("run_once", "skip", [900, 600], [(600, 2)], [900, 600]),
        ("run_all", "skip", [900, 600, 30, 10], [(900, 1), (600, 1), (10, 0)], [900, 600, 30]),
        ("run_all", "queue", [900, 600, 30], [(900, 1), (600, 1), (30, 0)], [900, 600]),
        ("run_once", "skip", [60], [(60, 0)], []),
        ("skip", "skip", [], [], []),
    ],
)
def test_policies_decide_what_runs(missed: Any, overlap: Any, late_by: Any, due: Any, told: Any) -> None:
    def tick(seconds: int) -> datetime:
        return START - timedelta(seconds=seconds)

    sensor = ScheduleSensor(interval=60, grace=60, missed=missed, overlap=overlap)
    running, reports = sensor.judged([tick(s) for s in late_by], START, waits=False)

    assert [(item.at, item.missed) for item in running] == [(tick(s), missed) for s, missed in due]
    assert [at for at, _ in reports] == [tick(s) for s in told]


# -- what cannot be


@pytest.mark.parametrize(
    ("options", "path", "message"),
    [
        ({}, (), "exactly one of cron, interval, at; found none of them"),
        ({"cron": "* * * * *", "interval": 5.0}, ("interval",), "found cron and interval"),
        ({"cron": "61 * * * *"}, ("cron",), "'61 * * * *'.*0 9 \\* \\* mon-fri"),
        ({"cron": "* * *"}, ("cron",), "five fields, found 3"),
        ({"cron": "0 9 * * funday"}, ("cron",), "found 'funday'"),
        ({"cron": "0 9 * * */0"}, ("cron",), "must be a number from 1"),
        ({"cron": "0 0 31 2 *"}, ("cron",), "never comes"),
        ({"interval": 5.0, "timezone": "Mars/Olympus"}, ("timezone",), "'Mars/Olympus'.*Europe/Berlin"),
        ({"at": "soon"}, ("at",), "'soon'.*2026-03-01T09:00:00"),
    ],
)
def test_what_cannot_be_scheduled_is_refused_with_an_example(options: Any, path: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        ScheduleSensor(**options)

    assert error.value.path == path
    ScheduleSensor(cron="0 9 * * *", timezone="local")  # the zone of the machine


async def test_it_keeps_the_contract_of_a_sensor(clock: VirtualClock) -> None:
    await check_sensor(lambda: ScheduleSensor(interval=1.0), clock=clock)
