"""The budgets of the agent as its calls meet them: a call that is ready takes one, or people are asked about it.

What a call takes is reserved when nothing else stands against it, kept together with its start (`begin`), and given
back if it never starts. Each further attempt takes one more. When nothing is left, a call may run
that people approve: that raises no limit, and is counted like any other. Grants do not count here: a permission for
all such calls is what a budget is there to bound.
"""

from __future__ import annotations

from typing import Any, Protocol

from acting.calls import Scope, fault
from acting.tooling.bound_tool import BoundTool
from spar.ports.budgets import BudgetRefusal, CallBudgets, CallReservation
from spar.types import Call, CallResult


class Payer(Protocol):
    """A call that is ready (`acting.run.call.call_state.Step`); `reservation` is what is reserved for it."""

    call: Call
    entry: BoundTool
    params: dict[str, object]
    reservation: CallReservation | None


class Spending:
    """Reservations for calls in the budgets of an agent; one for each executor of such an agent."""

    def __init__(self, budgets: CallBudgets[Any]) -> None:
        self.budgets = budgets

    def admits(self, payer: Payer, scope: Scope) -> bool:
        """Reserve what a call takes; False, and nobody is told, when there is not enough left."""
        if not self.budgets.limits_calls:
            return True
        if payer.reservation is None:
            payer.reservation = self.budgets.admit(_cycle(scope), is_effect=self._is_effect(payer.entry, payer.params))
        return payer.reservation is not None

    def against(self, payer: Payer, scope: Scope) -> str:
        """Reserve what a call takes; else tell everybody, and return what stands against it."""
        if payer.reservation is not None or not self.budgets.limits_calls:
            return ""
        is_effect = self._is_effect(payer.entry, payer.params)
        found = self.budgets.demand(_cycle(scope), is_effect=is_effect, what=payer.entry.name)
        if isinstance(found, BudgetRefusal):
            return found.sentence
        payer.reservation = found
        return ""

    def begin(self, payer: Payer, scope: Scope) -> None:
        """Use what was reserved for a call, which starts now.

        One that people let run, or put in the place of what was asked for, takes what it takes, whatever is left.
        """
        if not self.budgets.limits_calls:
            return
        reservation = payer.reservation
        if reservation is None or (
            payer.call.meta and reservation.is_effect != self._is_effect(payer.entry, payer.params)
        ):
            self.release(payer)
            is_effect = self._is_effect(payer.entry, payer.params)
            reservation = self.budgets.insist(_cycle(scope), is_effect=is_effect)
        payer.reservation = None
        self.budgets.use(reservation)

    def again(self, entry: BoundTool, params: dict[str, Any], scope: Scope) -> bool:
        """Take what a further attempt needs, which starts now; False when there is not enough left for one."""
        is_effect = self._is_effect(entry, params)
        found = self.budgets.demand(_cycle(scope), is_effect=is_effect, what=entry.name)
        if isinstance(found, BudgetRefusal):
            return False
        self.budgets.use(found)
        return True

    def release(self, payer: Payer) -> None:
        """Give back what was reserved for a call that did not start."""
        reservation, payer.reservation = payer.reservation, None
        if reservation is not None:
            self.budgets.release(reservation)

    def _is_effect(self, entry: BoundTool, params: dict[str, object]) -> bool:
        return self.budgets.limits_effects and entry.effect_of(params) != "read"


def refused(call: Call, why: str) -> CallResult:
    """The result of a call that there was not enough left for and nobody to be asked about."""
    return CallResult(call, "denied", "budget", fault=fault("budget", why, call.tool))


def _cycle(scope: Scope) -> str:
    """Return the id that a cycle's limits count by: a batch without a cycle is one of its own."""
    return scope.cycle_id or scope.key
