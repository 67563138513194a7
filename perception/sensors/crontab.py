"""Cron lines as crontab(5) defines them: from a line and a time zone to a function "first tick after a moment".

APScheduler's `CronTrigger` finds the times; this module adds three rules of cron. 0 and 7 are Sunday. If both day of
month and weekday are restricted, either is enough. Daylight saving follows cron(8): a line whose minute or hour begins
with `*` ticks by real time, independently of changes of the local clock. For any other line, a tick in a skipped hour
comes right after it, and a tick in a repeated hour comes once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

from spar.clock import moment_of
from spar.errors import ConfigError

Following = Callable[[datetime], datetime | None]

MOMENT = timedelta(microseconds=1)
DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
EXAMPLE = 'an example: cron = "0 9 * * mon-fri" (minute, hour, day of month, month, weekday)'


def following(line: str, zone: tzinfo) -> Following:
    """Return a function from a moment to the first tick after it (UTC); the function returns None when there is none
    until the year 9999.

    Raises: ConfigError for a line that cannot be read or never ticks.
    """
    fields = line.split()
    if len(fields) != 5:
        raise ConfigError(f"a cron line has five fields, found {len(fields)} in {line!r}; {EXAMPLE}", path=("cron",))
    is_wild = fields[0].startswith("*") or fields[1].startswith("*")
    try:
        by_the_wall = tuple(_triggers(fields, UTC))
        by_real_time = tuple(_triggers(fields, zone)) if is_wild else ()
    except (ValueError, TypeError) as error:
        raise ConfigError(f"no cron line: {line!r} ({error}); {EXAMPLE}", path=("cron",)) from None
    after = _by_real_time(by_real_time, by_the_wall, zone) if is_wild else _by_the_wall(by_the_wall, zone)
    if after(datetime(2000, 1, 1, tzinfo=UTC)) is None:
        raise ConfigError(f"cron line {line!r} never comes; {EXAMPLE}", path=("cron",))
    return after


def _triggers(fields: list[str], zone: tzinfo) -> Iterator[Any]:
    from apscheduler.triggers.cron import CronTrigger

    minute, hour, day, month, weekday = fields
    weekday = ",".join(_weekdays(item) for item in weekday.lower().split(","))
    either = not day.startswith("*") and not weekday.startswith("*")
    for pair in ((day, "*"), ("*", weekday)) if either else ((day, weekday),):
        yield CronTrigger(minute=minute, hour=hour, day=pair[0], month=month, day_of_week=pair[1], timezone=zone)


def _weekdays(item: str) -> str:
    """Return one item of the weekday field as names, because APScheduler counts from Monday and knows no range over
    Sunday."""
    days, _, step = item.partition("/")
    if days == "*" and not step:
        return "*"
    first, _, last = days.partition("-")
    begin = 0 if days == "*" else _day(first)
    end = 6 if days == "*" or (step and not last) else _day(last or first)
    if end < begin:
        end += 7
    if step and (not step.isdigit() or int(step) == 0):
        raise ValueError(f"the step of {item!r} must be a number from 1")
    return ",".join(DAYS[number % 7] for number in range(begin, end + 1, int(step or 1)))


def _day(text: str) -> int:
    if text in DAYS:
        return DAYS.index(text)
    if text.isdigit() and int(text) <= 7:
        return int(text)
    raise ValueError(f"a weekday is 0 to 7 or one of {', '.join(DAYS)}, found {text!r}")


def _by_real_time(triggers: tuple[Any, ...], wall: tuple[Any, ...], zone: tzinfo) -> Following:
    """Return the function to the next tick, for triggers that handle skipped and repeated hours in their own zone.

    They move a tick in a skipped hour behind it, to a local time that the line does not name; `wall` finds these
    ticks, and they are left out.
    """

    def after(moment: datetime) -> datetime | None:
        tick = _first(triggers, moment + MOMENT)
        while (
            tick is not None and _first(wall, reading := tick.astimezone(zone).replace(tzinfo=UTC, fold=0)) != reading
        ):
            tick = _first(triggers, tick + MOMENT)
        return tick

    return after


def _by_the_wall(triggers: tuple[Any, ...], zone: tzinfo) -> Following:
    """Return the function to the next tick, for triggers that treat the local time as UTC."""

    def after(moment: datetime) -> datetime | None:
        reading: datetime | None = moment.astimezone(zone).replace(tzinfo=UTC, fold=0)
        while reading is not None:
            reading = _first(triggers, reading + MOMENT)
            if reading is not None:
                tick = moment_of(reading, zone)
                if tick > moment:
                    return tick
        return None

    return after


def _first(triggers: tuple[Any, ...], moment: datetime) -> datetime | None:
    try:
        ticks = [trigger.get_next_fire_time(None, moment) for trigger in triggers]
    except (OverflowError, ValueError):  # past the year 9999
        return None
    return min((tick.astimezone(UTC) for tick in ticks if tick is not None), default=None)
