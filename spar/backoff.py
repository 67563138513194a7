"""Pure decisions about failures: how long to wait, and how many restarts are too many."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct


class Backoff(Struct, frozen=True):
    """Exponential back-off: `base`, doubling, at most `cap` (seconds).

    Without jitter, because one agent makes no crowd of clients; the exponent is bounded, because `2 ** n` overflows a
    float after a night of failures. Source: controller-runtime's per-item limiter (base 5 ms, cap 1000 s).
    """

    base: float = 0.5
    cap: float = 60.0

    def delay(self, failures: int) -> float:
        """Return the seconds to wait after `failures` failures in a row; 0 without failures."""
        if failures <= 0 or self.base <= 0:
            return 0.0
        return min(self.cap, self.base * 2.0 ** min(failures - 1, 60))


class Intensity:
    """Limit of restarts: at most `limit` times `within` seconds (5 in 60 s).

    Source: Erlang/OTP supervisors (`intensity` restarts in `period` seconds, then give up).
    """

    __slots__ = ("_times", "limit", "within")

    def __init__(self, limit: int = 5, within: float = 60.0) -> None:
        self.limit, self.within = limit, within
        self._times: list[float] | tuple[()] = ()

    def allow(self, now: float) -> bool:
        """Count one restart at `now` (monotonic seconds); return False when it is one too many."""
        times = [at for at in self._times if now - at <= self.within]
        is_allowed = len(times) < self.limit
        if is_allowed:
            times.append(now)
        self._times = times
        return is_allowed

    def reset(self) -> None:
        self._times = ()


class Trouble:
    """Failures of a part: their number in a row and in all, its state, and the last error.

    After each failure the part backs off; with `most` of them `within` so many seconds it is quarantined and tried
    again after `probe_after`, until it works.

    Args: probes: the seconds between attempts in quarantine, where they are less than `probe_after`.
    """

    __slots__ = ("_backoff", "_intensity", "_probe_after", "_probes", "failures", "last_error", "state", "total")

    def __init__(self, most: int, within: float, probe_after: float, probes: Backoff | None = None) -> None:
        self._probe_after, self._probes = probe_after, probes
        self.state: Literal["ok", "backing_off", "quarantined"] = "ok"
        self.failures, self.total, self.last_error = 0, 0, ""
        self._backoff = Backoff()
        self._intensity = Intensity(max(most - 1, 0), within)  # the last failure puts it into quarantine

    def failed(self, now: float, wait: float = 0.0) -> float:
        """Count a failure at `now` (monotonic seconds); return the seconds until the next attempt, at least `wait`."""
        self.failures += 1
        self.total += 1
        is_quarantined = self.state == "quarantined" or not self._intensity.allow(now)
        self.state = "quarantined" if is_quarantined else "backing_off"
        pause = self._backoff.delay(self.failures)
        if is_quarantined:
            probe = self._probe_after
            pause = probe if self._probes is None else min(probe, self._probes.delay(self.failures))
        return max(pause, wait)

    def quarantine_reason(self) -> str:
        """Return a sentence that says why the part is in quarantine."""
        return f"{self._intensity.limit + 1} failures within {self._intensity.within:g} s; the last: {self.last_error}"

    def ended(self) -> bool:
        """Reset the failures in a row; return whether that ends a quarantine."""
        was_quarantined = self.state == "quarantined"
        if was_quarantined:
            self._intensity.reset()
        self.state, self.failures = "ok", 0
        return was_quarantined

    def snapshot(self) -> dict[str, Any]:
        """Return the state, JSON-able."""
        return {"state": self.state, "failures": self.failures, "last_error": self.last_error}
