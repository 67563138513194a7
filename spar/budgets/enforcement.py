"""Consequences of used up budgets: the agent slows down, plans by its rules without models, and in the end is paused.

All end by themselves once the budget is renewed. A person's decision takes precedence: an agent that somebody resumes
continues until a budget is used up again. The executor asks people about calls. `attach` attaches the budgets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from spar.attaching import Attaching
from spar.budgets.budgets import Budgets
from spar.events import ErrorOccurred, StateChanged
from spar.loop.core import Core
from spar.loop.setup import Setup
from spar.observe.logs import get_logger
from spar.ports.any_part import AgentControl, has
from spar.ports.budgets import NO_MEASURES, Measure
from spar.ports.planners import OptionalPlanner
from spar.types import Fault

if TYPE_CHECKING:
    from spar.health.health import Health

log = get_logger("spar.budgets")

#: Kind of the alert about a pause.
ALERT: Final = "budget"


class Enforcement:
    """Function that carries out the measures of one agent's budgets; called with the present ones at each change."""

    __slots__ = ("_agent", "_core", "_degraded", "_health", "_measures", "_setup", "_watch")

    def __init__(self, core: Core, setup: Setup, health: Health, agent: AgentControl) -> None:
        self._core, self._setup, self._health, self._agent = core, setup, health, agent
        self._measures = NO_MEASURES
        self._degraded = ""  # the reason that the planner got
        self._watch: Callable[[], None] | None = None  # unsubscribes from state changes; set during a pause

    def __call__(self, measures: Mapping[Measure, str]) -> None:
        before, self._measures = self._measures, dict(measures)
        for measure in measures.keys() - before.keys():
            log.warning("budget measure", agent=self._core.name, measure=measure, reason=measures[measure])
        for measure in before.keys() - measures.keys():
            log.info("budget measure ended", agent=self._core.name, measure=measure)
        self._setup.is_slow = "slow" in measures
        if ("degrade" in measures) != ("degrade" in before):
            self._degrade(measures.get("degrade", ""))
        if ("pause" in measures) != ("pause" in before):
            self._pause(measures.get("pause", ""))

    def _degrade(self, reason: str) -> None:
        """Make the planner do without models, if it can; "": use them again, unless it is degraded for another reason
        by now."""
        module = self._setup.modules["plan"]
        part: Any = module.part
        former_reason, self._degraded = self._degraded, reason
        try:
            if reason:
                if has(part, OptionalPlanner.degrade):
                    part.degrade(reason)
            elif has(part, OptionalPlanner.restore) and (
                not has(part, OptionalPlanner.degraded_reason) or part.degraded_reason == former_reason
            ):
                part.restore()
        except Exception as error:
            fault = Fault.of(error, part=module.name, phase="plan")
            self._core.events.publish(
                ErrorOccurred(cycle_id="", phase="plan", error=fault, policy="continue", exception=error)
            )

    def _pause(self, reason: str) -> None:
        if reason:
            self._watch = self._core.events.subscribe(StateChanged, self._changed)
            self._health.judge.alert(ALERT, f"paused until it is renewed: {reason}", severity="critical")
            self._agent.request_pause(outlives_process=False)
            return
        self._health.recovered(ALERT)
        if self._end_watch() and self._core.state in ("pausing", "paused"):
            self._agent.resume_renewed()

    def _end_watch(self) -> bool:
        """Stop watching the agent's state; return whether the agent was still paused by this."""
        watch, self._watch = self._watch, None
        if watch is not None:
            watch()
        return watch is not None

    def _changed(self, event: StateChanged) -> None:
        """Request the pause again after a start; end the watch after a person's resume."""
        if event.new == "running":
            if event.old in ("pausing", "paused"):
                self._end_watch()
            else:  # later, when the sessions have begun: they look at the state before their next cycle
                request_pause = partial(self._agent.request_pause, outlives_process=False)
                asyncio.get_running_loop().call_soon(request_pause)


def attach(agent: Attaching) -> Budgets:
    """Attach the budgets of the settings, and return them."""
    core, services = agent.core, agent.services
    enforce = Enforcement(core, services.setup, services.health, services.control)
    budgets = Budgets(core.settings.budgets.limits, core.clock, core.events, enforce)

    def refresh_later() -> None:
        services.in_background(budgets.refresh(), "reading of the used budgets of")

    async def load() -> None:
        from spar.ports.nodes import nodes_of

        journal = core.ledger.journal
        read = journal.views.spent if nodes_of(services.memory) is not None else None
        budgets.open(journal, await journal.views.spent(), read, refresh_later)

    agent.load(load)
    agent.close(budgets.close)
    agent.applies(lambda settings: budgets.apply(settings.budgets.limits))
    return budgets
