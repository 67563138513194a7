"""Journal of calls that tells the facts of calls too, for an agent whose facts are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from spar import facts
from spar.records.journal import CallJournal
from spar.types import Action, Call, CallResult

if TYPE_CHECKING:
    from tests.shadow import Shadow


class ToldCalls:
    """Journal in which an actor records its calls. Each call of a current cycle is told as a fact, too."""

    __slots__ = ("_journal", "_ledger")

    def __init__(self, journal: CallJournal, ledger: Shadow) -> None:
        self._journal, self._ledger = journal, ledger

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)

    def acting(self, work: str, action: Action, effect: str = "") -> None:
        """Record that an action is about to be executed."""
        self._journal.acting(work, action, effect)
        if session := self._ledger.session_with(work):
            calls = tuple(call.id for call in action.calls)
            self._ledger.tell(facts.Planned(session=session, cycle=work, calls=calls))

    def planned(self, work: str, call: Call) -> None:
        """Record a call that the action did not contain when it began."""
        self._journal.planned(work, call)
        if session := self._ledger.session_with(work):
            self._ledger.tell(facts.CallPlanned(session=session, cycle=work, call=call.id))

    def started(
        self, work: str, call_id: str, attempt: int, effect: str, allowed: str, values: Mapping[str, Any] | None = None
    ) -> None:
        """Record that an attempt of a call begins."""
        self._journal.started(work, call_id, attempt, effect, allowed, values)
        if session := self._ledger.session_with(work):
            self._ledger.tell(facts.AttemptStarted(session=session, cycle=work, call=call_id, attempt=attempt,
                                                effect=effect, allowed=allowed))  # fmt: skip

    def ended(self, work: str, result: CallResult) -> None:
        """Record that a call has ended."""
        self._journal.ended(work, result)
        if session := self._ledger.session_with(work):
            self._ledger.tell(facts.CallEnded(session=session, cycle=work, call=result.call.id, status=result.status,
                                              reason=result.reason))  # fmt: skip

    def detached(self, work: str, action: Action, effect: str, session: str) -> None:
        """Record that the only call of an action continues without its cycle."""
        self._journal.detached(work, action, effect, session)
        call = action.calls[0].id
        self._ledger.tell(facts.CallDetached(session=session, cycle=work, call=call, effect=effect))

    def attached(self, work: str, call_id: str) -> None:
        """Record that a detached call has ended."""
        self._journal.attached(work, call_id)
        for state in list(self._ledger.states.values()):
            if f"{work}/{call_id}" in state.detached:
                self._ledger.tell(facts.CallAttached(session=state.key, cycle=work, call=call_id))
