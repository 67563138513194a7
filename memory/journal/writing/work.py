"""Accepted work and what people decide about it: items, ends of runs, dead letters, calls in doubt.

Methods that are `async` return when their write is durable. Each is a transaction of its own, after all earlier rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memory import audit, events
from memory.codec.columns import safe, sealed, seconds
from memory.codec.encoding import encoded
from memory.journal import replay, session_rows, statements
from memory.journal.writing.facts import item_row
from memory.journal.writing.handover import Handover, many
from spar.clock import Clock
from spar.errors import ConflictError, TooLargeError
from spar.failpoints import armed, crashpoint
from spar.records.journal import DeadLetter, Doubt, Item, Unfinished
from spar.records.session import SessionUse
from spar.types import replace

if TYPE_CHECKING:
    from apsw import Connection

    from memory.sqlite.session import DatabaseSession

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

    __slots__ = ("_clock", "_facts", "_file", "_handover", "_open_cycles")

    def __init__(self, file: DatabaseSession, handover: Handover, open_cycles: dict[str, str], clock: Clock) -> None:
        self._file, self._handover, self._facts = file, handover, handover.facts
        self._open_cycles, self._clock = open_cycles, clock

    # -- items

    async def accept(self, agent: str, item: Item, use: SessionUse | None = None) -> tuple[Item, bool]:
        """Write an item, and in the row of its session that a message came. Both are durable when this returns,
        and so are all earlier rows.

        Returns: the stored item, which for a known id or key is the earlier one, and whether it is new.
        Raises: TooLargeError; NoRoomError on a full disk; SparError when the store is closed.
        """
        body, was_cut = encoded(item, limit=MOST_ACCEPTED)
        if was_cut:
            raise TooLargeError(
                f"{item.kind} {item.id!r} is too large to be accepted: at most {MOST_ACCEPTED >> 20} MiB"
            )
        row = item_row(agent, item, sealed(body))
        fact = self._facts.fact("", item.id, "accepted", {"kind": item.kind})

        def write(connection: Connection) -> Item | None:
            known = replay.known_item(connection, agent, item.id, item.key)
            if known is None:
                events.append(connection, [fact])
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
        return (item, True) if known is None else (known, False)

    def keep(self, agent: str, item: Item) -> None:
        """Write a waiting item as it is now, or a new one, without waiting for the disk."""
        self._handover.add(_put_item, self._facts.item(agent, item))

    def run_ended(self, run_id: str, answer: Any, cycle: str = "") -> None:
        """Write that a run has ended. Args: cycle: the cycle whose end says so already; "" for none."""
        if not cycle:
            self._handover.add_fact(self._facts.fact("", run_id, "closed", {"outcome": "run ended"}))
        self._handover.add(end_item, ("done", self._facts.body({"answer": answer}), safe(run_id)))

    def amended(self, run_id: str, answer: Any) -> None:
        """Replace the stored answer of an ended run: hooks of the user changed it after the end of its last cycle."""
        self._handover.add(_amend, (self._facts.body({"answer": answer}), safe(run_id)))

    # -- dead letters

    def bury(self, agent: str, item: Item, reason: str) -> DeadLetter:
        """Put an item aside for people to look at."""
        letter = DeadLetter(item.id, item, self._clock.now(), reason)
        self._handover.add_fact(self._facts.fact("", item.id, "dead", {"reason": reason, "attempts": item.attempts}))
        self.keep(agent, item)
        self._handover.add(end_item, ("dead", self._facts.body(letter), safe(item.id)))
        return letter

    async def exhume(self, agent: str, letter: DeadLetter, *, waits: bool) -> Item:
        """Deal with a dead letter. Its item waits again as if it were new, or with `waits=False` is finished for good.

        Raises: ConflictError when it has been dealt with.
        """
        item = replace(letter.item, attempts=0, fault=None, due_at=None)
        body = self._facts.body(item) if waits else "{}"
        fact = self._facts.fact("", letter.id, "resolved", {"waits": waits})

        def write(connection: Connection) -> None:
            connection.execute(statements.EXHUME, ("waiting" if waits else "done", body, safe(letter.id), safe(agent)))
            if not connection.changes():
                raise ConflictError(f"dead letter {letter.id!r} has been dealt with already")
            events.append(connection, [fact])

        self._handover.hand_over()
        probe = "SELECT body FROM item WHERE id = ?", (safe(letter.id),)
        await self._file.commit(audit.audited(write, "dead_letter", self._clock, probe), len(body))
        return item

    # -- calls in doubt

    def doubted(self, agent: str, doubt: Doubt) -> None:
        """Write that a call is in doubt."""
        self._handover.add(_doubt, (safe(doubt.id), safe(agent), seconds(doubt.at), self._facts.body(doubt)))

    async def answer(self, agent: str, doubt: Doubt, again: Unfinished | None = None) -> None:
        """Write a person's answer to a call in doubt, and the cycle `again` that makes the call again.

        Raises: ConflictError when it has been answered.
        """
        rows = self._facts
        body, answer = rows.body(doubt), {"answer": doubt.answer, "by": doubt.answered_by}
        facts = [rows.fact(doubt.cycle_id, doubt.call.id, "resolved", answer)]
        open_cycle: tuple[Any, ...] | None = None
        if again is not None and again.action is not None:
            facts += [rows.opened(again.cycle_id, again), *rows.planned(again.cycle_id, again.action, "")]
            open_cycle = rows.open_cycle(again.cycle_id, agent, again)

        def write(connection: Connection) -> None:
            connection.execute(statements.ANSWER, (doubt.answer, body, safe(doubt.id)))
            if not connection.changes():
                raise ConflictError(f"call {doubt.id!r} is not in doubt any more: it has been answered")
            events.append(connection, facts)
            if open_cycle is not None:
                connection.execute(statements.OPEN, open_cycle)

        self._handover.hand_over()
        probe = "SELECT body FROM doubt WHERE id = ?", (safe(doubt.id),)
        await self._file.commit(audit.audited(write, "doubt", self._clock, probe), len(body))
        if again is not None:
            self._open_cycles[again.cycle_id] = agent
