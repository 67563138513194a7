"""Times at which the conversation of a session ends by itself: after an idle time, or at an hour of the day. Pure.

No timer waits for these times: they are computed when the next message comes.
"""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta, tzinfo

_SECOND, _DAY = timedelta(seconds=1), timedelta(days=1)


def is_idle(used_at: datetime, now: datetime, idle: float) -> bool:
    """Return whether the last use was at least `idle` seconds ago; 0 means never."""
    return idle > 0 and (now - used_at).total_seconds() >= idle


def is_over(began_at: datetime, now: datetime, at: time | None, zone: tzinfo | None) -> bool:
    """Return whether the hour `at` has passed since a conversation began; None means never."""
    return at is not None and began_at < last_tick(at, now, zone)


def last_tick(at: time, now: datetime, zone: tzinfo | None) -> datetime:
    """Return the last time, at or before `now`, when a wall clock showed this hour of the day.

    Daylight saving follows cron(8): an hour that is skipped counts right after the change, an hour that comes twice
    counts the first time. Args: zone: the time zone; None for that of the system.
    """
    today = now.astimezone(zone).date()
    for days in (0, 1):
        tick = _tick(datetime.combine(today - days * _DAY, at), zone)
        if tick <= now:
            return tick
    return _tick(datetime.combine(today - 2 * _DAY, at), zone)  # the time zone set the date back


def _tick(reading: datetime, zone: tzinfo | None) -> datetime:
    """Return the first moment at which the wall clock shows this reading or a later one."""
    late, early = _at(reading, zone), _at(reading.replace(fold=1), zone)
    if late <= early:  # the reading exists
        return late
    before = early.astimezone(zone).utcoffset()
    while late - early > _SECOND:  # bisect for the moment when the clock changes
        middle = early + (late - early) / 2
        early, late = (middle, late) if middle.astimezone(zone).utcoffset() == before else (early, middle)
    return late.replace(microsecond=0)


def _at(reading: datetime, zone: tzinfo | None) -> datetime:
    return (reading if zone is None else reading.replace(tzinfo=zone)).astimezone(UTC)
