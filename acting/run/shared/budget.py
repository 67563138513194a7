"""Budgets for calls: each ready call reserves its part of the agent's budgets, or people are asked about it.

A budget limits how many calls, or calls with an effect, may start in a cycle or in a time; the *part* of a call is one
of these. A call reserves its part when nothing else prevents it from running; the part is used with its start
(`begin`), and released if the call never starts. Each further attempt takes another part. When nothing is left, a call
may run if people approve it: that raises no limit, and the call counts like any other. A grant is not such an approval:
a budget has to limit granted calls too.
"""

from __future__ import annotations

from typing import Any, Protocol

from acting.calls import Scope
from acting.tooling.bound_tool import BoundTool
from spar.ports.budgets import BudgetRefusal, CallBudgets, CallReservation
from spar.types import Call


class Payer(Protocol):
    """A ready call, such as a `Step`; `reservation` is the part of the budgets that is reserved for it."""

    call: Call
    entry: BoundTool
    params: dict[str, object]
    reservation: CallReservation | None


class Spending:
    """Reservations for calls in the budgets of one agent."""

    def __init__(self, budgets: CallBudgets[Any]) -> None:
        self.budgets = budgets

    def reserve(self, payer: Payer, scope: Scope) -> str:
        """Reserve the part of a call.

        If not enough is left, publish that, and return the sentence about it; else "".
        """
        if payer.reservation is not None or not self.budgets.limits_calls:
            return ""
        is_effect = self._is_effect(payer.entry, payer.params)
        answer = self.budgets.demand(_cycle(scope), is_effect=is_effect, what=payer.entry.name)
        if isinstance(answer, BudgetRefusal):
            return answer.sentence
        payer.reservation = answer
        return ""

    def begin(self, payer: Payer, scope: Scope) -> None:
        """Use the part that was reserved for a call, which starts now.

        A call that people approved or replaced takes its part even if nothing is left.
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
        """Take the part of a further attempt, which starts now; return False when not enough is left."""
        is_effect = self._is_effect(entry, params)
        answer = self.budgets.demand(_cycle(scope), is_effect=is_effect, what=entry.name)
        if isinstance(answer, BudgetRefusal):
            return False
        self.budgets.use(answer)
        return True

    def release(self, payer: Payer) -> None:
        """Release the reservation of a call that did not start."""
        reservation, payer.reservation = payer.reservation, None
        if reservation is not None:
            self.budgets.release(reservation)

    def _is_effect(self, entry: BoundTool, params: dict[str, object]) -> bool:
        return self.budgets.limits_effects and entry.effect_of(params) != "read"


def _cycle(scope: Scope) -> str:
    """Return the id by which the limits of a cycle count; a batch without a cycle counts as a cycle of its own."""
    return scope.cycle_id or scope.key
