"""Reports of errors in an agent's modules, hooks and handlers: to the log, the events, the statistics and the
health."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from spar.errors import PhaseTimeoutError
from spar.events import ErrorOccurred
from spar.health.health import Health
from spar.hooks import HookContext, Outcome
from spar.loop.core import Core, Requests
from spar.loop.cycle import Cycle
from spar.loop.setup import Setup
from spar.observe.stats import Stats
from spar.ports.any_part import AgentControl
from spar.types import Fault, Phase, replace

#: The most programming errors whose stack is logged; the stacks of further ones are in the cycle records only.
MOST_STACKS = 1_000
#: Shared by all agents, since an empty set takes 216 bytes.
_NONE: frozenset[tuple[str, Any, Any]] = frozenset()


class ErrorReporter:
    """Reporter of one agent's faults. It also calls hooks about the agent, and asks the agent to pause or stop if the
    policy says so."""

    __slots__ = ("_agent", "_core", "_health", "_logged_stacks", "_requests", "_setup", "_stats")

    def __init__(self, core: Core, setup: Setup, stats: Stats, requests: Requests, health: Health,
                 agent: AgentControl) -> None:  # fmt: skip
        self._core, self._setup, self._stats, self._requests = core, setup, stats, requests
        self._health, self._agent = health, agent
        #: The programming errors whose stack was logged, by part, place and type.
        self._logged_stacks = _NONE

    def log_fault(self, write: Callable[..., None], message: str, fault: Fault, /, **fields: Any) -> None:
        """Write a log line about a fault. For an unexpected exception add its type and place, and its stack the first
        time."""
        where, stack = fault.detail.get("where"), fault.detail.get("traceback")
        if where:
            fields |= {"type": fault.detail.get("type"), "where": where}
            mistake = (fault.part, where, fault.detail.get("type"))
            if stack and mistake not in self._logged_stacks and len(self._logged_stacks) < MOST_STACKS:
                self._logged_stacks |= {mistake}
                fields["stack"] = stack
        write(message, agent=self._core.name, **fields)

    def _report(self, write: Callable[..., None], message: str, fault: Fault, cycle_id: str, session: str, policy: str,
                error: BaseException | None, /, **fields: Any) -> None:  # fmt: skip
        """Log a fault, and publish it."""
        self.log_fault(write, message, fault, session=session, cycle=cycle_id, reason=fault.message, **fields)
        self._core.events.publish(ErrorOccurred(cycle_id=cycle_id, phase=fault.phase, error=fault, policy=policy,
                                                exception=error, session=session))  # fmt: skip

    def phase_failed(self, cycle: Cycle, fault: Fault, error: BaseException, policy: str) -> None:
        """Report the failure of a phase, and request the pause or stop that its policy asks for."""
        write = self._core.log.warning  # a failure that is retried at once is only a warning
        if policy != "retry":
            cycle.error, write = error, self._core.log.error
            self._stats.errors_by_phase[fault.phase] += 1
        self._report(write, "phase failed", fault, cycle.id, cycle.session, policy, error, phase=fault.phase,
                     part=fault.part, fault=fault.kind, policy=policy)  # fmt: skip
        if isinstance(error, PhaseTimeoutError):
            alert = self._health.judge.alert("stuck", f"{fault.phase}: {fault.message}", cycle_id=cycle.id,
                                       session=cycle.session, phase=fault.phase)  # fmt: skip
            step = "abandon" if error.was_left_behind else "cancel"
            self._health.judge.ladder.step(step, fault.part, fault.message, alert.id, cycle.session)
        if policy == "pause":
            self._agent.request_pause()
        elif policy == "stop":
            self._agent.request_stop()

    def closing_failed(self, cycle: Cycle, error: BaseException) -> None:
        """Report that a step after a cycle's end failed. The other steps continue."""
        fault = Fault.of(error, part="loop", phase="loop")
        self._report(self._core.log.error, "consequence of a cycle failed", fault, cycle.id, cycle.session, "continue",
                     error)  # fmt: skip

    def note_failed(self, cycle: Cycle, phase: Phase, error: BaseException) -> None:
        """Report that a module's note about a cycle cannot be recorded. The cycle itself is not affected."""
        fault = Fault.of(error, part=self._setup.modules[phase].name, phase=phase)
        self._stats.errors_by_phase[phase] += 1
        self._report(self._core.log.warning, "note cannot be kept", fault, cycle.id, cycle.session, "continue", error,
                     phase=phase, part=fault.part)  # fmt: skip

    def row_refused(self, fault: Fault) -> None:
        """Report that the memory could not write a row of a cycle. It is an error of the phase that returned the row,
        and of no other session."""
        names = [module.name for phase, module in self._setup.modules.items() if phase == fault.phase]
        fault = replace(fault, part=names[0] if names else fault.part, phase=fault.phase or "loop")
        if fault.phase in self._stats.errors_by_phase:
            self._stats.errors_by_phase[fault.phase] += 1
        self._report(self._core.log.error, "row not stored", fault, fault.detail.get("cycle_id", ""),
                     fault.detail.get("session", ""), "continue", None, phase=fault.phase, part=fault.part)  # fmt: skip

    def hooks_failed(self, cycle_id: str, outcome: Outcome, session: str = "") -> None:
        """Report the faults of hooks."""
        for fault in outcome.faults:
            self._report(self._core.log.warning, "hook failed", fault, cycle_id, session, "continue", None,
                         hook=fault.part, point=fault.phase)  # fmt: skip

    def handler_failed(self, name: str, error: BaseException, turned_off: bool) -> None:
        """Report the failure of an event handler, and whether it was turned off for too many failures."""
        fault = Fault.of(error, part=name)
        self.log_fault(
            self._core.log.warning, "handler failed", fault, handler=name, reason=repr(error), turned_off=turned_off
        )
        if turned_off:
            self._health.judge.ladder.step("quarantine", name, f"too many failures in a row, the last: {error!r:.200}")

    async def ask(self, point: str, value: Any) -> None:
        """Call the hooks at a point about the agent itself. Their answers change nothing."""
        if point in self._core.hooks.used:
            await self.run_hooks(HookContext(point, self._core.name, value))

    async def run_hooks(self, ctx: HookContext) -> Outcome:
        """Run the hooks at a point, report their faults, and return the outcome. Operations on the agent that a hook
        calls become requests."""
        with self._requests.inside():
            outcome = await self._core.hooks.run(ctx)
        self.hooks_failed("", outcome)
        return outcome
