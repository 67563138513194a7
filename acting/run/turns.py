"""Waits of an authorized call before its start: for its turn in plan order, then for the permits of its tool.

A call that waits has not started, and can still be skipped.
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
    """The turns of one batch's calls. `start` is called with a call that waited and now has all its permits."""

    _runtime: Runtime
    _order: StartOrder[Step]
    _stopping: Stopping
    _start: Callable[[Step], None]
    _session: str

    def enter(self, step: Step) -> None:
        """Put an arriving call into the lines of the start order."""
        unresolved = step.references if step.is_reading else ()
        lines = self._runtime.lines_of(step.entry, step.params, unresolved, self._session)
        if lines != ():
            self._order.enter(step, lines)

    def has_come(self, step: Step) -> bool:
        """Return whether the turn of an authorized call has come; if not, it waits until it is due."""
        order = self._order
        if step.lines is None:
            order.name(step, self._runtime.lines_of(step.entry, step.params, (), self._session) or ())
        return not (step.lines or order.waiting) or order.is_first(step)

    def let_pass(self, *, is_complete: bool) -> bool:
        """Let the next waiting call start before its turn if the calls before it wait for it; return whether it may.

        Without this, a batch would never end if the order of its plan contradicts its references.
        `is_complete` says that no more calls arrive and none runs: then the calls before it can wait for nothing else.
        """
        first = self._order.next
        if not is_complete and not all(reaches(other, [first]) for other in self._order.ahead_of(first)):
            return False
        self._order.let_pass(first)
        return True

    def admit(self, step: Step) -> bool:
        """Take the permits of a call whose turn has come; return False when it must wait for one."""
        step.permits = self._runtime.permits_of(step.entry, step.params, self._session)
        return self._take_permits(step)

    def release(self, step: Step) -> None:
        """Release the permits that a call holds."""
        held, step.passed = step.permits[: step.passed], 0
        for permit in held:
            permit.release()

    def _take_permits(self, step: Step) -> bool:
        """Take the permits that a call does not hold yet; return False when it must wait for one."""
        while step.passed < len(step.permits):
            if not step.permits[step.passed].take(self._on_permit, step):
                return False
            step.passed += 1
        if step.lines:
            self._order.begin(step)
        return True

    def _on_permit(self, step: Step) -> bool:
        """Go on with a call that has got the permit that it waited for; return False if it needs none any more."""
        if step.result is not None or self._stopping.is_cut_off:
            return False
        step.passed += 1
        if self._take_permits(step):
            self._start(step)
        return True
