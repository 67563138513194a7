"""Beginnings and ends of cycles, with all rows that become durable together with an end."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from memory import cycle_log, own_rows, transcripts
from memory.codec.columns import safe
from memory.experiences import credit
from memory.experiences import rows as experiences
from memory.journal import session_rows, statements
from memory.journal.in_flight import MOST_NOTED, InFlightFile
from memory.journal.writing.handover import NO_ORIGIN, Handover, Origin, Write, Writers, many
from memory.journal.writing.state import SmallState
from memory.journal.writing.work import end_item
from spar import facts
from spar.failpoints import armed, crashpoint
from spar.records.journal import trait
from spar.types import Credit, Fault, Feedback

if TYPE_CHECKING:
    from memory.engine.connection import Connection

#: Assumed bytes of a row of the cycle log; the writer's thread encodes it later.
_ABOUT_A_CYCLE = 4_000

_close = many(statements.CLOSE)
_credit: Write = credit.count
_judge: Write = credit.take


class OpenCycles:
    """Writer of the beginnings and ends of cycles.

    Args: open_cycles: names of agents, by cycle id; hand: notes the names of the current work; report: called in the
        writer's thread for transcript entries that are refused.

    `live` are the names of the agents that have used the journal since it was opened.
    """

    def __init__(
        self, handover: Handover, state: SmallState, open_cycles: dict[str, str],
        hand: InFlightFile, report: Callable[[Fault], None],
    ) -> None:  # fmt: skip
        self._handover, self._rows, self._state = handover, handover.facts, state
        self._open_cycles, self._hand, self._report = open_cycles, hand, report
        self.live: frozenset[str] = frozenset()
        #: One function object for all entries, since a batch compares functions by identity.
        self._transcribe: Write = self._append

    @property
    def writers(self) -> Writers:
        """Return the method that writes each kind of fact."""
        return {
            facts.CycleOpened: self._opened,
            facts.CycleReopened: self._opened,
            facts.CycleWritten: self._recorded,
            facts.ConversationReset: self._reset,
            facts.Judged: self._judged,
        }

    def _opened(self, fact: facts.CycleOpened, agent: str) -> None:
        cycle_id, items = fact.cycle, fact.items
        polled = [perception for perception in fact.perceptions[:MOST_NOTED] if perception.id not in items]
        self._hand.take(cycle_id, [*items, *[trait(perception) for perception in polled]])
        self._handover.begin(cycle_id, agent, fact)
        self._open_cycles[cycle_id] = agent
        if agent not in self.live:
            self.live |= {agent}
        if fact.cursors or fact.changes:
            self._state.take_up(fact.cursors, fact.changes)
        if armed:
            crashpoint("cycle.opened")

    def _recorded(self, fact: facts.CycleWritten, agent: str) -> None:
        # A cycle is alone if it began in the same batch and its end changes nothing but the cycle log and the counts.
        # Its row in the cycle log then also stands for its fact `closed`.
        cycle_id, closing = fact.cycle, fact.closing
        handover, waiting = self._handover, self._state.waiting
        if cycle_id in handover.begun and not closing.leaves_a_trace and cycle_id not in waiting:
            self.end(cycle_id)  # the cycle began and ended in one batch and has no consequences: nothing is written
            return
        record, is_alone = closing.record, cycle_id in handover.begun and closing.is_alone
        session = closing.session or ("" if record is None else record.session)
        origin = Origin(session, cycle_id)
        learnt = origin._replace(phase="reflect")
        # What may be refused is encoded first: nothing is added if it is.
        experience_rows = [experiences.row(experience) for experience in closing.experiences] if record else ()
        judgements = credit.checked(closing.credits), credit.checked(closing.feedback)
        entries = transcripts.rows(agent, session, closing.run_id or "", closing.entries) if closing.entries else ()
        changes = own_rows.statements(closing.changes)
        row: Any = None
        if record is not None:
            row = cycle_log.prepared(record, is_end=is_alone, besides=closing.besides if is_alone else None)
        if not (is_alone and type(row) is cycle_log.CycleRow):  # else its row in the cycle log contains the end
            end: dict[str, Any] = {"outcome": closing.outcome, "done": closing.done}
            if record is not None:
                end |= {"agent": agent, "took": {"cycle": record.duration, **record.phases}}
            if closing.besides is not None:
                end["besides"] = closing.besides
            handover.add_fact(self._rows.fact(cycle_id, closing.run_id or "", "closed", end))
        if record is not None:
            handover.add(cycle_log.write, row, _ABOUT_A_CYCLE, origin)
            for experience in experience_rows:
                handover.add(experiences.insert, experience, experience.size, learnt)
        self._judge(*judgements, learnt)
        for entry in entries:
            handover.add(self._transcribe, entry, entry[5], origin)
        for item_id in closing.done:
            handover.add(end_item, ("done", "{}", safe(item_id)), 0, origin)
        self._state.apply(changes, learnt)
        if closing.again is None:
            self._state.write(waiting.pop(cycle_id, ()), origin)
            self.end(cycle_id)
        else:
            waiting.pop(cycle_id, None)
            handover.begin(cycle_id, agent, closing.again)
        if armed:
            crashpoint("cycle.closed")

    def end(self, work: str) -> None:
        """Write that a cycle or a detached call is not open any more."""
        self._open_cycles.pop(work, None)
        self._hand.drop(work)
        if self._handover.begun.pop(work, None) is None:
            self._handover.add(_close, (safe(work),))

    def _judged(self, fact: facts.Judged, agent: str) -> None:
        self._judge(credit.checked(fact.credits), credit.checked(fact.feedback), NO_ORIGIN)

    def _judge(self, credits: Iterable[Credit], feedback: Iterable[Feedback], origin: Origin) -> None:
        for help_or_harm in credits:
            self._handover.add(_credit, help_or_harm, 0, origin)
        for judgement in feedback:
            self._handover.add(_judge, judgement, 0, origin)

    def _reset(self, fact: facts.ConversationReset, agent: str) -> None:
        handover, reset, cut = self._handover, fact.reset, fact.cut
        if cut is not None and cut.cycle_id in handover.begun:
            handover.begin(cut.cycle_id, agent, cut)
        elif cut is not None:
            handover.open(cut.cycle_id, agent, cut)
        for entry in transcripts.rows(agent, reset.session, reset.run_id, fact.entries):
            handover.add(self._transcribe, entry, entry[5])
        handover.add(session_rows.reset, session_rows.reset_row(agent, reset))
        self._state.audit("session.reset")

    def _append(self, connection: Connection, entries: list[Any]) -> None:
        for refusal in transcripts.append(connection, entries):
            self._report(Fault("superseded", str(refusal), "memory", retryable=False))
