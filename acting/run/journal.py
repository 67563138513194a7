"""Writer of one batch's facts to the journal, so that the next process can go on with the batch.

A call with an effect starts only when the entry about its start is on disk; all calls that are ready at a time share
one flush. The entry about its end is written at once, and nothing waits for the disk: if it is lost in a crash, the
call is in doubt or is made again, as its effect allows.
"""

from __future__ import annotations

from collections.abc import Iterable

from acting.calls import Scope
from acting.run.call.attempt import Attempt
from acting.run.call.call_state import Step
from spar.errors import SparError
from spar.facts import AttemptStarted, CallAttached, CallDetached, CallEnded, CallsPlanned, Planned
from spar.failpoints import armed, crashpoint
from spar.protocols import CallJournal
from spar.types import Action, Call, CallResult

#: Statuses and reasons of ends that are written for calls that had not started too: they must not happen twice.
_ALWAYS = ("denied", "in_doubt", "steered")


class CallJournalWriter:
    """Writer of the facts of one batch: its action, and the starts and ends of its calls."""

    __slots__ = ("_journal", "_scope", "_work", "is_streamed")

    def __init__(self, journal: CallJournal, scope: Scope) -> None:
        # `_work` is the id under which the facts stand: that of the cycle, or the batch's own.
        self._journal, self._scope, self._work = journal, scope, scope.cycle_id or scope.key
        self.is_streamed = False  # whether calls arrive that the action did not contain when it began

    def begin(self, action: Action, *, is_streamed: bool) -> None:
        self.is_streamed = is_streamed
        self._journal.append(Planned(session=self._scope.session, cycle=self._work, action=action))

    def planned(self, call: Call) -> None:
        self._journal.append(CallsPlanned(session=self._scope.session, cycle=self._work, calls=(call,)))

    def start(self, step: Step) -> bool:
        """Write that a call starts; return whether the entry must be on disk before the call starts."""
        effect = step.entry.effect_of(step.params)
        values = step.params if step.references else None
        self._journal.append(AttemptStarted(session=self._scope.session, cycle=self._work, call=step.call.id, attempt=1,
                                            effect=effect, allowed=step.allowed or "auto", values=values))  # fmt: skip
        step.is_start_written = True
        return effect != "read"

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

    def detached(self, attempt: Attempt) -> None:
        """Write that a detached call runs on after its batch has ended."""
        work = Action((attempt.call,), id=self._scope.key, trust=self._scope.trust)
        self._journal.append(CallDetached(session=self._scope.session, cycle=self._work, action=work,
                                          effect=attempt.effect))  # fmt: skip

    def ended(self, step: Step, result: CallResult) -> None:
        """Write how a call ended, before its value is used. `parked` writes parked calls, after they are stored."""
        if result.reason in ("detached", "parked"):
            return
        if step.is_start_written or result.status in _ALWAYS or result.reason in _ALWAYS:
            self._ended(result)

    def attached(self, result: CallResult) -> None:
        """Write that a detached call has ended."""
        self._ended(result)
        self._journal.append(CallAttached(session=self._scope.session, cycle=self._work, call=result.call.id))

    def parked(self, steps: Iterable[Step]) -> None:
        """Write the ends of parked calls: they are stored elsewhere, and this batch does nothing more for them."""
        for step in steps:
            if step.result is not None:
                self._ended(step.result)

    def _ended(self, result: CallResult) -> None:
        self._journal.append(CallEnded(session=self._scope.session, cycle=self._work, result=result))
