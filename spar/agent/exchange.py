"""Exchange of modules while an agent works: replaced by new ones, or restarted.

A new module is opened beside the old one, each session changes to it at the start of its next cycle, and the old one is
closed when no session uses it any more. The sense module is replaced while the standing session is held between two
cycles, since two sense modules would report the same things twice. An object that cannot be created a second time is
closed and opened again while no session uses it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from spar.agent.lifespan import CLOSE_WITHIN, Lifespan, Opening
from spar.errors import SparError
from spar.ports.any_part import Attachable, has, offers
from spar.ports.phases import OptionalActor
from spar.ports.planners import OptionalPlanner
from spar.protocols import Host
from spar.session.parts import SessionParts
from spar.types import PHASES, Phase

if TYPE_CHECKING:
    from spar.session.sessions import Session

#: Time limit (seconds) for a restart to wait until no session uses the module.
FREE_WITHIN = 15.0
#: The assumed duration (seconds) of a phase without a deadline, in the estimate of the longest cycle.
UNBOUNDED_PHASE = 600.0


class ModuleExchange:
    """Exchange of the modules of one agent, one at a time. Args: host: returns a part's services."""

    __slots__ = ("_core", "_health", "_holding", "_host", "_is_busy", "_lifespan", "_requests", "_setup")

    def __init__(self, parts: SessionParts, lifespan: Lifespan, host: Callable[[Any], Host]) -> None:
        self._host, self._core, self._setup, self._requests = host, parts.core, parts.setup, parts.requests
        self._holding, self._health, self._lifespan = parts.holding, parts.health, lifespan
        self._is_busy = False

    async def restart(self, phase: Phase, *, is_anew: bool = False) -> None:
        """Replace a failing module by a new one; if none can be created, close it and open it again.

        Args: is_anew: it forgets what it has in hand: another process has gone on with that.

        An error is reported, and the module stays as it is. During another exchange nothing is done, since its modules
        are new.
        """
        if self._is_busy:
            return
        name = self._setup.modules[phase].name
        self._is_busy = True
        try:
            # Only the old sense module knows what it reported lately.
            if self._lifespan.make is not None and phase != "sense":
                await self._replace({phase: self._lifespan.make(phase)})
            else:
                await self._reopen(phase, is_anew=is_anew)
        except Exception as error:
            self._core.report(self._core.log.error, "restart failed", error, name, phase, "restart")
        finally:
            self._is_busy = False
            self._requests.notify()

    async def _reopen(self, phase: Phase, *, is_anew: bool) -> None:
        """Close a module and open it again while no session uses it. Raises: SparError; errors of opening."""
        module = self._setup.modules[phase]
        opening = next((opening for opening in self._lifespan.openings if opening.part is module.part), None)
        if opening is None or not opening.is_needed:
            return
        until = self._core.clock.monotonic() + FREE_WITHIN
        while at_work := self._holding.at_work(is_sensing=phase == "sense"):
            if not await self._holding.wait_until_unused(at_work, until):
                raise SparError(f"{module.name} is at work for other sessions and was not restarted")
        self._holding.stop_cycles(is_sensing=phase == "sense")
        try:
            await opening.close(CLOSE_WITHIN)
            if is_anew and offers(opening.part, Attachable):
                opening.part.attach(self._host(opening.part))
            await self._lifespan.open_in_time(opening, self._setup.modules)
        finally:
            self._holding.resume_cycles()

    async def replace(self, parts: Mapping[Phase, Any]) -> None:
        """Replace modules. Raises: errors of opening; the old modules then stay."""
        while self._is_busy:
            await self._requests.change()
        self._is_busy = True
        try:
            await self._replace(parts)
        finally:
            self._is_busy = False

    async def _replace(self, parts: Mapping[Phase, Any]) -> None:
        """Open new modules beside the old ones and use them. Sessions finish their current cycle with the old ones."""
        old, before = self._setup.modules, self._lifespan.openings
        new = self._lifespan.modules_of({phase: parts.get(phase, module.part) for phase, module in old.items()})
        if all(new[phase] is old[phase] for phase in old):
            return
        openings = self._lifespan.openings_of(new)
        async with self._holding.between_cycles(is_needed=new["sense"] is not old["sense"]):
            opened: list[Opening] = []
            try:
                if self._core.state in ("running", "pausing", "paused"):
                    added = [opening for opening in openings if opening not in before]
                    await self._lifespan.open_parts(added, new, opened)
            except BaseException:
                await self._lifespan.close_parts(opened)
                raise
            _pass_on_degradation(old["plan"].part, new["plan"].part)
            self._lifespan.use(new, openings)
            self._health.models.forget({id(opening.part) for opening in openings})
            self._setup.steps = {phase: self._lifespan.step_of(phase) for phase in PHASES}
        if left := [opening for opening in before if opening not in openings]:
            users = self._holding.at_work()
            if new["act"] is not old["act"]:
                self._holding.require_change(users)
            closing = self._requests.in_background(self._close_replaced(left, users), "closing of former modules of")
            self._lifespan.former = (*(task for task in self._lifespan.former if not task.done()), closing)
            if not users:
                await asyncio.wait([closing])

    async def _close_replaced(self, openings: Sequence[Opening], users: set[Session]) -> None:
        """Close replaced modules once no session uses them, and report sessions that take too long."""
        within = self._longest_cycle()
        if not await self._holding.wait_until_unused(users, self._core.clock.monotonic() + within):
            names = ", ".join(opening.name for opening in openings)
            sessions = ", ".join(sorted(session.key for session in users)[:5])
            reason = f"replaced {within:g} s ago and still at work for {sessions}: left behind until that ends"
            self._health.judge.ladder.step("abandon", names, reason)
            await self._holding.wait_until_unused(users, float("inf"))
        await self._lifespan.close_parts(openings)
        if self._core.state in ("running", "pausing", "paused"):  # otherwise the next start reads the open calls
            await self._core.request(self._setup.modules["act"], OptionalActor.take_over)

    def _longest_cycle(self) -> float:
        """Return the seconds that a cycle may take by the deadlines of its phases."""
        return sum(
            step.attempts * (step.timeout if step.timeout < float("inf") else UNBOUNDED_PHASE) + step.grace
            for step in self._setup.steps.values()
        )


def _pass_on_degradation(old: Any, new: Any) -> None:
    """Degrade a new planner for the same reason as the old one."""
    reason = old.degraded_reason if has(old, OptionalPlanner.degraded_reason) else None
    if old is not new and reason and has(new, OptionalPlanner.degrade):
        new.degrade(reason)
