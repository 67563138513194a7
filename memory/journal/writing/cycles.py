"""Cycles: begun, gone on with and ended, and all that becomes durable together with the end of one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from memory import cycle_log, transcripts
from memory.codec.columns import safe
from memory.experiences import credit
from memory.experiences import rows as experiences
from memory.journal import session_rows, statements
from memory.journal.in_flight import NOTED, InFlightFile, trait
from memory.journal.writing.batch import Write, many
from memory.journal.writing.handover import Handover
from memory.journal.writing.state import SmallState
from memory.journal.writing.work import AcceptedWork, end_item
from spar.failpoints import crashpoint
from spar.records.journal import Closing, RowChange, Unfinished
from spar.records.session import Reset
from spar.records.transcript import Entry
from spar.types import Credit, Fault, Feedback, Perception

if TYPE_CHECKING:
    from apsw import Connection

#: Bytes that a cycle on the tape counts for until it is encoded, in the writer's thread.
_ABOUT_A_CYCLE = 4_000

_close = many(statements.CLOSE)
_credit: Write = credit.count
_judge: Write = credit.take


class OpenCycles:
    """Writes the beginnings and ends of cycles.

    Args: open_cycles: by cycle, the name of its agent; hand: notes what is in hand; tell: hears, in the writer's
        thread, of entries that are not kept.

    `live` are the agents that have used the journal since it was opened.
    """

    def __init__(
        self, handover: Handover, work: AcceptedWork, state: SmallState, open_cycles: dict[str, str],
        hand: InFlightFile, tell: Callable[[Fault], None],
    ) -> None:  # fmt: skip
        self._handover, self._facts, self._work, self._state = handover, handover.facts, work, state
        self._open_cycles, self._hand, self._tell = open_cycles, hand, tell
        self.live: frozenset[str] = frozenset()
        #: Kept, so that it is the same function for each entry.
        self._transcribe: Write = self._append

    def opened(
        self,
        agent: str,
        cycle_id: str,
        perceptions: Sequence[Perception],
        items: Sequence[str],
        make: Callable[[], Unfinished],
        cursors: Mapping[str, Any],
        changes: Iterable[RowChange] = (),
    ) -> None:
        """Note that a cycle begins on this: from here on what it perceived is the journal's, and the sensors' cursors
        and rows go on.

        `make` is asked for what is to be kept of it only if it does not end in the same moment.
        """
        self._hand.take(cycle_id, [*items, *[trait(each) for each in perceptions[:NOTED] if each.id not in items]])
        self._handover.begin(cycle_id, agent, make)
        self._open_cycles[cycle_id] = agent
        if agent not in self.live:
            self.live |= {agent}
        if cursors or changes:
            self._state.take_up(cursors, changes)
        crashpoint("cycle.opened")

    def closed(self, agent: str, cycle_id: str, closing: Closing) -> None:
        """Note that a cycle has ended: its results become durable in one transaction."""
        handover = self._handover
        waiting = self._state.waiting.pop(cycle_id, ())
        if cycle_id in handover.begun and not closing.leaves_a_trace and not waiting:
            self.end(cycle_id)  # it began and ended in one moment, and nothing came of it
            return
        record, is_alone = closing.record, cycle_id in handover.begun and closing.is_alone
        row: Any = None
        if record is not None:
            row = cycle_log.prepared(record, is_end=is_alone, besides=closing.besides if is_alone else None)
        if not (is_alone and type(row) is cycle_log.CycleRow):  # else its row on the tape is all that there is of it
            told: dict[str, Any] = {"outcome": closing.outcome, "done": closing.done}
            if record is not None:
                told |= {"agent": agent, "took": {"cycle": record.duration, **record.phases}}
            if closing.besides is not None:
                told["besides"] = closing.besides
            handover.note(self._facts.fact(cycle_id, closing.run_id or "", "closed", told))
        if record is not None:
            handover.add(cycle_log.write, row, _ABOUT_A_CYCLE)
            for experience in closing.experiences:
                row = experiences.row(experience)
                handover.add(experiences.insert, row, row.size)
        self.judged(closing.credits, closing.feedback)
        if closing.entries:
            session = closing.session or ("" if record is None else record.session)
            for entry in transcripts.rows(agent, session, closing.run_id or "", closing.entries):
                handover.add(self._transcribe, entry, entry[5])
        for item in closing.failed:
            self._work.keep(agent, item)
        if closing.past is not None:
            self._work.keep(agent, closing.past)
        for item_id in closing.done:
            handover.add(end_item, ("done", "{}", safe(item_id)))
        if closing.run is not None:
            handover.add(end_item, ("done", self._facts.body({"answer": closing.run}), safe(closing.run_id)))
        for part in closing.parts:
            self._work.run_ended(part.run_id, part)
        if closing.changes:
            self._state.change(closing.changes)
        if closing.again is None:
            if waiting:
                self._state.write(waiting)
            self.end(cycle_id)
        else:
            again = closing.again
            handover.begin(cycle_id, agent, lambda: again)
        crashpoint("cycle.closed")

    def end(self, work: str) -> None:
        """Note that a cycle or a detached call is not open any more."""
        self._open_cycles.pop(work, None)
        self._hand.drop(work)
        if self._handover.begun.pop(work, None) is None:
            self._handover.add(_close, (safe(work),))

    def judged(self, credits: Iterable[Credit], feedback: Iterable[Feedback]) -> None:
        """Count what helped and harmed, and change what later words say, together with what is told in the same
        moment. Raises: ContractError when it cannot be taken."""
        given, words = credit.checked(credits), credit.checked(feedback)
        for each in given:
            self._handover.add(_credit, each)
        for word in words:
            self._handover.add(_judge, word)

    def reset(
        self,
        agent: str,
        reset: Reset,
        entries: Sequence[Entry] = (),
        answers: Mapping[str, Any] | None = None,
        cut: Unfinished | None = None,
    ) -> None:
        """Note that a conversation has ended, and with it the work that was accepted for it: all in one transaction."""
        handover = self._handover
        for run_id, answer in (answers or {}).items():
            self._work.run_ended(run_id, answer)
        if cut is not None and cut.cycle_id in handover.begun:
            handover.begin(cut.cycle_id, agent, lambda: cut)
        elif cut is not None:
            handover.open(cut.cycle_id, agent, cut)
        for entry in transcripts.rows(agent, reset.session, reset.run_id, entries):
            handover.add(self._transcribe, entry, entry[5])
        handover.add(session_rows.reset, session_rows.reset_row(agent, reset))
        self._state.audit("session.reset")

    def _append(self, connection: Connection, given: list[Any]) -> None:
        for refusal in transcripts.append(connection, given):
            self._tell(Fault("superseded", str(refusal), "memory", retryable=False))
