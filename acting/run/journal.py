"""Writer of one batch's facts to the journal, so that the next process can go on with the batch.

A call with an effect starts only when the entry about its start is on disk; all calls that are ready at a time share
one flush. The entry about its end is written at once, and nothing waits for the disk: if it is lost in a crash, the
call is in doubt or is made again, as its effect allows.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from msgspec import Struct

from acting.run.call.call_state import Step
from acting.tooling.context import Scope, fault
from acting.tooling.limits import Go, Hold
from spar.errors import SparError
from spar.facts import AttemptStarted, CallAttached, CallDetached, CallEnded, CallsPlanned, Planned
from spar.failpoints import armed, crashpoint
from spar.protocols import CallJournal
from spar.types import Action, Call, CallResult, copy_with

#: Statuses and reasons of ends that are written for calls that had not started too: they must not happen twice.
_ALWAYS = ("denied", "in_doubt", "steered")


class CallJournalWriter(Struct, Hold, eq=False):
    """Writer of the facts of one batch: its action, and the starts and ends of its calls. The hold before a start.

    Args: spawn: runs a task of the batch.
    """

    _journal: CallJournal
    _scope: Scope
    _spawn: Callable[[Coroutine[Any, Any, None], str], object]
    _waiting: list[tuple[Step, Go]] = []  # calls that the next flush makes free
    is_streamed: bool = False  # whether calls arrive that the action did not contain when it began

    def begin(self, action: Action, *, is_streamed: bool) -> None:
        """Write the action; the calls of a stream are written when they arrive."""
        self.is_streamed = is_streamed
        if is_streamed or action.id != self._scope.key:
            action = copy_with(action, id=self._scope.key, calls=() if is_streamed else action.calls)
        self._tell(Planned, action=action)

    def planned(self, call: Call) -> None:
        self._tell(CallsPlanned, calls=(call,))

    def take(self, step: Step, go: Go, /) -> bool:
        """Write that a call starts; one with an effect waits until that is on disk, together with others."""
        if not self.start(step):
            return True
        self._waiting.append((step, go))
        if len(self._waiting) == 1:
            self._spawn(self._flush(), "starts on disk")
        return False

    def start(self, step: Step) -> bool:
        """Write that a call starts; return whether the entry must be on disk before the call starts."""
        effect = step.entry.effect or step.effect
        values = step.params if step.references else None
        self._tell(AttemptStarted, call=step.call.id, attempt=1, effect=effect,
                   allowed=step.question.allowed or "auto", values=values)  # fmt: skip
        step.is_start_written = True
        return effect != "read"

    async def _flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        try:
            why = await self.safe()
        except BaseException:
            for step, _ in waiting:
                step.is_start_written = False  # nothing is known of the entry on disk
            raise
        for step, go in waiting:
            go(step, step.failed(fault("io", why, step.call.tool)) if why else None)

    async def safe(self) -> str:
        """Wait until the written starts are on disk. Return why these calls cannot start, "" if they can."""
        if armed:
            crashpoint("act.intent_txn_open")
        try:
            await self._journal.safe()
        except SparError as error:
            return f"it could not be written down that it starts: {error}"
        if armed:
            crashpoint("act.intent_committed")
        return ""

    def detached(self, step: Step) -> None:
        """Write that a detached call runs on after its batch has ended."""
        work = Action((step.call,), id=self._scope.key, trust=self._scope.trust)
        self._tell(CallDetached, action=work, effect=step.effect)

    def ended(self, step: Step, result: CallResult) -> None:
        """Write how a call ended, before its value is used. `parked` writes parked calls, after they are stored."""
        if result.reason in ("detached", "parked"):
            return
        if step.is_start_written or result.status in _ALWAYS or result.reason in _ALWAYS:
            self._tell(CallEnded, result=result)

    def attached(self, result: CallResult) -> None:
        """Write that a detached call has ended."""
        self._tell(CallEnded, result=result)
        self._tell(CallAttached, call=result.call.id)

    def parked(self, steps: Iterable[Step]) -> None:
        """Write the ends of parked calls: they are stored elsewhere, and this batch does nothing more for them."""
        for step in steps:
            if step.result is not None:
                self._tell(CallEnded, result=step.result)

    def _tell(self, kind: Any, **fields: Any) -> None:
        scope = self._scope
        self._journal.append(kind(session=scope.session, cycle=scope.cycle_id or scope.key, **fields))
