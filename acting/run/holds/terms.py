"""The holds of each call, composed once for each tool: a tool without terms has none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from msgspec import Struct, field

from acting.calls import Scope
from acting.run.background import Detach
from acting.run.call.call_state import Step
from acting.run.holds.order import Order, Resources
from acting.run.holds.rule import Confirm, Redeem, Rules, Spawn
from acting.run.journal import CallJournalWriter
from acting.run.runtime import Runtime
from acting.tooling.bound_tool import BoundTool
from acting.tooling.limits import Hold, Slots
from spar.data.blackboard import Board
from spar.types import ASKED, CallResult, Fault

#: Keys in the meta of a call that may give it other holds than the usual calls of its tool.
RARE_KEYS: Final = frozenset({ASKED, "_detach", "_parked"})


class Terms(Struct, eq=False):
    """The holds of the calls of one batch.

    Args: ended_well: returns whether the call with an id has ended well; spawn: runs a task of the batch; begin: begins
        an attempt; end: starts no further call of the batch.
    """

    _runtime: Runtime
    _scope: Scope
    _board: Board
    _confirm: Confirm | None
    _order: Order
    _writer: CallJournalWriter | None
    _ended_well: Callable[[str], bool]
    _spawn: Spawn
    _begin: Callable[[Step], CallResult | None]
    _end: Callable[[str, str, Fault | None], None]
    rules: Rules | None = None  # made for the first call that needs them
    _parallel: Slots | None = None
    usual: dict[BoundTool, tuple[Hold, ...]] = field(default_factory=dict)  # the holds of calls without rare keys

    def of(self, step: Step, *, is_usual: bool) -> tuple[Hold, ...]:
        """Return the holds of a call in the order in which it takes them.

        Args: is_usual: whether all usual calls of its tool have the same ones.
        """
        runtime = self._runtime
        is_unruled = runtime.hooks is None and runtime.approvals is None and runtime.spending is None
        holds = tuple(self._after_rules(step))
        if not is_unruled or not step.entry.is_let or step.late is not None or ASKED in step.call.meta:
            self.rules = self.rules or Rules(runtime, self._scope, self._board, self._confirm, self._ended_well,
                                             self._spawn, self._after_rules, self._end)  # fmt: skip
            holds = (self.rules, *holds)
        if is_usual:
            self.usual[step.entry] = holds
        return holds

    def _after_rules(self, step: Step) -> Iterator[Hold]:
        runtime, entry = self._runtime, step.entry
        if not entry.is_free or runtime.is_sequential:
            yield self._order
        redeem = None
        if step.question.approval_id and runtime.approvals is not None:
            redeem = Redeem(runtime.approvals, self._spawn)
        is_detached = entry.detaches(step.call)
        if is_detached:
            if redeem is not None:
                yield redeem
            yield Detach(runtime, self._board, self._writer, self._begin)
        if entry.slots.limit:
            yield entry.slots
        if entry.has_resources:
            yield Resources(runtime.resource, self._scope.session)
        if rate := runtime.rate_of(entry):
            yield rate
        uses = [hold for hold in (redeem, runtime.spending, self._writer) if hold is not None]
        if (uses or runtime.approvals is not None) and not is_detached:
            # No more calls than may run at once use their approval or budget, or are written to the disk as started.
            self._parallel = self._parallel or Slots(runtime.limits.max_parallel)
            yield self._parallel
            yield from uses

    def free_slots(self, step: Step) -> None:
        """Give back the slots of a call whose tool has ended: others may use them while hooks look at its result."""
        taken = [hold for hold in step.holds if isinstance(hold, Slots) and hold is not self._parallel]
        step.holds = tuple([hold for hold in step.holds if hold not in taken])
        step.passed = len(step.holds)
        for slots in taken:
            slots.release(step)
