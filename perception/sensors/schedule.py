"""Notices that it is time: at a moment, every so many seconds, or by a cron line.

The times are computed, the agent's clock decides when one has come. The sensor looks at the wall clock at every tick
and at least every half minute, so that a clock that was set, or a machine that slept, is noticed. A tick that did not
run when it was due is told, always; whether it still becomes a perception is the policy's choice. What the ticks are
for is not known here.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Annotated, Any, Literal

from annotated_types import Ge, Le
from msgspec import Struct

from perception.sensors.crontab import MOMENT, following
from spar.clock import Timer
from spar.errors import ConfigError
from spar.protocols import SensorContext
from spar.types import Fault, Perception

LOOK = 30.0  # seconds after which the wall clock is looked at again, whenever the next tick is
BOUND = 1_000  # missed ticks that are told, and run, one by one; one more event tells of the rest
SET_BACK = timedelta(hours=3)  # a clock set back by more was corrected, by less repeats itself; as in Vixie cron
BEGINNING = datetime.min.replace(tzinfo=UTC)

Missing = Literal["skip", "run_once", "run_all"]
Overlapping = Literal["skip", "queue"]


class Due(Struct, frozen=True):
    """A tick that becomes a perception; `missed` says for how many missed ones it stands."""

    at: datetime
    missed: int = 0


class Verdicts(Struct, frozen=True):
    """The verdicts on ticks that are due: perceptions, and the reasons of those that did not run in time."""

    due: tuple[Due, ...] = ()
    told: tuple[tuple[datetime, str], ...] = ()


class ScheduleSensor:
    """Ticks by exactly one of `cron`, `interval`, `at`.

    Args: cron: five fields, see `crontab`; interval: seconds from start to start, counted from the first start of all;
    at: one moment, ISO 8601; timezone: "UTC", "local" or a name, for `cron` and an `at` without offset; text: what the
    perception says; missed: what becomes of ticks more than `grace` seconds late: nothing, one perception for all, one
    for each; overlap: whether a tick is skipped or queued while an earlier one has not been sensed yet; jitter: delays
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
        given = {
            name: value for name, value in (("cron", cron), ("interval", interval), ("at", at)) if value is not None
        }
        if len(given) != 1:
            found = " and ".join(given) or "none of them"
            raise ConfigError(f"a schedule needs exactly one of cron, interval, at; found {found}", path=(*given,)[1:2])
        zone = _zone(timezone)
        self._text, self._missed, self._overlap = text, missed, overlap
        self._grace, self._jitter = timedelta(seconds=grace), jitter
        self._is_single = at is not None
        self._step = None if interval is None else timedelta(seconds=interval)
        self._cron = None if cron is None else following(cron, zone)
        self._moment = _moment(at, zone) if at is not None else BEGINNING
        named = {"cron": f"cron {cron} {timezone}", "interval": f"interval {interval!r}"}
        self._trigger = next((named[name] for name in given if name in named), f"at {self._moment.isoformat()}")
        self._ctx: SensorContext | None = None
        self._timer: Timer | None = None
        self._last = BEGINNING  # the last tick that was dealt with

    async def open(self, ctx: SensorContext) -> None:
        self._ctx = ctx
        now = ctx.clock.now()
        # The first time a cron line may tick at this very moment, an interval has just begun, a moment may be past.
        first = BEGINNING if self._is_single else now - MOMENT if self._cron else now
        known = _last_of(ctx.cursor, self._trigger)
        self._deal_with(first if known is None else known)
        self._look()

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._ctx = None

    def _look(self) -> None:
        """Hand over what is due and come back at the next tick, or after a while. Raises nothing."""
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
            fault = Fault.of(error, part=ctx.name, phase="sense")
            ctx.report("ErrorOccurred", cycle_id="", phase="sense", error=fault, policy="retry", exception=error)
        # The wall clock may be a hair behind the timer's: do not come back at once for ever.
        self._timer = ctx.clock.call_at(ctx.clock.monotonic() + min(max(pause, 0.001), LOOK), self._look)

    def _mind_the_clock(self, now: datetime) -> None:
        """Let nothing tick twice after the clock was set back, nor wait for years until it has caught up."""
        patience = SET_BACK if self._cron else timedelta(0)
        if not self._is_single and self._last - now > patience:
            self._deal_with(now)

    def _tick(self, ctx: SensorContext, now: datetime) -> None:
        ticks = list(itertools.islice(self._due(self._last, now), BOUND + 1))
        if not ticks:
            return
        rest, dealt_with = "", ticks[-1]
        if len(ticks) > BOUND:
            # Too many to count them all; those that are merely late are not passed over.
            resumed = max(ticks.pop(), now - self._grace)
            rest = (
                f"many: more than {BOUND} ticks were missed; those until {resumed.isoformat()} are not told one by one"
            )
            ticks += itertools.islice(self._due(resumed - MOMENT, now), BOUND)
            dealt_with = max(ticks[-1], self._before(resumed))  # or the next look would go on where this one ended
        verdicts = judged(
            ticks,
            now,
            grace=self._grace,
            missed=self._missed,
            overlap=self._overlap,
            waits=getattr(ctx.push, "waiting", 0) > 0,
            delayed=self._delayed,
        )
        refused = [due.at for due in verdicts.due if not ctx.push(self._perception(ctx, due, now))]
        told = [*verdicts.told, *((at, "refused: too many perceptions of this sensor wait") for at in refused)]
        for due_at, reason in told[:BOUND]:
            ctx.report("TriggerMissed", trigger=ctx.name, due_at=due_at, reason=reason)
        if rest or len(told) > BOUND:
            rest = rest or f"many: {len(told) - BOUND} more ticks were missed, the last of them this one"
            ctx.report("TriggerMissed", trigger=ctx.name, due_at=told[-1][0], reason=rest)
        self._deal_with(dealt_with)

    # -- times

    def _after(self, moment: datetime) -> datetime | None:
        """Return the first tick after a moment."""
        if self._cron is not None:
            return self._cron(moment)
        if self._step is not None:  # counted from a tick that was: whole steps, no drift
            return self._last + ((moment - self._last) // self._step + 1) * self._step
        return self._moment if self._moment > moment else None

    def _before(self, moment: datetime) -> datetime:
        """Return the last tick before a moment, or what does as well to go on from."""
        if self._step is not None:
            return self._last + (moment - MOMENT - self._last) // self._step * self._step
        return moment - MOMENT

    def _due(self, since: datetime, now: datetime) -> Iterator[datetime]:
        tick = self._after(since)
        while tick is not None and self._delayed(tick) <= now:
            yield tick
            tick = self._after(tick)

    def _delayed(self, tick: datetime) -> datetime:
        """Return the tick with its jitter: by a digest, not by chance, so that it is the same after a restart."""
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
        due_at = due.at.isoformat()
        return Perception(
            self._text or f"it is time: {ctx.name}",
            source=ctx.name,
            kind="schedule.tick",
            at=now,
            key=f"{ctx.name} {due_at}",
            trust="trusted",
            attributes={
                "due_at": due_at,
                "missed": due.missed,
                "late": round(max((now - self._delayed(due.at)).total_seconds(), 0.0), 3),
            },
        )


def judged(
    ticks: Sequence[datetime],
    now: datetime,
    *,
    grace: timedelta,
    missed: Missing,
    overlap: Overlapping,
    waits: bool = False,
    delayed: Callable[[datetime], datetime] = lambda tick: tick,
) -> Verdicts:
    """Judge ticks that are due, given in order.

    One that is at most `grace` late is merely late and runs; of several only the latest under `overlap="skip"`, and
    none while an earlier one still `waits` to be sensed. All others are missed and told; `missed` says which still run.
    """
    lateness = {tick: now - delayed(tick) for tick in ticks}
    too_late = [tick for tick in ticks if lateness[tick] > grace]
    late = [tick for tick in ticks if lateness[tick] <= grace]
    running = late if overlap == "queue" else [] if waits else late[-1:]
    told = [(tick, f"late: {lateness[tick].total_seconds():.0f} s, missed = {missed!r}") for tick in too_late]
    told += [(tick, "overlap: another tick waits to be sensed") for tick in late if tick not in running]
    due = [Due(tick) for tick in running]
    if missed == "run_all":
        due = [Due(tick, missed=1) for tick in too_late] + due
    elif missed == "run_once" and too_late:
        # One for all of them: the one that is merely late, if there is one, else the last that was missed.
        stands_for_all = Due(running[0] if running else too_late[-1], missed=len(too_late))
        due = [stands_for_all, *due[1:]]
    return Verdicts(tuple(due), tuple(told))


def _last_of(cursor: Any, trigger: str) -> datetime | None:
    """Return the last tick that was dealt with, if the cursor is one of this trigger and can be read."""
    try:
        last = datetime.fromisoformat(cursor["last"]) if cursor["trigger"] == trigger else None
    except (TypeError, KeyError, ValueError):
        return None
    return last if last is None or last.tzinfo is not None else last.replace(tzinfo=UTC)


def _zone(name: str) -> tzinfo:
    from zoneinfo import ZoneInfo

    if name.upper() == "UTC":
        return UTC
    try:
        if name == "local":
            from tzlocal import get_localzone  # comes with APScheduler

            return get_localzone()
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError) as error:
        message = f'no time zone named {name!r} ({error}); known: "UTC", "local", or a name like "Europe/Berlin"'
        raise ConfigError(message, path=("timezone",)) from None


def _moment(at: datetime | str, zone: tzinfo) -> datetime:
    try:
        moment = at if isinstance(at, datetime) else datetime.fromisoformat(at.strip())
        return (moment if moment.tzinfo is not None else moment.replace(tzinfo=zone)).astimezone(UTC)
    except (ValueError, OverflowError, AttributeError) as error:
        message = f'no moment: {at!r} ({error}); an example: at = "2026-03-01T09:00:00+01:00"'
        raise ConfigError(message, path=("at",)) from None
