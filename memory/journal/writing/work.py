"""Accepted work and what people decide about it: items, ends of runs, dead letters, calls in doubt.

Methods that are `async` return when their write is durable. Each is a transaction of its own, after all earlier rows,
in which it can turn out that an earlier fact rules it out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memory import audit, events
from memory.codec.columns import safe, sealed, seconds
from memory.codec.encoding import encoded
from memory.journal import replay, session_rows, statements
from memory.journal.writing.facts import item_row
from memory.journal.writing.handover import Committers, Handover, Writers, many
from spar import facts
from spar.clock import Clock
from spar.errors import ConflictError, TooLargeError
from spar.failpoints import armed, crashpoint
from spar.records.journal import DeadLetter, Item

if TYPE_CHECKING:
    from memory.engine.connection import Connection
    from memory.engine.session import DatabaseSession

#: Most bytes of an item; a larger one is refused.
MOST_ACCEPTED = 16 << 20

#: Writes the ends of items. One function for all modules, so that a batch can write successive rows together.
end_item = many(statements.END_ITEM)
_put_item, _amend, _doubt = map(many, (statements.PUT_ITEM, statements.AMEND, statements.DOUBT))


class AcceptedWork:
    """Writer of the items of accepted work and the calls in doubt.

    Args: open_cycles: names of agents, by cycle id. If a person decides that a call in doubt is made again, the cycle
        for that is added.
    """

    __slots__ = ("_clock", "_file", "_handover", "_open_cycles", "_rows")

    def __init__(self, file: DatabaseSession, handover: Handover, open_cycles: dict[str, str], clock: Clock) -> None:
        self._file, self._handover, self._rows = file, handover, handover.facts
        self._open_cycles, self._clock = open_cycles, clock

    @property
    def writers(self) -> Writers:
        """Return the method that writes each kind of fact."""
        return {
            facts.WorkChanged: self._work_changed,
            facts.RetryPlanned: self._work_changed,
            facts.RunAnswered: self._run_answered,
            facts.AnswerChanged: self._answer_changed,
            facts.PutAside: self._put_aside,
            facts.CallDoubted: self._call_doubted,
        }

    @property
    def committers(self) -> Committers:
        """Return the method that writes each kind of fact that an earlier one may rule out."""
        return {
            facts.WorkAccepted: self._work_accepted,
            facts.LetterAnswered: self._letter_answered,
            facts.DoubtAnswered: self._doubt_answered,
        }

    # -- items

    async def _work_accepted(self, fact: facts.WorkAccepted, agent: str) -> Item | None:
        item, use = fact.item, fact.use
        body, was_cut = encoded(item, limit=MOST_ACCEPTED)
        if was_cut:
            raise TooLargeError(
                f"{item.kind} {item.id!r} is too large to be accepted: at most {MOST_ACCEPTED >> 20} MiB"
            )
        row = item_row(agent, item, sealed(body))
        event = self._rows.fact("", item.id, "accepted", {"kind": item.kind})

        def write(connection: Connection) -> Item | None:
            known = replay.known_item(connection, agent, item.id, item.key)
            if known is None:
                events.append(connection, [event])
                connection.execute(statements.PUT_ITEM, row)
                if use is not None:
                    session_rows.use(connection, agent, item.session, use)
            if armed:
                crashpoint("sense.before_commit")
            return known

        if armed:
            crashpoint("sense.recv")
        self._file.demand_room()
        self._handover.hand_over()
        if self._handover.is_behind:  # the writer had no room for all earlier rows
            await self._handover.safe()
        known = await self._file.commit(write, len(row[-1]))
        if armed:
            crashpoint("sense.committed_before_ack")
        return known

    def _work_changed(self, fact: facts.WorkChanged | facts.RetryPlanned, agent: str) -> None:
        self._handover.add(_put_item, self._rows.item(agent, fact.item))

    def _run_answered(self, fact: facts.RunAnswered, agent: str) -> None:
        if not fact.cycle:
            self._handover.add_fact(self._rows.fact("", fact.run, "closed", {"outcome": "run ended"}))
        self._handover.add(end_item, ("done", self._rows.body({"answer": fact.answer}), safe(fact.run)))

    def _answer_changed(self, fact: facts.AnswerChanged, agent: str) -> None:
        self._handover.add(_amend, (self._rows.body({"answer": fact.answer}), safe(fact.run)))

    # -- dead letters

    def _put_aside(self, fact: facts.PutAside, agent: str) -> None:
        item = fact.item
        letter = DeadLetter(item.id, item, self._clock.now(), fact.reason)
        dead = {"reason": fact.reason, "attempts": item.attempts}
        self._handover.add_fact(self._rows.fact("", item.id, "dead", dead))
        self._handover.add(_put_item, self._rows.item(agent, item))
        self._handover.add(end_item, ("dead", self._rows.body(letter), safe(item.id)))

    async def _letter_answered(self, fact: facts.LetterAnswered, agent: str) -> None:
        letter, waits = fact.letter, fact.is_tried_again
        body = self._rows.body(letter.again) if waits else "{}"
        event = self._rows.fact("", letter.id, "resolved", {"waits": waits})

        def write(connection: Connection) -> None:
            connection.execute(statements.EXHUME, ("waiting" if waits else "done", body, safe(letter.id), safe(agent)))
            if not connection.changes():
                raise ConflictError(f"dead letter {letter.id!r} has been dealt with already")
            events.append(connection, [event])

        self._handover.hand_over()
        probe = "SELECT body FROM item WHERE id = ?", (safe(letter.id),)
        await self._file.commit(audit.audited(write, "dead_letter", self._clock, probe), len(body))

    # -- calls in doubt

    def _call_doubted(self, fact: facts.CallDoubted, agent: str) -> None:
        doubt = fact.doubt
        self._handover.add(_doubt, (safe(doubt.id), safe(agent), seconds(doubt.at), self._rows.body(doubt)))

    async def _doubt_answered(self, fact: facts.DoubtAnswered, agent: str) -> None:
        rows, doubt, again = self._rows, fact.doubt, fact.again
        body, answer = rows.body(doubt), {"answer": doubt.answer, "by": doubt.answered_by}
        following = [rows.fact(doubt.cycle_id, doubt.call.id, "resolved", answer)]
        open_cycle: tuple[Any, ...] | None = None
        if again is not None and again.action is not None:
            following += [rows.opened(again.cycle_id, again), *rows.planned(again.cycle_id, again.action, "")]
            open_cycle = rows.open_cycle(again.cycle_id, agent, again)

        def write(connection: Connection) -> None:
            connection.execute(statements.ANSWER, (doubt.answer, body, safe(doubt.id)))
            if not connection.changes():
                raise ConflictError(f"call {doubt.id!r} is not in doubt any more: it has been answered")
            events.append(connection, following)
            if open_cycle is not None:
                connection.execute(statements.OPEN, open_cycle)

        self._handover.hand_over()
        probe = "SELECT body FROM doubt WHERE id = ?", (safe(doubt.id),)
        await self._file.commit(audit.audited(write, "doubt", self._clock, probe), len(body))
        if again is not None:
            self._open_cycles[again.cycle_id] = agent
