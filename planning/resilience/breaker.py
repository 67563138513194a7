"""A circuit breaker: whether a model may be asked now, as a value that changes by what happens. Pure.

Closed, it may. After as many faults in a row as their kind tolerates it is open, and nobody asks for a while: as long
as the provider wants, half an hour where people have to do something, else 30 s, 1 minute, 5 minutes, more each time
that it opens again. Then it is half open: one may try (the probe), and decides.

Source: M. Nygard, "Release It!", 2nd ed. 2018, chapter 5; the steps are those of OpenClaw's model failover.
"""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from planning.resilience.provider_errors import TREATMENTS, FaultKind

State = Literal["closed", "open", "half_open"]

#: Seconds that it stays open, by how often in a row it has opened.
RESTS: Final = (30.0, 60.0, 300.0)
#: Seconds after which it is worth asking whether the probe has come back.
_PROBE: Final = 5.0


class Breaker(Struct, frozen=True):
    """State of a circuit breaker. `until` is a moment of the monotonic clock; the counts are in a row."""

    faults: int = 0
    openings: int = 0
    until: float = 0.0
    is_probed: bool = False
    last: FaultKind | None = None


def state(breaker: Breaker, now: float) -> State:
    """Return the state at this moment."""
    if not breaker.openings:
        return "closed"
    return "open" if now < breaker.until else "half_open"


def wait(breaker: Breaker, now: float) -> float:
    """Seconds until it may be asked; 0 when it may be asked now."""
    if not breaker.openings:
        return 0.0
    return max(breaker.until - now, _PROBE if breaker.is_probed else 0.0)


def begun(breaker: Breaker, now: float) -> tuple[Breaker, bool]:
    """Somebody asks, who may (`wait` is 0); and whether that is the probe, to be handed in with how it ended."""
    if state(breaker, now) == "half_open":
        return replace(breaker, is_probed=True), True
    return breaker, False


def succeeded(breaker: Breaker, *, is_probe: bool) -> Breaker:
    """It answered. Who had begun before it opened does not close it."""
    return Breaker() if is_probe or not breaker.openings else breaker


def abandoned(breaker: Breaker, *, is_probe: bool) -> Breaker:
    """Return the breaker after a request that was given up before an answer: nothing was learnt."""
    return replace(breaker, is_probed=False) if is_probe else breaker


def failed(
    breaker: Breaker, kind: FaultKind, now: float, *, retry_after: float | None = None, is_probe: bool = False
) -> Breaker:
    """It did not answer as it should. A fault that is not the provider's counts as an answer."""
    treatment = TREATMENTS[kind]
    if not treatment.opens:
        return succeeded(breaker, is_probe=is_probe)
    faults = breaker.faults + 1
    if is_probe or not breaker.openings:
        if not is_probe and faults < treatment.opens and retry_after is None:
            return replace(breaker, faults=faults, last=kind)
        openings = breaker.openings + 1
    else:  # it was open already: this one had begun before, and only tells how long to wait
        openings = breaker.openings
    rest = retry_after or treatment.rest or RESTS[min(openings, len(RESTS)) - 1]
    until = (
        now + rest if openings > breaker.openings else max(breaker.until, now + (retry_after or treatment.rest or 0.0))
    )
    probed = breaker.is_probed and not is_probe
    return Breaker(faults=faults, openings=openings, until=until, is_probed=probed, last=kind)
