"""Takes calls to their start: their turn in the order of the plan, then the permits of their tool.

While a call waits for either it has not started, and can still be skipped.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from acting.graph.deadlock import reaches
from acting.run.call.call_state import Step
from acting.run.shared.runtime import Runtime
from acting.run.start_order import StartOrder
from acting.run.stopping import Stopping


class Turns(Struct, eq=False):
    """The calls of one batch on the way to their start. `start` is called with one that waited and has all permits."""

    _runtime: Runtime
    _order: StartOrder[Step]
    _stopping: Stopping
    _start: Callable[[Step], None]

    def enter(self, step: Step) -> None:
        """Let a call that arrives take its place among those that are to start in the order of the plan."""
        lines = self._runtime.lines_of(step.entry, step.params, step.found if step.is_reading else ())
        if lines != ():
            self._order.enter(step, lines)

    def has_come(self, step: Step) -> bool:
        """Return whether it is the turn of a call that may run; if not, it waits until it is due."""
        order = self._order
        if step.lines is None:
            order.name(step, self._runtime.lines_of(step.entry, step.params, ()) or ())
        return not (step.lines or order.waiting) or order.is_first(step)

    def let_pass(self, *, is_complete: bool) -> bool:
        """Let the next call start before its turn if those before it wait for it; return whether it may.

        Once no more calls arrive (`is_complete`) and none runs, they can wait for nothing else.
        """
        first = self._order.next
        if not is_complete and not all(reaches(other, [first]) for other in self._order.ahead_of(first)):
            return False
        self._order.let(first)
        return True

    def admit(self, step: Step) -> bool:
        """Take the permits of a call whose turn has come; return False when it must wait for one."""
        step.permits = self._runtime.permits_of(step.entry, step.params)
        return self._pass(step)

    def release(self, step: Step) -> None:
        """Give back the permits that a call holds."""
        held, step.passed = step.permits[: step.passed], 0
        for permit in held:
            permit.release()

    def _pass(self, step: Step) -> bool:
        """Take the permits that it does not hold yet; return False when it must wait for one."""
        while step.passed < len(step.permits):
            if not step.permits[step.passed].take(self._opened, step):
                return False
            step.passed += 1
        if step.lines:
            self._order.begin(step)
        return True

    def _opened(self, step: Step) -> bool:
        """Go on with a call that has been given the permit it waited for; return whether it still wants it."""
        if step.result is not None or self._stopping.is_cut_off:
            return False
        step.passed += 1
        if self._pass(step):
            self._start(step)
        return True
