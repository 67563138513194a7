"""Pure decisions about failures: how long to wait, and how many restarts are too many."""

from __future__ import annotations

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
