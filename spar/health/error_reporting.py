"""Reports of errors in an agent's modules, hooks and handlers, to everybody who must know."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from spar.errors import ENDS_PROCESS, PhaseTimeoutError
from spar.events import ErrorOccurred
from spar.health.health import Health
from spar.hooks import HookContext, Outcome
from spar.loop.core import Core
from spar.loop.cycle import Cycle
from spar.loop.setup import Setup
from spar.loop.tasks import Requests
from spar.observe.stats import Stats
from spar.ports.agent import AgentControl
from spar.types import Fault, Phase

#: Mistakes that are remembered as told; the stacks of further ones stand on the tape only.
MOST_TOLD = 1_000
#: One for all agents, since an empty set takes 216 bytes.
_NONE: frozenset[tuple[str, Any, Any]] = frozenset()
R = TypeVar("R")
S = TypeVar("S")


class ErrorReporter:
    """Tells of one agent's faults; asks its hooks what is about the agent itself, and of it what policies say."""

    __slots__ = ("_agent", "_core", "_health", "_requests", "_setup", "_stats", "_told")

    def __init__(self, core: Core, setup: Setup, stats: Stats, requests: Requests, health: Health,
                 agent: AgentControl) -> None:  # fmt: skip
        self._core, self._setup, self._stats, self._requests = core, setup, stats, requests
        self._health, self._agent = health, agent
        #: Mistakes whose stack the log has, by part, place and type.
        self._told = _NONE

    def say(self, write: Callable[..., None], message: str, fault: Fault, /, **fields: Any) -> None:
        """Write a line about a fault: with type and place of what nobody raised on purpose, and once with its stack."""
        where, stack = fault.detail.get("where"), fault.detail.get("traceback")
        if where:
            fields |= {"type": fault.detail.get("type"), "where": where}
            mistake = (fault.part, where, fault.detail.get("type"))
            if stack and mistake not in self._told and len(self._told) < MOST_TOLD:
                self._told |= {mistake}
                fields["stack"] = stack
        write(message, agent=self._core.name, **fields)

    def phase_failed(self, cycle: Cycle, fault: Fault, error: BaseException, policy: str) -> None:
        """Say that a phase failed, everywhere it is to be said, and do what its policy asks of the agent."""
        log = self._core.log
        if policy != "retry":
            cycle.error = error
        write = log.warning if policy == "retry" else log.error  # what is tried again at once has not failed yet
        self.say(write, "phase failed", fault, session=cycle.session, cycle=cycle.id, phase=fault.phase,
                 part=fault.part, fault=fault.kind, reason=fault.message, policy=policy)  # fmt: skip
        if policy != "retry":
            self._stats.errors_by_phase[fault.phase] += 1
        self._core.events.publish(
            ErrorOccurred(cycle_id=cycle.id, phase=fault.phase, error=fault, policy=policy, exception=error,
                          session=cycle.session)
        )  # fmt: skip
        if isinstance(error, PhaseTimeoutError):
            alert = self._health.alert("stuck", f"{fault.phase}: {fault.message}", cycle_id=cycle.id,
                                       session=cycle.session, phase=fault.phase)  # fmt: skip
            step = "abandon" if error.was_left_behind else "cancel"
            self._health.ladder.step(step, fault.part, fault.message, alert.id, cycle.session)
        if policy == "pause":
            self._agent.request_pause()
        elif policy == "stop":
            self._agent.request_stop()

    def guarded(self, cycle: Cycle, work: Callable[..., R], *given: Any, otherwise: S | None = None) -> R | S | None:
        """Return what a consequence of a cycle's end brings; `otherwise`, reported, when it raises."""
        try:
            return work(*given)
        except ENDS_PROCESS:
            raise
        except BaseException as error:
            self.closing_failed(cycle, error)
            return otherwise

    def closing_failed(self, cycle: Cycle, error: BaseException) -> None:
        """Say that a consequence of a cycle's end did not come; everything else goes on."""
        fault = Fault.of(error, part="loop", phase="loop")
        self.say(self._core.log.error, "consequence of a cycle failed", fault, cycle=cycle.id, reason=fault.message)
        self._core.events.publish(
            ErrorOccurred(cycle_id=cycle.id, phase="loop", error=fault, policy="continue", exception=error,
                          session=cycle.session)
        )  # fmt: skip

    def note_failed(self, cycle: Cycle, phase: Phase, error: BaseException) -> None:
        """Say that a module's note of a cycle cannot be kept; the cycle is what it was."""
        fault = Fault.of(error, part=self._setup.modules[phase].name, phase=phase)
        self.say(self._core.log.warning, "note cannot be kept", fault, cycle=cycle.id, phase=fault.phase,
                 part=fault.part, reason=fault.message)  # fmt: skip
        self._stats.errors_by_phase[fault.phase] += 1
        self._core.events.publish(
            ErrorOccurred(cycle_id=cycle.id, phase=fault.phase, error=fault, policy="continue", exception=error,
                          session=cycle.session)
        )  # fmt: skip

    def hooks_failed(self, cycle_id: str, outcome: Outcome, session: str = "") -> None:
        for fault in outcome.faults:
            self.say(self._core.log.warning, "hook failed", fault, session=session, cycle=cycle_id, hook=fault.part,
                     point=fault.phase, reason=fault.message)  # fmt: skip
            self._core.events.publish(
                ErrorOccurred(cycle_id=cycle_id, phase=fault.phase, error=fault, policy="continue", session=session)
            )

    def handler_failed(self, name: str, error: BaseException, turned_off: bool) -> None:
        fault = Fault.of(error, part=name)
        self.say(
            self._core.log.warning, "handler failed", fault, handler=name, reason=repr(error), turned_off=turned_off
        )
        if turned_off:
            self._health.ladder.step("quarantine", name, f"too many failures in a row, the last: {error!r:.200}")

    async def ask(self, point: str, value: Any) -> None:
        """Ask the hooks at a point that is about the agent itself; what they answer changes nothing."""
        if point in self._core.hooks.used:
            await self.asked(HookContext(point, self._core.name, value))

    async def asked(self, ctx: HookContext) -> Outcome:
        """Run the hooks of a point and report their faults; what they ask of the agent are requests."""
        with self._requests.inside():
            outcome = await self._core.hooks.run(ctx)
        self.hooks_failed("", outcome)
        return outcome
