"""Modules of an agent and the settings of their phases and of the pace, as they apply to cycles that begin now.

The wait between two cycles is a pure function of the result of the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from msgspec import Struct

from spar.checks import shorten
from spar.errors import ConfigError
from spar.loop.cycle import Step
from spar.loop.module_adapter import Module
from spar.ports.optional import HasTools, offers
from spar.types import Phase

Interval = float | Literal["adaptive", "off"]

#: The longest wait that a plan may propose in the place of a shorter fixed interval (seconds).
LONGEST_LOOK = 3600.0


class Pace(Struct, frozen=True):
    """Settings of the pace, in seconds.

    `interval` is a fixed number of seconds, "adaptive" (shorter after more perceptions) or "off" (a cycle begins only
    when something is pushed). `min_interval` and `max_interval` bound "adaptive". Under every interval, unfinished work
    goes on after `min_interval`. After a cycle with `busy_count` perceptions or more, "adaptive" waits `min_interval`.
    """

    interval: Interval = 1.0
    min_interval: float = 0.5
    max_interval: float = 5.0
    busy_count: int = 10


def check_interval(interval: Any) -> None:
    """Check the setting `loop_interval`. Raises: ConfigError."""
    is_number = isinstance(interval, (int, float)) and not isinstance(interval, bool)
    if interval not in ("adaptive", "off") and not (is_number and 0 <= interval < float("inf")):
        raise ConfigError(
            f'loop_interval = {shorten(interval)}: must be a number of seconds >= 0, "adaptive" or "off"',
            path=("agent", "loop_interval"),
        )


class Setup:
    """Current modules and settings, by phase. `modules` and `steps` are replaced as a whole when they change.

    Attributes: pace: settings of the wait between two cycles. plan_when_idle: whether a cycle without perceptions calls
        the planner too. is_slow: whether each wait is at least the longest of the pace. perceive: method of the sense
        module that accepts pushed perceptions; None if it has none. settled: method of the sense module that is called
        once a cycle has dealt with all perceptions that the module delivered; None if it has none.
    """

    __slots__ = ("is_slow", "modules", "pace", "perceive", "plan_when_idle", "settled", "steps")

    def __init__(self) -> None:
        self.modules: dict[Phase, Module] = {}
        self.steps: dict[Phase, Step] = {}
        self.pace = Pace()
        self.plan_when_idle = self.is_slow = False
        self.perceive: Callable[..., Any] | None = None
        self.settled: Callable[[], Any] | None = None

    def paced(self, wait: float | None) -> float | None:
        """Return the wait before the next cycle (seconds; None: until something comes), lengthened while slowed
        down."""
        return max(wait, self.pace.max_interval) if wait is not None and self.is_slow else wait

    def tools(self) -> Mapping[str, Any]:
        """Return the tools that the actor can call now, by name; empty when the actor does not say."""
        actor = self.modules["act"].part
        tools = actor.tools if offers(actor, HasTools) else None
        return tools if isinstance(tools, Mapping) else {}


def pause_after(pace: Pace, perceptions: int, *, busy: bool = False, next_look: float | None = None,
                planned_look: float | None = None) -> float | None:  # fmt: skip
    """Return the seconds from the end of a cycle to the beginning of the next; None: wait until something is pushed.

    Unfinished work (`busy`: an open run, calls to resume, failed work) goes on after `min_interval`, or after the fixed
    interval if that is shorter. A proposal can shorten the wait under "adaptive" and lengthen it under a fixed
    interval; "off" and 0 ignore it.

    Args: next_look: seconds that the reflection or else the plan proposed; planned_look: seconds that the plan
        proposed.
    """
    if busy:
        return pace.min_interval if isinstance(pace.interval, str) else min(float(pace.interval), pace.min_interval)
    interval = pace.interval
    if isinstance(interval, str):
        if interval == "off":
            return None
        usual = _adaptive(pace, perceptions)
        return usual if next_look is None else min(usual, max(pace.min_interval, next_look))  # NaN is the minimum
    usual = float(interval)
    if usual == 0 or planned_look is None or not planned_look > usual:
        return usual
    return min(planned_look, max(usual, LONGEST_LOOK))


def _adaptive(pace: Pace, perceptions: int) -> float:
    share = min(perceptions / pace.busy_count, 1.0)
    return pace.max_interval - share * (pace.max_interval - pace.min_interval)


def expected_interval(pace: Pace) -> float | None:
    """Return the longest wait in seconds without a failure or a proposal; None under "off".

    The health check calls an agent stalled when it has made no cycle for a multiple of this time.
    """
    if pace.interval == "off":
        return None
    return pace.max_interval if pace.interval == "adaptive" else max(float(pace.interval), 0.0)
