"""Sensor that reports times: a moment, an interval, or the ticks of a cron line.

The times are computed, and the agent's clock decides when one has come. The sensor reads the wall clock at every tick
and at least every half minute, so it notices a clock that was set or a machine that slept. A tick that did not run
when it was due is always reported; the policy decides whether it still becomes a perception. The sensor does not know
the purpose of its ticks.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Annotated, Any, Literal

from annotated_types import Ge, Le
from msgspec import Struct

from perception.sensors.crontab import MOMENT, following
from spar.clock import Timer, zone_named
from spar.errors import ConfigError
from spar.protocols import SensorContext
from spar.types import Perception

LOOK = 30.0  # most seconds until the wall clock is read again
BOUND = 1_000  # missed ticks that are reported, and run, one by one; one more event reports the others
SET_BACK = timedelta(hours=3)  # a clock set back by more was corrected, by less repeats an hour; as in Vixie cron
BEGINNING = datetime.min.replace(tzinfo=UTC)

Missing = Literal["skip", "run_once", "run_all"]
Overlapping = Literal["skip", "queue"]
Report = tuple[datetime, str]  # a tick that did not run in time, with the reason


class Due(Struct, frozen=True):
    """Tick that becomes a perception; `missed` is the number of missed ticks that it represents."""

    at: datetime
    missed: int = 0


class ScheduleSensor:
    """Ticks by exactly one of `cron`, `interval`, `at`.

    Args: cron: five fields, see `crontab`; interval: seconds from start to start, counted from the very first start;
    at: one moment, ISO 8601; timezone: "UTC", "local" or a name, for `cron` and an `at` without offset; text: the text
    of the perception; missed: the policy for ticks more than `grace` seconds late: no perception, one for all, one for
    each; overlap: whether a tick is skipped or queued while an earlier one has not been sensed yet; jitter: delays
    each tick by up to so many seconds, always the same for one tick of one sensor.

    Raises: ConfigError.
    """

    def __init__(
        self,
        *,
        cron: str | None = None,
        interval: Annotated[float, Ge(0.01), Le(3.2e9)] | None = None,
        at: datetime | str | None = None,
        timezone: str = "UTC",
        text: str = "",
        missed: Missing = "run_once",
        grace: Annotated[float, Ge(0), Le(3.2e7)] = 300.0,
        overlap: Overlapping = "skip",
        jitter: Annotated[float, Ge(0), Le(86_400)] = 0.0,
    ) -> None:
        options = (("cron", cron), ("interval", interval), ("at", at))
        triggers = tuple(name for name, value in options if value is not None)
        if len(triggers) != 1:
            names = " and ".join(triggers) or "none of them"
            raise ConfigError(f"a schedule needs exactly one of cron, interval, at; found {names}", path=triggers[1:2])
        zone = _zone(timezone)
        self._text, self._missed, self._overlap = text, missed, overlap
        self._grace, self._jitter = timedelta(seconds=grace), jitter
        self._is_single = at is not None
        self._step = None if interval is None else timedelta(seconds=interval)
        self._cron = None if cron is None else following(cron, zone)
        self._moment = _moment(at, zone) if at is not None else BEGINNING
        named = {"cron": f"cron {cron} {timezone}", "interval": f"interval {interval!r}"}
        self._trigger = named.get(triggers[0], f"at {self._moment.isoformat()}")
        self._ctx: SensorContext | None = None
        self._timer: Timer | None = None
        self._last = BEGINNING  # the last tick that was handled

    async def open(self, ctx: SensorContext) -> None:
        self._ctx = ctx
        now = ctx.clock.now()
        # At the first start, a cron line may tick at this very moment, an interval has just begun, and the moment of
        # `at` may be in the past.
        first = BEGINNING if self._is_single else now - MOMENT if self._cron else now
        known = _last_of(ctx.cursor, self._trigger)
        self._deal_with(first if known is None else known)
        self._look()

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._ctx = None

    def _look(self) -> None:
        """Push the ticks that are due, and set the timer for the next tick or for `LOOK` seconds. Raises nothing."""
        ctx = self._ctx
        if ctx is None:
            return
        pause = LOOK
        try:
            now = ctx.clock.now()
            self._mind_the_clock(now)
            self._tick(ctx, now)
            if (upcoming := self._after(self._last)) is not None:
                pause = (self._delayed(upcoming) - now).total_seconds()
        except Exception as error:
            ctx.report_error(error)
        # The wall clock may be slightly behind the timer's, so wait at least a millisecond.
        self._timer = ctx.clock.call_at(ctx.clock.monotonic() + min(max(pause, 0.001), LOOK), self._look)

    def _mind_the_clock(self, now: datetime) -> None:
        """After the clock was set back, prevent repeated ticks and a long wait until it has caught up."""
        patience = SET_BACK if self._cron else timedelta(0)
        if not self._is_single and self._last - now > patience:
            self._deal_with(now)

    def _tick(self, ctx: SensorContext, now: datetime) -> None:
        ticks = list(itertools.islice(self._due(self._last, now), BOUND + 1))
        if not ticks:
            return
        summary, dealt_with = "", ticks[-1]
        if len(ticks) > BOUND:
            # There are too many to count them all; those within `grace` are still handled one by one.
            resumed = max(ticks.pop(), now - self._grace)
            summary = (
                f"many: more than {BOUND} ticks were missed; those until {resumed.isoformat()} are not told one by one"
            )
            ticks += itertools.islice(self._due(resumed - MOMENT, now), BOUND)
            dealt_with = max(ticks[-1], self._before(resumed))  # else the next look would go on from an earlier tick
        dues, reports = self.judged(ticks, now, waits=getattr(ctx.push, "waiting", 0) > 0)
        refused = [due.at for due in dues if not ctx.push(self._perception(ctx, due, now))]
        reports += [(at, "refused: too many perceptions of this sensor wait") for at in refused]
        for due_at, reason in reports[:BOUND]:
            ctx.report("TriggerMissed", trigger=ctx.name, due_at=due_at, reason=reason)
        if summary or len(reports) > BOUND:
            summary = summary or f"many: {len(reports) - BOUND} more ticks were missed, the last of them this one"
            ctx.report("TriggerMissed", trigger=ctx.name, due_at=reports[-1][0], reason=summary)
        self._deal_with(dealt_with)

    def judged(self, ticks: Sequence[datetime], now: datetime, *, waits: bool) -> tuple[list[Due], list[Report]]:
        """Judge ticks that are due, in order; return the perceptions, and the ticks that did not run in time.

        A tick that is at most `grace` late still runs. Of several such ticks only the latest runs under
        `overlap="skip"`, and none while an earlier one still `waits` to be sensed. All other ticks are missed and
        reported; `missed` decides which of them still run.
        """
        lateness = {tick: now - self._delayed(tick) for tick in ticks}
        too_late = [tick for tick in ticks if lateness[tick] > self._grace]
        late = [tick for tick in ticks if lateness[tick] <= self._grace]
        running = late if self._overlap == "queue" else [] if waits else late[-1:]
        missed = f"missed = {self._missed!r}"
        reports = [(tick, f"late: {lateness[tick].total_seconds():.0f} s, {missed}") for tick in too_late]
        reports += [(tick, "overlap: another tick waits to be sensed") for tick in late if tick not in running]
        due = [Due(tick) for tick in running]
        if self._missed == "run_all":
            due = [Due(tick, missed=1) for tick in too_late] + due
        elif self._missed == "run_once" and too_late:
            # One perception for all missed ticks: the first running tick if there is one, else the last missed one.
            due = [Due(running[0] if running else too_late[-1], missed=len(too_late)), *due[1:]]
        return due, reports

    def snapshot(self) -> dict[str, str]:
        """Return the time of its next tick, "" if there is none any more."""
        tick = None if self._ctx is None else self._after(self._last)
        return {"next_tick": "" if tick is None else self._delayed(tick).isoformat()}

    # -- times

    def _after(self, moment: datetime) -> datetime | None:
        """Return the first tick after a moment."""
        if self._cron is not None:
            return self._cron(moment)
        if self._step is not None:  # counted in whole steps from an earlier tick, so without drift
            return self._last + ((moment - self._last) // self._step + 1) * self._step
        return self._moment if self._moment > moment else None

    def _before(self, moment: datetime) -> datetime:
        """Return the last tick before a moment, or a moment from which to go on equally well."""
        if self._step is not None:
            return self._last + (moment - MOMENT - self._last) // self._step * self._step
        return moment - MOMENT

    def _due(self, since: datetime, now: datetime) -> Iterator[datetime]:
        tick = self._after(since)
        while tick is not None and self._delayed(tick) <= now:
            yield tick
            tick = self._after(tick)

    def _delayed(self, tick: datetime) -> datetime:
        """Return the tick with its jitter, which comes from a digest and not from chance, so that it is the same after
        a restart."""
        if not self._jitter or self._ctx is None:
            return tick
        named = f"{self._ctx.name} {tick.isoformat()}".encode(errors="replace")
        share = int.from_bytes(hashlib.blake2b(named, digest_size=8).digest(), "big") / 2**64
        return tick + timedelta(seconds=self._jitter * share)

    def _deal_with(self, tick: datetime) -> None:
        assert self._ctx is not None
        self._last = tick
        self._ctx.checkpoint({"trigger": self._trigger, "last": tick.isoformat()})

    def _perception(self, ctx: SensorContext, due: Due, now: datetime) -> Perception:
        due_at, late = due.at.isoformat(), max((now - self._delayed(due.at)).total_seconds(), 0.0)
        attributes = {"due_at": due_at, "missed": due.missed, "late": round(late, 3)}
        return Perception(self._text or f"it is time: {ctx.name}", source=ctx.name, kind="schedule.tick", at=now,
                          key=f"{ctx.name} {due_at}", trust="trusted", attributes=attributes)  # fmt: skip


def _last_of(cursor: Any, trigger: str) -> datetime | None:
    """Return the last handled tick, if the cursor belongs to this trigger and can be read."""
    try:
        last = datetime.fromisoformat(cursor["last"]) if cursor["trigger"] == trigger else None
    except (TypeError, KeyError, ValueError):
        return None
    return last if last is None or last.tzinfo is not None else last.replace(tzinfo=UTC)


def _zone(name: str) -> tzinfo:
    try:
        if (zone := zone_named(name)) is not None:
            return zone
        from tzlocal import get_localzone  # comes with APScheduler

        return get_localzone()
    except (ValueError, OSError, KeyError) as error:
        raise ConfigError(str(error), path=("timezone",)) from None


def _moment(at: datetime | str, zone: tzinfo) -> datetime:
    try:
        moment = at if isinstance(at, datetime) else datetime.fromisoformat(at.strip())
        return (moment if moment.tzinfo is not None else moment.replace(tzinfo=zone)).astimezone(UTC)
    except (ValueError, OverflowError, AttributeError) as error:
        message = f'no moment: {at!r} ({error}); an example: at = "2026-03-01T09:00:00+01:00"'
        raise ConfigError(message, path=("at",)) from None
