"""The journal of a memory: facts become rows, in order, in as few transactions as possible.

What is told within a moment is one unit of work for the writer: what belongs together becomes durable together, and a
cycle that begins and ends within that moment never leaves the row that says that it is open.
Telling never waits; `safe` waits, for a flush that all who wait at the time share. How it is read again is
`memory.journal.queries`'s affair.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from memory import audit, cycle_log, events, own_rows, transcripts
from memory.codec import encoded, exactly, safe, sealed, seconds
from memory.experiences import credit
from memory.experiences import rows as experiences
from memory.journal import budgets, counts, replay, session_rows, statements
from memory.journal.batch import Batch, Write, many
from memory.journal.flush import Flush
from memory.journal.in_flight import NOTED, InFlightFile, trait
from memory.journal.queries import JournalQueries
from spar.clock import Clock
from spar.errors import ConflictError, SparError, TooLargeError
from spar.failpoints import crashpoint
from spar.records.audit import claim
from spar.records.journal import Closing, DeadLetter, Doubt, Item, RowChange, Spend, Unfinished
from spar.records.session import Reset, SessionUse
from spar.records.transcript import Entry
from spar.types import Action, Call, CallResult, Credit, Fault, Feedback, Message, Perception, replace

if TYPE_CHECKING:
    from apsw import Connection

    from memory.sqlite.session import DatabaseSession

#: Bytes of one body; what is larger is kept cut, which is told, and cannot be gone on with after a crash.
MOST_BYTES = 64 << 20
#: Bytes of work that is accepted; what is larger is refused.
MOST_ACCEPTED = 16 << 20
#: Bytes of the facts of calls. They are kept whole, however large the actor lets a result be: after a crash the next
#: call computes on what stands here. Escaped to ASCII, JSON grows to three times its bytes at most.
MOST_CALL_BYTES = 3 * (256 << 20)
_OF_CALLS = frozenset({"planned", "started", "ended"})
#: Calls of a plan in one fact.
CALLS_IN_A_FACT = 500
#: Seconds for which what nobody waits for is gathered, and how much of it may be.
MOMENT, MOST_GATHERED = 0.002, 1_000
#: Units that may wait for the writer before those who tell more are asked to wait.
MOST_BEHIND = 20
#: Bytes that a cycle on the tape counts for until it is encoded, in the writer's thread.
_ABOUT_A_CYCLE = 4_000
#: Seconds until what found no room at the writer is offered again.
AGAIN = 0.05

#: What is kept of a call's end beside its call.
_END = ("status", "reason", "output", "fault", "attempts", "started_at", "duration", "verified")


_put_item, _end_item, _open, _close = map(
    many, (statements.PUT_ITEM, statements.END_ITEM, statements.OPEN, statements.CLOSE)
)
_amend = many(statements.AMEND)
_doubt, _save, _spend = map(many, (statements.DOUBT, statements.SAVE, budgets.SPEND))
_credit: Write = credit.count
_judge: Write = credit.take
_CHANGES = {sql: many(sql) for sql in (own_rows.KEEP, own_rows.DROP)}


class Journal(JournalQueries):
    """Implements the ports of `spar.records.journal` on a file that is open.

    Args: hand: notes what is in hand; told: hears of rows that cannot be read.
    """

    def __init__(self, file: DatabaseSession, clock: Clock, hand: InFlightFile, told: Callable[[Fault], None]) -> None:
        super().__init__(lambda: file, told)
        self._file, self._clock, self.hand = file, clock, hand
        self._batch, self._is_full = Batch(), False
        #: Begun in this moment: by id, the agent's name and what makes it.
        self._opening: dict[str, tuple[str, Callable[[], Unfinished]]] = {}
        self._waiting: dict[str, list[own_rows.Statement]] = {}  # changes of rows, by the open cycle that they are for
        self._held: deque[Batch] = deque()  # for which the writer has had no room
        self._turn: asyncio.Handle | None = None
        self._flush: Flush | None = None  # the last one that somebody waits for
        self._next_flush: Flush | None = None  # handed over at the end of this turn
        self._is_unsafe = False  # something was handed over that no flush covers
        self._open: dict[str, str] = {}  # by cycle, the name of its agent
        self.epoch, self._fence = file.epoch, file.fence
        self.live: frozenset[str] = frozenset()  # the agents that have used it since it was opened
        self._claims: dict[str, object] = {}

        #: Kept, so that it is the same function for each entry.
        self._transcribe: Write = self._append

    async def load(self) -> None:
        """Learn which cycles an earlier process left open."""
        self._open = await self._file.read(replay.open_ids)

    def claim(self, agent: str, owner: object) -> None:
        """Keep the work of an agent of this name, until it is released; its owner may claim it again.

        Raises: ConflictError while another agent of the name lives: each would take over the other's work.
        """
        if self._claims.setdefault(agent, owner) is not owner:
            raise ConflictError(f"an agent named {agent!r} works with this memory already; stop it, or name them apart")
        self.live |= {agent}

    def release(self, agent: str, owner: object) -> None:
        """Release the name of an agent that has ended; again, or for another's, it does nothing."""
        if self._claims.get(agent) is owner:
            del self._claims[agent]

    def is_open(self, work: str) -> bool:
        return work in self._open

    def next_fence(self, above: int = 0) -> int:
        self._fence = max(self._fence, above) + 1
        return self._fence

    @property
    def open_cycles(self) -> int:
        """Return how many cycles have begun and not ended."""
        return len(self._open)

    # -- accepted work

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
        row, told = _item_row(agent, item, sealed(body)), self._fact("", item.id, "accepted", {"kind": item.kind})

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
        self.hand_over()
        known = await self._file.commit(write, len(row[-1]))
        crashpoint("sense.committed_before_ack")
        return (item, True) if known is None else (known, False)

    def keep(self, agent: str, item: Item) -> None:
        """Keep what is known of a waiting item, or a new one, without waiting for that."""
        self._add(_put_item, _item_row(agent, item, self._body(item)))

    def bury(self, agent: str, item: Item, reason: str) -> DeadLetter:
        """Put an item aside for people to look at."""
        letter = DeadLetter(item.id, item, self._clock.now(), reason)
        self._tell("", item.id, "dead", {"reason": reason, "attempts": item.attempts})
        self._add(_put_item, _item_row(agent, item, self._body(item)))
        self._add(_end_item, ("dead", self._body(letter), safe(item.id)))
        return letter

    async def exhume(self, agent: str, letter: DeadLetter, *, waits: bool) -> Item:
        """Deal with a dead letter: it waits again as if it were new, or is through for good.

        Raises: ConflictError when it has been dealt with.
        """
        item = replace(letter.item, attempts=0, fault=None, due_at=None)
        body = self._body(item) if waits else "{}"
        told = self._fact("", letter.id, "resolved", {"waits": waits})

        def write(connection: Connection) -> None:
            connection.execute(statements.EXHUME, ("waiting" if waits else "done", body, safe(letter.id), safe(agent)))
            if not connection.changes():
                raise ConflictError(f"dead letter {letter.id!r} has been dealt with already")
            events.append(connection, [told])

        self.hand_over()
        probe = "SELECT body FROM item WHERE id = ?", (safe(letter.id),)
        await self._file.commit(audit.audited(write, "dead_letter", self._clock, probe), len(body))
        return item

    # -- cycles

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
        and rows go on. A cursor or row that cannot be kept is told and stays what it was: a restart then repeats rather
        than loses.

        `make` is asked for what is to be kept of it only if it does not end in the same moment.
        """
        self.hand.take(cycle_id, [*items, *[trait(each) for each in perceptions[:NOTED] if each.id not in items]])
        self._opening[cycle_id] = agent, make
        self._open[cycle_id] = agent
        if agent not in self.live:
            self.live |= {agent}
        for key, cursor in cursors.items():
            self._try(partial(self.save, key, cursor))
        for change in changes:
            self._try(partial(self.change, (change,)))
        self._change()
        crashpoint("cycle.opened")

    def acting(self, work: str, action: Action, effect: str = "") -> None:
        for told in self._acted(work, action, effect):
            self._note(told)
        self._make(self._waiting.pop(work, ()))
        crashpoint("plan.committed")

    def _acted(self, work: str, action: Action, effect: str) -> Iterator[events.EventRow]:
        """Return the events of an action that is going to be executed."""
        head = replace(action, calls=(), perceptions=())
        yield self._fact(work, action.id, "acting", {"action": head, "effect": effect, "calls": len(action.calls)})
        for start in range(0, len(action.calls), CALLS_IN_A_FACT):
            calls = action.calls[start : start + CALLS_IN_A_FACT]
            yield self._fact(work, "", "planned", [call.to_wire() for call in calls])

    def planned(self, work: str, call: Call) -> None:
        self._tell(work, "", "planned", [call.to_wire()])

    def started(
        self, work: str, call_id: str, attempt: int, effect: str, allowed: str, values: Mapping[str, Any] | None = None
    ) -> None:
        told: dict[str, Any] = {"attempt": attempt, "effect": effect, "allowed": allowed}
        if values is not None:
            told["values"] = values
        self._tell(work, call_id, "started", told)

    def ended(self, work: str, result: CallResult) -> None:
        crashpoint("act.result_received")
        told = {name: getattr(result, name) for name in _END}
        if type(result.output) is Message:
            told["is_message"] = True
        self._tell(work, result.call.id, "ended", told)

    def detached(self, work: str, action: Action, effect: str, session: str) -> None:
        name = f"{work}/{action.calls[0].id}"
        cut = Unfinished(name, session, action=action, effect=effect)
        self._opening[name] = self._open.get(work, ""), lambda: cut
        self._change()

    def attached(self, work: str, call_id: str) -> None:
        self._end(f"{work}/{call_id}")

    def closed(self, agent: str, cycle_id: str, closing: Closing) -> None:
        """Note that a cycle has ended: its results become durable in one transaction."""
        waiting = self._waiting.pop(cycle_id, ())
        if cycle_id in self._opening and not closing.leaves_a_trace and not waiting:
            self._end(cycle_id)  # it began and ended in one moment, and nothing came of it
            return
        record, is_alone = closing.record, cycle_id in self._opening and closing.is_alone
        row: Any = None
        if record is not None:
            row = cycle_log.prepared(record, is_end=is_alone, besides=closing.besides if is_alone else None)
        if not (is_alone and type(row) is cycle_log.CycleRow):  # else its row on the tape is all that there is of it
            told: dict[str, Any] = {"outcome": closing.outcome, "done": closing.done}
            if record is not None:
                told |= {"agent": agent, "took": {"cycle": record.duration, **record.phases}}
            if closing.besides is not None:
                told["besides"] = closing.besides
            self._tell(cycle_id, closing.run_id or "", "closed", told)
        if record is not None:
            self._batch.size += _ABOUT_A_CYCLE
            self._add(cycle_log.write, row)
            for experience in closing.experiences:
                row = experiences.row(experience)
                self._batch.size += row.size
                self._add(experiences.insert, row)
        self.judged(closing.credits, closing.feedback)
        if closing.entries:
            session = closing.session or ("" if record is None else record.session)
            for entry in transcripts.rows(agent, session, closing.run_id or "", closing.entries):
                self._batch.size += entry[5]
                self._add(self._transcribe, entry)
        for item in closing.failed:
            self.keep(agent, item)
        if closing.past is not None:
            self.keep(agent, closing.past)
        for item_id in closing.done:
            self._add(_end_item, ("done", "{}", safe(item_id)))
        if closing.run is not None:
            self._add(_end_item, ("done", self._body({"answer": closing.run}), safe(closing.run_id)))
        for part in closing.parts:
            self.run_ended(part.run_id, part)
        if closing.changes:
            self.change(closing.changes)
        if closing.again is None:
            if waiting:
                self._make(waiting)
            self._end(cycle_id)
        else:
            again = closing.again
            self._opening[cycle_id] = agent, lambda: again
        crashpoint("cycle.closed")

    def judged(self, credits: Iterable[Credit], feedback: Iterable[Feedback]) -> None:
        """Count what helped and harmed, and change what later words say, together with what is told in the same
        moment. Raises: ContractError when it cannot be taken."""
        given, words = credit.checked(credits), credit.checked(feedback)
        for each in given:
            self._add(_credit, each)
        for word in words:
            self._add(_judge, word)

    def reset(
        self,
        agent: str,
        reset: Reset,
        entries: Sequence[Entry] = (),
        answers: Mapping[str, Any] | None = None,
        cut: Unfinished | None = None,
    ) -> None:
        """Note that a conversation has ended, and with it the work that was accepted for it: all in one transaction."""
        for run_id, answer in (answers or {}).items():
            self.run_ended(run_id, answer)
        if cut is not None and cut.cycle_id in self._opening:
            self._opening[cut.cycle_id] = agent, lambda: cut
        elif cut is not None:
            self._add(_open, (safe(cut.cycle_id), safe(agent), cut.attempts, self._body(cut)))
        for entry in transcripts.rows(agent, reset.session, reset.run_id, entries):
            self._batch.size += entry[5]
            self._add(self._transcribe, entry)
        self._add(session_rows.reset, session_rows.reset_row(agent, reset))
        self._audit("session.reset")

    def _append(self, connection: Connection, given: list[Any]) -> None:
        for refusal in transcripts.append(connection, given):
            self._file.writer.tell(Fault("superseded", str(refusal), "memory", retryable=False))

    def _end(self, work: str) -> None:
        self._open.pop(work, None)
        self.hand.drop(work)
        if self._opening.pop(work, None) is None:
            self._add(_close, (safe(work),))

    def run_ended(self, run_id: str, answer: Any) -> None:
        """Note that a run is over without a cycle of its own having told so."""
        self._tell("", run_id, "closed", {"outcome": "run ended"})
        self._add(_end_item, ("done", self._body({"answer": answer}), safe(run_id)))

    def amended(self, run_id: str, answer: Any) -> None:
        """Note that hooks have changed the answer of a run after its last cycle had told it."""
        self._add(_amend, (self._body({"answer": answer}), safe(run_id)))

    # -- calls in doubt, budgets, small state

    def save(self, key: str, value: Any) -> None:
        """Keep a small value under a key of the memory, together with what is told in the same moment.

        Raises: TooLargeError for more than a megabyte; ValueError for what is not JSON-able.
        """
        self._add(_save, (safe(key), sealed(exactly(value, f"state {key!r:.100}"))))

    def change(self, changes: Iterable[RowChange], work: str = "") -> None:
        """Write or delete these small rows, together with what is told in the same moment; all of them or none.

        With the `work` of an open cycle they wait until it is told what this is going to do, or that it has ended: if
        the process dies before, or the cycle is to begin again, they have not changed.
        Raises: TooLargeError, ValueError naming the row whose value cannot be kept.
        """
        statements = list(own_rows.statements(changes))
        if work in self._open:
            self._waiting.setdefault(work, []).extend(statements)
        else:
            self._make(statements)
            for _, given in statements:
                self._audit(given[0].partition(":")[0])

    def _audit(self, kind: str) -> None:
        """Write the entry of the audit log that is being made with what was told last, if that decides about it."""
        if (draft := claim(kind)) is not None:
            self._add(audit.write_all, (draft, self._clock.now().timestamp()))

    def _make(self, statements: Iterable[own_rows.Statement]) -> None:
        for sql, given in statements:
            self._batch.size += len(given[-1])
            self._add(_CHANGES[sql], given)

    def count(self, agent: str, total: Mapping[str, Any]) -> None:
        """Write what the counts of an agent come to, in place of all that was told of them before."""
        self._add(counts.put, (agent, dict(total)))
        self.hand_over()  # what is told from now on comes on top

    def _try(self, tell: Callable[[], None]) -> None:
        """Tell something that must not keep the rest from being told; a failure is said."""
        try:
            tell()
        except ValueError as error:
            self._told(Fault.of(error, part="memory"))

    def doubted(self, agent: str, doubt: Doubt) -> None:
        """Note a call in doubt: nobody knows whether it had its effect."""
        self._add(_doubt, (safe(doubt.id), safe(agent), seconds(doubt.at), self._body(doubt)))

    async def answer(self, agent: str, doubt: Doubt, again: Unfinished | None = None) -> None:
        """Keep what somebody says of a call in doubt, and with it the cycle that is to make it again.

        Raises: ConflictError when it has been answered.
        """
        body = self._body(doubt)
        told = [
            self._fact(doubt.cycle_id, doubt.call.id, "resolved", {"answer": doubt.answer, "by": doubt.answered_by})
        ]
        row: tuple[Any, ...] | None = None
        if again is not None and again.action is not None:
            told += [
                self._fact(again.cycle_id, "", "opened", {"items": again.items, "run": again.run_id}),
                *self._acted(again.cycle_id, again.action, ""),
            ]
            row = (safe(again.cycle_id), safe(agent), again.attempts, self._body(again))

        def write(connection: Connection) -> None:
            connection.execute(statements.ANSWER, (doubt.answer, body, safe(doubt.id)))
            if not connection.changes():
                raise ConflictError(f"call {doubt.id!r} is not in doubt any more: it has been answered")
            events.append(connection, told)
            if row is not None:
                connection.execute(statements.OPEN, row)

        self.hand_over()
        probe = "SELECT body FROM doubt WHERE id = ?", (safe(doubt.id),)
        await self._file.commit(audit.audited(write, "doubt", self._clock, probe), len(body))
        if again is not None:
            self._open[again.cycle_id] = agent

    def spend(self, spends: Iterable[Spend]) -> None:
        """Count these to the budgets, together with what is told in the same moment."""
        for spend in spends:
            self._add(_spend, (spend.window, spend.quantity, spend.amount))

    @staticmethod
    def trait(perception: Perception) -> str:
        """Return the mark by which a polled perception is recognised that was in hand when a process died."""
        return trait(perception)

    # -- handing over

    async def safe(self) -> None:
        flush = self._next_flush or self._flush
        if self._next_flush is None and (self._has_told or self._held or self._is_unsafe):
            flush = Flush(self._unheard)
            if self._flush is None or self._flush.done():
                self._submit(flush)
            else:  # the writer is busy: what others tell in this turn of the loop goes with it
                self._next_flush = flush
                asyncio.get_running_loop().call_soon(self._submit_next)
        if flush is not None:
            with self._clock.working():
                await flush.over()

    @property
    def refusal(self) -> str:
        """Why nothing more can be accepted now; empty when it can."""
        return "" if self._file.is_writable else f"it cannot be kept now: {self._file.writer.last_error}"

    @property
    def is_safe(self) -> bool:
        """Return whether there is nothing that `safe` would wait for."""
        is_over = self._flush is None or self._flush.done()
        return is_over and not (self._is_unsafe or self._held or self._has_told)

    @property
    def is_behind(self) -> bool:
        """Return whether so much waits for the writer that who tells more should wait for it: readers wait as long."""
        return bool(self._held) or self._file.pending > MOST_BEHIND

    @property
    def _has_told(self) -> bool:
        return bool(self._batch.events or self._batch.writes or self._opening)

    def _submit_next(self) -> None:
        flush, self._next_flush = self._next_flush, None
        assert flush is not None
        try:
            self._submit(flush)
        except SparError as error:  # it was closed under us
            flush.set_exception(error)

    def _unheard(self, error: BaseException) -> None:
        self._told(Fault.of(error, part="memory"))

    def _submit(self, flush: Flush) -> None:
        """Hand over with somebody waiting: the writer then has room and flushes. Raises: SparError when closing."""
        self._calm()
        self._held.append(self._taken())
        while self._held:
            batch = self._held[0]
            future = flush if len(self._held) == 1 else Flush(self._unheard)
            self._file.writer.answer(future, batch, batch.size)
            self._held.popleft()
        self._is_unsafe, self._flush = False, flush

    def hand_over(self) -> None:
        """Give the writer what was told, in order; what it has no room for is offered again."""
        self._calm()
        if self._has_told:
            self._held.append(self._taken())
        while self._held:
            try:
                is_taken = self._file.writer.offer(self._held[0], self._held[0].size)
            except SparError as error:  # it was closed under us: nothing is kept any more
                self._held.clear()
                self._told(Fault("closed", f"what was to be written down is not kept: {error}", "memory"))
                return
            if not is_taken:
                self._turn = asyncio.get_running_loop().call_later(AGAIN, self.hand_over)
                return
            self._held.popleft()
            self._is_unsafe = True

    def taken(self) -> Batch:
        """Take the batch that was not handed over: the caller has it written, after what waits already."""
        self._calm()
        batch = self._taken()
        if self._held:
            self._submit(Flush(self._unheard))
        self._is_unsafe = True
        return batch

    def _taken(self) -> Batch:
        batch, self._batch, self._is_full = self._batch, Batch(), False
        if self._opening:
            begun = [(name, agent, make()) for name, (agent, make) in self._opening.items()]
            self._opening.clear()
            batch.events[:0] = [
                self._fact(name, "", "opened", {"items": cycle.items, "run": cycle.run_id}) for name, _, cycle in begun
            ]
            for name, agent, cycle in begun:
                batch.add(_open, (safe(name), safe(agent), cycle.attempts, self._body(cycle)))
        return batch

    def _calm(self) -> None:
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None

    def _change(self) -> None:
        if self._turn is None:
            self._turn = asyncio.get_running_loop().call_later(MOMENT, self.hand_over)

    def _add(self, write: Write, given: Any) -> None:
        self._batch.add(write, given)
        if self._turn is None:
            self._change()

    def _fact(self, work: str, call: str, kind: str, body: Any) -> events.EventRow:
        limit = MOST_CALL_BYTES if kind in _OF_CALLS else MOST_BYTES
        text, was_cut = encoded(body, limit=limit)
        if was_cut:
            self._tell_cut(f"{kind} of {work or call}", limit)
        return self._clock.now().timestamp(), safe(work), safe(call) if call else "", kind, text

    def _body(self, value: Any) -> str:
        """Encode the body of a row that may change, which no chain protects."""
        text, was_cut = encoded(value, limit=MOST_BYTES)
        if was_cut:
            self._tell_cut(f"a {type(value).__name__}", MOST_BYTES)
        return sealed(text)

    def _tell_cut(self, what: str, limit: int) -> None:
        told = f"{what:.200} is too large or too deep to be kept whole: at most {limit >> 20} MiB; it is kept cut"
        self._told(Fault("too_large", told, "memory", retryable=False))

    def _tell(self, work: str, call: str, kind: str, body: Any) -> None:
        self._note(self._fact(work, call, kind, body))

    def _note(self, told: events.EventRow) -> None:
        batch = self._batch
        batch.events.append(told)
        batch.size += len(told[4])
        if self._turn is None:
            self._change()
        elif len(batch.events) >= MOST_GATHERED and not self._is_full:
            self._is_full = True
            self._calm()
            self._turn = asyncio.get_running_loop().call_soon(self.hand_over)  # not now: what belongs to it comes yet


def _item_row(agent: str, item: Item, body: str) -> tuple[Any, ...]:
    key = None if item.key is None else safe(item.key)
    return safe(item.id), safe(agent), safe(item.session), item.kind, key, seconds(item.at), item.attempts, body
