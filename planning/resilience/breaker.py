"""A circuit breaker as a value: it says whether a model may be asked now. Pure.

A closed breaker lets requests through. It opens after as many faults in a row as the kind of fault tolerates. An open
breaker lets no request through for a time: the provider's `retry-after`; half an hour if people have to do something;
else 30 s, 1 minute and 5 minutes, longer each time that it opens again. Then it is half open: it lets one request
through (the probe), and its result closes or opens the breaker.

Source: M. Nygard, "Release It!", 2nd ed. 2018, chapter 5; the steps are those of OpenClaw's model failover.
"""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from planning.resilience.provider_errors import TREATMENTS, FaultKind

State = Literal["closed", "open", "half_open"]

#: Seconds that a breaker stays open the first, second, third and later time in a row.
RESTS: Final = (30.0, 60.0, 300.0)
#: Seconds that another request waits at least while the probe runs.
_PROBE: Final = 5.0


class Breaker(Struct, frozen=True):
    """State of a circuit breaker. `until` is a time of the monotonic clock; `faults` and `openings` count in a row."""

    faults: int = 0
    openings: int = 0
    until: float = 0.0
    is_probed: bool = False
    last: FaultKind | None = None


def state(breaker: Breaker, now: float) -> State:
    """Return the state at this time."""
    if not breaker.openings:
        return "closed"
    return "open" if now < breaker.until else "half_open"


def wait(breaker: Breaker, now: float) -> float:
    """Return the seconds until the model may be asked; 0 if it may be asked now."""
    if not breaker.openings:
        return 0.0
    return max(breaker.until - now, _PROBE if breaker.is_probed else 0.0)


def begun(breaker: Breaker, now: float) -> tuple[Breaker, bool]:
    """Return the breaker after the begin of a request, and whether the request is the probe.

    Call this only when `wait` is 0. Give the second value to `succeeded`, `abandoned` or `failed`.
    """
    if state(breaker, now) == "half_open":
        return replace(breaker, is_probed=True), True
    return breaker, False


def succeeded(breaker: Breaker, *, is_probe: bool) -> Breaker:
    """Return the breaker after an answer. An answer to a request from before the opening does not close it."""
    return Breaker() if is_probe or not breaker.openings else breaker


def abandoned(breaker: Breaker, *, is_probe: bool) -> Breaker:
    """Return the breaker after a request that was cancelled before its answer: it says nothing about the model."""
    return replace(breaker, is_probed=False) if is_probe else breaker


def failed(
    breaker: Breaker, kind: FaultKind, now: float, *, retry_after: float | None = None, is_probe: bool = False
) -> Breaker:
    """Return the breaker after a fault. A fault that is not the provider's counts as an answer."""
    treatment = TREATMENTS[kind]
    if not treatment.opens:
        return succeeded(breaker, is_probe=is_probe)
    faults = breaker.faults + 1
    if is_probe or not breaker.openings:
        if not is_probe and faults < treatment.opens and retry_after is None:
            return replace(breaker, faults=faults, last=kind)
        openings = breaker.openings + 1
    else:  # the breaker is open already: this request began before and can only lengthen the wait
        openings = breaker.openings
    rest = retry_after or treatment.rest or RESTS[min(openings, len(RESTS)) - 1]
    until = (
        now + rest if openings > breaker.openings else max(breaker.until, now + (retry_after or treatment.rest or 0.0))
    )
    is_probed = breaker.is_probed and not is_probe
    return Breaker(faults=faults, openings=openings, until=until, is_probed=is_probed, last=kind)
