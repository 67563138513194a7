"""Accepted work, and what people decide about it: items, the ends of runs, dead letters, calls in doubt.

What somebody must be able to rely on when it returns is a transaction of its own, after what was told before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memory import audit, events
from memory.codec.columns import safe, sealed, seconds
from memory.codec.encoding import encoded
from memory.journal import replay, session_rows, statements
from memory.journal.writing.batch import many
from memory.journal.writing.facts import item_row
from memory.journal.writing.handover import Handover
from spar.clock import Clock
from spar.errors import ConflictError, TooLargeError
from spar.failpoints import crashpoint
from spar.records.journal import DeadLetter, Doubt, Item, Unfinished
from spar.records.session import SessionUse
from spar.types import replace

if TYPE_CHECKING:
    from apsw import Connection

    from memory.sqlite.session import DatabaseSession

#: Bytes of work that is accepted; what is larger is refused.
MOST_ACCEPTED = 16 << 20

#: The write that an item is through: one for all, so that those that follow one another are made at once.
end_item = many(statements.END_ITEM)
_put_item, _amend, _doubt = map(many, (statements.PUT_ITEM, statements.AMEND, statements.DOUBT))


class AcceptedWork:
    """Writes the items of accepted work and the calls in doubt.

    Args: open_cycles: by cycle, the name of its agent; a call that is made again opens its cycle there.
    """

    __slots__ = ("_clock", "_facts", "_file", "_handover", "_open_cycles")

    def __init__(self, file: DatabaseSession, handover: Handover, open_cycles: dict[str, str], clock: Clock) -> None:
        self._file, self._handover, self._facts = file, handover, handover.facts
        self._open_cycles, self._clock = open_cycles, clock

    # -- items

    async def accept(self, agent: str, item: Item, use: SessionUse | None = None) -> tuple[Item, bool]:
        """Keep an item of work, and with it the use of its session; both are on disk when this returns.

        Returns: the item that is kept, which for a known id or key is the earlier one, and whether it is new.
        Raises: TooLargeError; SparError when the store is closed.
        """
        body, was_cut = encoded(item, limit=MOST_ACCEPTED)
        if was_cut:
            raise TooLargeError(
                f"{item.kind} {item.id!r} is too large to be accepted: at most {MOST_ACCEPTED >> 20} MiB"
            )
        row = item_row(agent, item, sealed(body))
        told = self._facts.fact("", item.id, "accepted", {"kind": item.kind})

        def write(connection: Connection) -> Item | None:
            known = replay.known_item(connection, agent, item.id, item.key)
            if known is None:
                events.append(connection, [told])
                connection.execute(statements.PUT_ITEM, row)
                if use is not None:
                    session_rows.use(connection, agent, item.session, use)
            crashpoint("sense.before_commit")
            return known

        crashpoint("sense.recv")
        self._file.demand_room()
        self._handover.hand_over()
        known = await self._file.commit(write, len(row[-1]))
        crashpoint("sense.committed_before_ack")
        return (item, True) if known is None else (known, False)

    def keep(self, agent: str, item: Item) -> None:
        """Keep what is known of a waiting item, or a new one, without waiting for that."""
        self._handover.add(_put_item, self._facts.item(agent, item))

    def run_ended(self, run_id: str, answer: Any) -> None:
        """Note that a run is over without a cycle of its own having told so."""
        self._handover.note(self._facts.fact("", run_id, "closed", {"outcome": "run ended"}))
        self._handover.add(end_item, ("done", self._facts.body({"answer": answer}), safe(run_id)))

    def amended(self, run_id: str, answer: Any) -> None:
        """Note that hooks have changed the answer of a run after its last cycle had told it."""
        self._handover.add(_amend, (self._facts.body({"answer": answer}), safe(run_id)))

    # -- dead letters

    def bury(self, agent: str, item: Item, reason: str) -> DeadLetter:
        """Put an item aside for people to look at."""
        letter = DeadLetter(item.id, item, self._clock.now(), reason)
        self._handover.note(self._facts.fact("", item.id, "dead", {"reason": reason, "attempts": item.attempts}))
        self.keep(agent, item)
        self._handover.add(end_item, ("dead", self._facts.body(letter), safe(item.id)))
        return letter

    async def exhume(self, agent: str, letter: DeadLetter, *, waits: bool) -> Item:
        """Deal with a dead letter: it waits again as if it were new, or is through for good.

        Raises: ConflictError when it has been dealt with.
        """
        item = replace(letter.item, attempts=0, fault=None, due_at=None)
        body = self._facts.body(item) if waits else "{}"
        told = self._facts.fact("", letter.id, "resolved", {"waits": waits})

        def write(connection: Connection) -> None:
            connection.execute(statements.EXHUME, ("waiting" if waits else "done", body, safe(letter.id), safe(agent)))
            if not connection.changes():
                raise ConflictError(f"dead letter {letter.id!r} has been dealt with already")
            events.append(connection, [told])

        self._handover.hand_over()
        probe = "SELECT body FROM item WHERE id = ?", (safe(letter.id),)
        await self._file.commit(audit.audited(write, "dead_letter", self._clock, probe), len(body))
        return item

    # -- calls in doubt

    def doubted(self, agent: str, doubt: Doubt) -> None:
        """Note a call in doubt: nobody knows whether it had its effect."""
        self._handover.add(_doubt, (safe(doubt.id), safe(agent), seconds(doubt.at), self._facts.body(doubt)))

    async def answer(self, agent: str, doubt: Doubt, again: Unfinished | None = None) -> None:
        """Keep what somebody says of a call in doubt, and with it the cycle that is to make it again.

        Raises: ConflictError when it has been answered.
        """
        facts = self._facts
        body, said = facts.body(doubt), {"answer": doubt.answer, "by": doubt.answered_by}
        told = [facts.fact(doubt.cycle_id, doubt.call.id, "resolved", said)]
        row: tuple[Any, ...] | None = None
        if again is not None and again.action is not None:
            told += [facts.opened(again.cycle_id, again), *facts.acted(again.cycle_id, again.action, "")]
            row = facts.open_cycle(again.cycle_id, agent, again)

        def write(connection: Connection) -> None:
            connection.execute(statements.ANSWER, (doubt.answer, body, safe(doubt.id)))
            if not connection.changes():
                raise ConflictError(f"call {doubt.id!r} is not in doubt any more: it has been answered")
            events.append(connection, told)
            if row is not None:
                connection.execute(statements.OPEN, row)

        self._handover.hand_over()
        probe = "SELECT body FROM doubt WHERE id = ?", (safe(doubt.id),)
        await self._file.commit(audit.audited(write, "doubt", self._clock, probe), len(body))
        if again is not None:
            self._open_cycles[again.cycle_id] = agent
