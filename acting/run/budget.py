"""Budgets for calls: each ready call reserves its part of the agent's budgets, or people are asked about it.

A budget limits how many calls, or calls with an effect, may start in a cycle or in a time; the *part* of a call is one
of these. A call reserves its part when nothing else prevents it from running; the part is used with its start, and
released if the call never starts. Each further attempt takes another part. When nothing is left, a call may run if
people approve it: that raises no limit, and the call counts like any other. A grant is not such an approval: a budget
has to limit granted calls too.
"""

from __future__ import annotations

from typing import Any

from acting.run.call.call_state import Step
from acting.tooling.limits import Go, Hold
from spar.ports.budgets import BudgetRefusal, CallBudgets


class Spending(Hold):
    """The budgets of one agent, as the hold that uses the part of a call; it holds nothing.

    What was used is on disk before the call can have an effect, since it stands before the start there.
    """

    __slots__ = ("budgets",)

    def __init__(self, budgets: CallBudgets[Any]) -> None:
        self.budgets = budgets

    def reserve(self, step: Step) -> str:
        """Reserve the part of a ready call.

        If not enough is left, publish that, and return the sentence about it; else "".
        """
        if step.reservation is not None or not self.budgets.limits_calls:
            return ""
        answer = self._demand(step)
        if isinstance(answer, BudgetRefusal):
            return answer.sentence
        step.reservation = answer
        return ""

    def take(self, step: Step, go: Go | None = None, /) -> bool:
        """Use the part that was reserved for a call, which starts now.

        A call that people approved or replaced takes its part even if nothing is left.
        """
        if not self.budgets.limits_calls:
            return True
        reservation = step.reservation
        if reservation is None or (step.call.meta and reservation.is_effect != self._is_effect(step)):
            self.release(step)
            reservation = self.budgets.insist(step.scope.work, is_effect=self._is_effect(step))
        step.reservation = None
        self.budgets.use(reservation)
        return True

    def again(self, step: Step) -> bool:
        """Use the part of a further attempt, which starts now; return False when not enough is left."""
        answer = self._demand(step)
        if isinstance(answer, BudgetRefusal):
            return False
        self.budgets.use(answer)
        return True

    def release(self, step: Step, /) -> None:
        """Release the reservation of a call that did not start."""
        reservation, step.reservation = step.reservation, None
        if reservation is not None:
            self.budgets.release(reservation)

    def _demand(self, step: Step) -> Any:
        return self.budgets.demand(step.scope.work, is_effect=self._is_effect(step), what=step.entry.name)

    def _is_effect(self, step: Step) -> bool:
        return self.budgets.limits_effects and step.effect != "read"
