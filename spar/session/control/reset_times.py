"""Times at which the conversation of a session is over by itself: after a rest, or at an hour of the day; pure.

Nothing waits for these times: they are reckoned with when the next message comes.
"""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta, tzinfo

_SECOND, _DAY = timedelta(seconds=1), timedelta(days=1)


def is_idle(used_at: datetime, now: datetime, idle: float) -> bool:
    """Return whether nothing was said for so many seconds; 0: never."""
    return idle > 0 and (now - used_at).total_seconds() >= idle


def is_over(began_at: datetime, now: datetime, at: time | None, zone: tzinfo | None) -> bool:
    """Return whether the hour at which conversations end has come since one began; None: never."""
    return at is not None and began_at < last_tick(at, now, zone)


def last_tick(at: time, now: datetime, zone: tzinfo | None) -> datetime:
    """Return when a clock on the wall last showed an hour of the day, at `now` or before it.

    As cron(8) has it at daylight saving: an hour that is skipped comes right after the change, one that comes twice
    counts the first time. Args: zone: None: that of the system.
    """
    today = now.astimezone(zone).date()
    for days in (0, 1):
        tick = _tick(datetime.combine(today - days * _DAY, at), zone)
        if tick <= now:
            return tick
    return _tick(datetime.combine(today - 2 * _DAY, at), zone)  # the date itself was set back


def _tick(reading: datetime, zone: tzinfo | None) -> datetime:
    """Return when the clock on the wall first shows this reading, or goes past it."""
    late, early = _at(reading, zone), _at(reading.replace(fold=1), zone)
    if late <= early:  # it stands in no gap
        return late
    before = early.astimezone(zone).utcoffset()
    while late - early > _SECOND:  # the clock is set in between
        middle = early + (late - early) / 2
        early, late = (middle, late) if middle.astimezone(zone).utcoffset() == before else (early, middle)
    return late.replace(microsecond=0)


def _at(reading: datetime, zone: tzinfo | None) -> datetime:
    return (reading if zone is None else reading.replace(tzinfo=zone)).astimezone(UTC)
