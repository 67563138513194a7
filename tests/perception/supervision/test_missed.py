"""Ticks that were missed: told, counted and kept, whatever the reason; and clocks that jump make no burst of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from perception.sense import Sense
from perception.sensors.schedule import BOUND, ScheduleSensor
from perception.supervision.missed import KEPT, SHOWN, MissedTicks
from perception.supervision.unconfirmed import Unconfirmed
from spar import Agent
from spar.events import TriggerMissed
from spar.hooks import Hooks
from spar.protocols import Context, Host, SensorContext, SensorSpec
from spar.testing import RecordingEvents, VirtualClock
from spar.types import Perception

START = datetime(2026, 1, 1, tzinfo=UTC)


class Store:
    """Keeps states as their JSON would be, in what stands for a file."""

    def __init__(self, kept: dict[str, Any] | None = None) -> None:
        self.kept = {} if kept is None else kept
        self.order: list[str] = []
        self.is_broken = False

    async def store(self, experience: Any) -> None:
        return None

    async def load(self, key: str) -> Any:
        return self.kept.get(key)

    async def save(self, key: str, value: Any) -> None:
        if self.is_broken:
            raise OSError("no")
        self.order.append(key)
        self.kept[key] = value


async def started(clock: VirtualClock, store: Store, **options: Any) -> tuple[Sense, RecordingEvents]:
    """The sense module of a service that has just been started."""
    heard = RecordingEvents()
    sense = Sense([SensorSpec("job", ScheduleSensor(**options))])
    sense.attach(Host("main", clock, heard, Hooks(), lambda: None, store))  # type: ignore[arg-type]
    await sense.__aenter__()
    return sense, heard


async def cycle(sense: Sense) -> list[Perception]:
    found = await sense.sense(Context("main", "c"))
    await sense.settled()
    return found


def counts(sense: Sense) -> dict[str, int]:
    """Return the counts of missed ticks by reason, without those that never came."""
    found = sense.snapshot()["sensors"]["job"]["missed"]["counts"]
    return {reason: number for reason, number in found.items() if number}


# -- the account --------------------------------------------------------------------------------------------


def test_a_tick_that_is_told_twice_is_counted_once() -> None:
    missed = MissedTicks(Unconfirmed())
    for _ in range(2):
        missed.add(START, "late: 600 s, missed = 'skip'")
        missed.add(START, "late: 700 s, missed = 'skip'")
    missed.add(START, "overlap: another tick waits to be sensed")
    missed.add(START, "something new")
    assert missed.counts == {"late": 1, "overlap": 1, "other": 1}


def test_the_latest_are_kept_one_by_one_and_all_are_counted() -> None:
    missed = MissedTicks(Unconfirmed())
    for number in range(5 * KEPT):
        missed.add(START + timedelta(minutes=number), "late: 600 s")
    assert missed.counts == {"late": 5 * KEPT}
    assert len(missed.state()["latest"]) == KEPT
    shown = missed.snapshot()["latest"]
    assert len(shown) == SHOWN
    assert shown[-1] == {"due_at": (START + timedelta(minutes=5 * KEPT - 1)).isoformat(), "reason": "late: 600 s"}


def test_the_account_goes_on_from_what_was_written() -> None:
    unsaved = Unconfirmed()
    first, second = MissedTicks(unsaved), MissedTicks(unsaved)
    first.add(START, "late: 600 s")
    assert [change.value for change in unsaved.take("")] == [first.state()]
    second.restore(first.state())
    second.add(START, "late: 600 s")
    assert not unsaved.has_any
    second.add(START + timedelta(1), "late: 600 s")
    assert second.counts == {"late": 2}


@pytest.mark.parametrize(
    "state",
    [None, [], "x", {"counts": 3, "latest": 4}, {"counts": {"late": "many", "new": 1}, "latest": [["x"], 7, [1, 2]]}],
)
def test_an_account_that_cannot_be_read_begins_anew(state: Any) -> None:
    missed = MissedTicks(Unconfirmed())
    missed.restore(state)
    missed.add(START, "late: 600 s")
    assert missed.counts == {"late": 1}
    assert len(missed.state()["latest"]) == 1


# -- kept ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("missed", ["skip", "run_once", "run_all"])
async def test_what_was_missed_while_the_process_was_down_is_told_counted_and_kept(
    clock: VirtualClock, missed: Any
) -> None:
    store = Store()
    sense, _ = await started(clock, store, cron="0 * * * *", missed=missed)
    await cycle(sense)
    await sense.__aexit__(None, None, None)
    await clock.advance(5 * 3600 + 1800)

    sense, heard = await started(clock, store, cron="0 * * * *", missed=missed)
    await cycle(sense)
    told = [event.due_at.hour for event in heard.of(TriggerMissed)]
    assert told == [1, 2, 3, 4, 5]
    assert counts(sense) == {"late": 5}
    assert store.kept["missed:main:job"]["counts"] == {"late": 5}
    assert [at[11:16] for at, _ in store.kept["missed:main:job"]["latest"]] == [f"0{hour}:00" for hour in told]
    await sense.__aexit__(None, None, None)

    sense, heard = await started(clock, store, cron="0 * * * *", missed=missed)
    await cycle(sense)
    assert counts(sense) == {"late": 5}
    assert not heard.of(TriggerMissed)
    await sense.__aexit__(None, None, None)


async def test_an_account_that_cannot_be_written_holds_its_cursor_back_and_one_without_it_tells_again(
    clock: VirtualClock,
) -> None:
    store = Store()
    sense, _ = await started(clock, store, cron="0 * * * *")
    await cycle(sense)
    await sense.__aexit__(None, None, None)
    await clock.advance(5 * 3600 + 1800)
    before = dict(store.kept)
    sense, _ = await started(clock, store, cron="0 * * * *")
    store.order.clear()
    store.is_broken = True
    await cycle(sense)
    assert store.kept == before
    store.is_broken = False
    await sense.settled()
    assert store.order == ["missed:main:job", "cursor:main:job"]
    assert store.kept["missed:main:job"]["counts"] == {"late": 5}
    assert store.kept["cursor:main:job"] != before["cursor:main:job"]
    await sense.__aexit__(None, None, None)

    torn = Store({**before, "missed:main:job": store.kept["missed:main:job"]})  # by a crash between the two
    sense, heard = await started(clock, torn, cron="0 * * * *")
    await cycle(sense)
    assert len(heard.of(TriggerMissed)) == 5
    assert counts(sense) == {"late": 5}
    await sense.__aexit__(None, None, None)


async def test_ticks_of_a_paused_agent_are_told_and_the_first_waits_for_it(clock: VirtualClock) -> None:
    store, seen = Store(), []

    async def plan(perceptions: Any) -> None:
        seen.extend(perception.attributes["due_at"][11:16] for perception in perceptions)

    sense = Sense([SensorSpec("job", ScheduleSensor(cron="*/10 * * * *"))])
    agent = Agent(sense=sense, plan=plan, memory=store, loop_interval=5.0, clock=clock)
    told: list[TriggerMissed] = []
    agent.events.subscribe(TriggerMissed, told.append)
    async with agent:
        await clock.sleep(60)
        await agent.pause()
        await clock.sleep(3600)
        assert [event.reason.partition(":")[0] for event in told] == ["overlap"] * 5
        await agent.resume()
        await clock.sleep(60)
        assert seen[-1] == "00:10"
        assert store.kept["missed:main:job"]["counts"] == {"overlap": 5}


async def test_a_tick_that_was_missed_is_kept_although_nothing_else_would_wake_the_agent(clock: VirtualClock) -> None:
    store = Store()
    sense = Sense([SensorSpec("job", ScheduleSensor(cron="0 * * * *", missed="skip"))])
    agent = Agent(sense=sense, memory=store, loop_interval="off", clock=clock)
    async with agent:
        await clock.sleep(60)
        clock.jump_wall(3 * 3600 - 1800)
        await clock.sleep(60)
        assert store.kept["missed:main:job"]["counts"] == {"late": 2}


# -- clocks that jump ---------------------------------------------------------------------------------------

JUMPS = {
    "ten days on": lambda now: now + timedelta(days=10),
    "ten days back": lambda now: now - timedelta(days=10),
    "to 1970": lambda now: datetime(1970, 1, 1, 0, 20, tzinfo=UTC),
    "to 2038": lambda now: datetime(2038, 1, 19, 3, 14, 7, tzinfo=UTC),
    "into summer time": lambda now: datetime(2026, 3, 29, 0, 57, tzinfo=UTC),
    "into winter time": lambda now: datetime(2026, 10, 25, 0, 57, tzinfo=UTC),
}
TRIGGERS: dict[str, dict[str, Any]] = {
    "interval": {"interval": 600.0},
    "cron": {"cron": "*/10 * * * *", "timezone": "Europe/Berlin"},
    "daily": {"cron": "30 2 * * *", "timezone": "Europe/Berlin"},
    "moment": {"at": "2026-01-05T12:00:00+00:00"},
}


#: Each policy is tried with what is regular and jumps of days. A day has many looks at the clock: the daily trigger is
#: tried where its hour comes twice or not at all.
CASES = [
    (jump, trigger, missed)
    for jump in JUMPS
    for trigger in TRIGGERS
    for missed in ("skip", "run_once", "run_all")
    if (trigger in ("interval", "cron") and jump.startswith("ten"))
    or (missed == "run_once" and (trigger != "daily" or jump.startswith("into")))
]


@pytest.mark.parametrize(("jump", "trigger", "missed"), CASES)
async def test_a_clock_that_jumps_makes_no_burst_and_the_schedule_goes_on(
    clock: VirtualClock, jump: str, trigger: str, missed: Any
) -> None:
    found: list[str] = []
    told: list[tuple[datetime, str]] = []

    def push(perception: Perception) -> bool:
        found.append(perception.attributes["due_at"])
        return True

    sensor = ScheduleSensor(**TRIGGERS[trigger], missed=missed)
    context = SensorContext("job", clock, push, report=lambda event, **fields: told.append(tuple(fields.values())[1:]))
    await sensor.open(context)
    await clock.advance(3601)
    found.clear()
    assert told == []

    clock.set_wall(JUMPS[jump](clock.now()))
    await clock.advance(31)
    ran, late = len(found), len(told)
    assert ran <= (BOUND + 2 if missed == "run_all" else 1)
    assert late <= BOUND + 1
    assert len({at for at, _ in told}) == len(told) or any(reason.startswith("many") for _, reason in told)
    assert len(set(found)) == len(found)

    found.clear()
    await clock.advance(86_400 if trigger == "daily" else 3600)
    expected = {"interval": 6, "cron": 6, "daily": 1, "moment": 0}[trigger]
    if not (trigger == "moment" and jump in ("ten days back", "to 1970")):
        assert abs(len(found) - expected) <= 1
    assert len(told) == late  # nothing that came in time was missed
    await sensor.close()
