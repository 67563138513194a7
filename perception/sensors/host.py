"""Sensor that reports when the machine's load, memory or disks are high, and when they are back to normal.

Only a change of level is a perception, and a reminder while it stays high. The sensor measures with psutil and judges
by fixed thresholds; the planner decides what to do about it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le
from msgspec import Struct

from spar.errors import ConfigError
from spar.protocols import SensorContext
from spar.types import Perception

Share = Annotated[float, Gt(0), Le(1)]
Level = Literal["normal", "high"]


class Measure(Struct, frozen=True):
    """One measured quantity: its kind, the path of a disk, its words, and its threshold."""

    kind: str
    path: str
    noun: str
    threshold: float

    @property
    def subject(self) -> str:
        return f"{self.kind} {self.path}" if self.path else self.kind

    @property
    def unit(self) -> Literal["per cpu", "share"]:
        return "per cpu" if self.kind == "host.load" else "share"


class _Last(Struct):
    level: Level = "normal"
    told_at: float = 0.0  # monotonic seconds
    is_unreadable: bool = False


class HostSensor:
    """Load (1 minute average per processor), memory and disks (share in use, 0..1).

    Args: every: seconds between two looks; load_high, memory_high, disk_high: where high begins; disks: paths on the
    file systems to watch; hysteresis: how far below that normal begins; remind: seconds between two reminders while
    high, 0 for none; readings: also pass on each measurement, so that the pipeline reports values that are rare at
    their hour, below the thresholds too; read: measures instead of psutil, called with a kind and a disk's path (else
    "").
    """

    def __init__(
        self,
        *,
        every: Annotated[float, Gt(0)] = 5.0,
        load_high: Annotated[float, Gt(0)] = 1.5,
        memory_high: Share = 0.9,
        disk_high: Share = 0.9,
        disks: Sequence[str] = ("/",),
        hysteresis: Annotated[float, Ge(0)] = 0.05,
        remind: Annotated[float, Ge(0)] = 300.0,
        readings: bool = False,
        read: Callable[[str, str], float] | None = None,
    ) -> None:
        lowest = min(load_high, memory_high, disk_high)
        if hysteresis >= lowest:
            message = f"hysteresis must be smaller than every threshold, found {hysteresis!r}; the lowest is {lowest!r}"
            raise ConfigError(message, path=("hysteresis",))
        self.every, self._hysteresis, self._remind = every, hysteresis, remind
        self._has_readings = readings
        self._read = read or measured
        self._measures = (
            Measure("host.load", "", "load", load_high),
            Measure("host.memory", "", "memory", memory_high),
            *(Measure("host.disk", path, f"disk {path}", disk_high) for path in dict.fromkeys(disks)),
        )

    async def open(self, ctx: SensorContext) -> None:
        self._ctx = ctx
        # Values that were high before are reported again, because it is unknown whether they were handled.
        self._last = {measure.subject: _Last() for measure in self._measures}

    def poll(self) -> list[Perception]:
        """Return perceptions of measures that changed their level since the last poll. Raises: the error of the first
        reading when all fail."""
        noticed: list[Perception] = []
        failures: list[Exception] = []
        for measure in self._measures:
            last = self._last[measure.subject]
            try:
                value = float(self._read(measure.kind, measure.path))
            except Exception as error:
                failures.append(error)
                if not last.is_unreadable:  # told once until it can be read again
                    self._ctx.report_error(error, "skip")
                last.is_unreadable = True
                continue
            last.is_unreadable = False
            if self._has_readings:
                noticed.append(self._reading(measure, value))
            if (perception := self._judged(measure, last, value)) is not None:
                noticed.append(perception)
        if len(failures) == len(self._measures):
            raise failures[0]
        return noticed

    def _reading(self, measure: Measure, value: float) -> Perception:
        """Return a measurement as a point of its series, for the pipeline only."""
        attributes = {"value": value, "series": measure.noun, "reading": True, "unit": measure.unit}
        return self._ctx.perception("", measure.kind, subject=measure.subject, trust="trusted", attributes=attributes)

    def _judged(self, measure: Measure, last: _Last, value: float) -> Perception | None:
        now, before = self._ctx.clock.monotonic(), last.level
        # High from the threshold on, and after that normal only below the threshold by the hysteresis.
        is_high = value >= measure.threshold - (self._hysteresis if before == "high" else 0.0)
        level = last.level = "high" if is_high else "normal"
        is_reminder = level == before == "high" and 0 < self._remind <= now - last.told_at
        if level == before and not is_reminder:
            return None
        last.told_at = now
        attributes = {"value": round(value, 4), "threshold": measure.threshold, "level": level, "unit": measure.unit,
                      "reminder": is_reminder}  # fmt: skip
        key = f"{measure.subject} {level} {self._ctx.clock.now().isoformat()}"
        return self._ctx.perception(sentence(measure, value, level), measure.kind, key=key, subject=measure.subject,
                                    trust="trusted", attributes=attributes)  # fmt: skip


def sentence(measure: Measure, value: float, level: Level) -> str:
    """Return one sentence for people."""
    form, unit = (".2f", "per cpu") if measure.unit == "per cpu" else (".0%", "in use")
    shown = f"{value:{form}} {unit}"
    if level == "high":
        return f"{measure.noun} is high: {shown}, the threshold is {measure.threshold:{form}}"
    return f"{measure.noun} is back to normal: {shown}"


def measured(kind: str, path: str) -> float:
    """Measure with psutil. Raises: OSError, e.g. for a missing disk."""
    import psutil

    if kind == "host.load":
        # Per processor of the machine, because the load is the machine's, also inside a container.
        return float(psutil.getloadavg()[0]) / (psutil.cpu_count() or 1)
    if kind == "host.memory":
        return float(psutil.virtual_memory().percent) / 100
    return float(psutil.disk_usage(path).percent) / 100
