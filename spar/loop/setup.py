"""The modules of an agent and the terms that they work under, as they are in force for the cycles that begin now."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from spar.loop.cycle import Step
from spar.loop.module_adapter import Module
from spar.loop.pacing import Pace
from spar.ports.optional import HasTools, offers
from spar.types import Phase


class Setup:
    """Today's modules, by their phase, and the terms of each phase; both are replaced as a whole when they change.

    Attributes: perceive, settled: how the sense module takes in what was pushed and hears that what it handed over has
        been seen through, if it can.
    """

    __slots__ = ("modules", "pace", "perceive", "plan_when_idle", "settled", "steps")

    def __init__(self) -> None:
        self.modules: dict[Phase, Module] = {}
        self.steps: dict[Phase, Step] = {}
        self.pace = Pace()
        self.plan_when_idle = False
        self.perceive: Callable[..., Any] | None = None
        self.settled: Callable[[], Any] | None = None

    def tools(self) -> Mapping[str, Any]:
        """Return the tools that the actor can call now, by name; nothing where it does not say."""
        actor = self.modules["act"].part
        return actor.tools if offers(actor, HasTools) and isinstance(actor.tools, Mapping) else {}
