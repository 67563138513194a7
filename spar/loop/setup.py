"""Modules of an agent and the settings of their phases, as they apply to cycles that begin now."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from spar.loop.cycle import Step
from spar.loop.module_adapter import Module
from spar.loop.pacing import Pace
from spar.ports.optional import HasTools, offers
from spar.types import Phase


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
