"""What went wrong in an agent's modules, hooks and handlers, said everywhere it is to be said."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from spar.cycle import Cycle
from spar.endings import ENDS_PROCESS
from spar.errors import PhaseTimeoutError
from spar.events import ErrorOccurred
from spar.hooks import HookContext, Outcome
from spar.logs import get_logger
from spar.types import Fault

if TYPE_CHECKING:
    from spar.agent import Agent

log = get_logger("spar.agent")
#: Mistakes that are remembered as told; the stacks of further ones stand on the tape only.
MOST_TOLD = 1_000
R = TypeVar("R")
S = TypeVar("S")


class Reports:
    """Tells of one agent's faults; asks its hooks what is about the agent itself."""

    __slots__ = ("_agent", "_told")

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._told: set[tuple[str, Any, Any]] = set()  # mistakes whose stack the log has, by part, place and type

    def say(self, write: Callable[..., None], message: str, fault: Fault, /, **fields: Any) -> None:
        """Write a line about a fault: with type and place of what nobody raised on purpose, and once with its stack."""
        where, stack = fault.detail.get("where"), fault.detail.get("traceback")
        if where:
            fields |= {"type": fault.detail.get("type"), "where": where}
            mistake = (fault.part, where, fault.detail.get("type"))
            if stack and mistake not in self._told and len(self._told) < MOST_TOLD:
                self._told.add(mistake)
                fields["stack"] = stack
        write(message, agent=self._agent.name, **fields)

    def phase_failed(self, cycle: Cycle, fault: Fault, error: BaseException, policy: str) -> None:
        """Say that a phase failed, everywhere it is to be said, and do what its policy asks of the agent."""
        agent = self._agent
        if policy != "retry":
            cycle.error = error
        write = log.warning if policy == "retry" else log.error  # what is tried again at once has not failed yet
        self.say(write, "phase failed", fault, session=cycle.session, cycle=cycle.id, phase=fault.phase,
                 part=fault.part, fault=fault.kind, reason=fault.message, policy=policy)  # fmt: skip
        if policy != "retry":
            agent.account.errors_by_phase[fault.phase] += 1
        agent.events.publish(
            ErrorOccurred(cycle_id=cycle.id, phase=fault.phase, error=fault, policy=policy, exception=error,
                          session=cycle.session)
        )  # fmt: skip
        if isinstance(error, PhaseTimeoutError):
            alert = agent.health.alert("stuck", f"{fault.phase}: {fault.message}", cycle_id=cycle.id,
                                       session=cycle.session, phase=fault.phase)  # fmt: skip
            step = "abandon" if error.was_left_behind else "cancel"
            agent.health.step(step, fault.part, fault.message, alert.id, cycle.session)
        if policy == "pause":
            agent.lifecycle.request_pause()
        elif policy == "stop":
            agent.lifecycle.request_stop()

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
        self.say(log.error, "consequence of a cycle failed", fault, cycle=cycle.id, reason=fault.message)
        self._agent.events.publish(
            ErrorOccurred(cycle_id=cycle.id, phase="loop", error=fault, policy="continue", exception=error,
                          session=cycle.session)
        )  # fmt: skip

    def note_failed(self, cycle: Cycle, fault: Fault, error: BaseException) -> None:
        """Say that a module's note of a cycle cannot be kept; the cycle is what it was."""
        self.say(log.warning, "note cannot be kept", fault, cycle=cycle.id, phase=fault.phase, part=fault.part,
                 reason=fault.message)  # fmt: skip
        self._agent.account.errors_by_phase[fault.phase] += 1
        self._agent.events.publish(
            ErrorOccurred(cycle_id=cycle.id, phase=fault.phase, error=fault, policy="continue", exception=error,
                          session=cycle.session)
        )  # fmt: skip

    def hooks_failed(self, cycle_id: str, outcome: Outcome, session: str = "") -> None:
        agent = self._agent
        for fault in outcome.faults:
            self.say(log.warning, "hook failed", fault, session=session, cycle=cycle_id, hook=fault.part,
                     point=fault.phase, reason=fault.message)  # fmt: skip
            agent.events.publish(
                ErrorOccurred(cycle_id=cycle_id, phase=fault.phase, error=fault, policy="continue", session=session)
            )

    def handler_failed(self, name: str, error: BaseException, turned_off: bool) -> None:
        fault = Fault.of(error, part=name)
        self.say(log.warning, "handler failed", fault, handler=name, reason=repr(error), turned_off=turned_off)
        if turned_off:
            self._agent.health.step("quarantine", name, f"too many failures in a row, the last: {error!r:.200}")

    async def ask(self, point: str, value: Any) -> None:
        """Ask the hooks at a point that is about the agent itself; what they answer changes nothing."""
        if self._agent.hooks.at(point):
            await self.asked(HookContext(point, self._agent.name, value))

    async def asked(self, ctx: HookContext) -> Outcome:
        """What the hooks say, their faults reported; what they ask of the agent are requests."""
        agent = self._agent
        with agent.requests.inside():
            outcome = await agent.hooks.run(ctx)
        self.hooks_failed("", outcome)
        return outcome
