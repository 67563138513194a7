"""Handover of rows to the writer, in batches that it writes in one transaction each.

Rows that are added within 2 ms form one batch: what belongs together becomes durable together, and a cycle that begins
and ends within one batch never writes the row of an open cycle. Adding a row never waits. `safe` waits for a flush: the
writer has written all batches up to then, as durably as configured. All tasks that wait at that time share one flush.

Rows of facts, items and open cycles are encoded at once, so that nothing can change them before they are written. Only
large results of calls, which are copies that nobody changes, are encoded by the writer's thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeVar

from memory import events, transcripts
from memory.codec import EventRow, FactRows
from memory.engine.transactions import Asking, Question, Rejected, guarded
from memory.experiences import rows as experiences
from memory.journal import statements
from spar.checks import shorten
from spar.clock import Clock
from spar.errors import SparError
from spar.facts import CycleOpened
from spar.failpoints import armed, crashpoint
from spar.records.journal import Unfinished
from spar.types import CycleRecord, Fault, Feedback, Phase, replace

if TYPE_CHECKING:
    from memory.engine.connection import Connection
    from memory.engine.session import DatabaseSession

#: Seconds for which rows are gathered if nobody waits for them, and facts after which the batch is handed over sooner.
GATHER_FOR, MOST_GATHERED = 0.002, 1_000
#: Batches that may wait for the writer; with more, `is_behind` asks callers to wait.
MOST_BEHIND = 20

R = TypeVar("R")
#: Function that writes a list of rows of one kind.
Write = Callable[["Connection", list[Any]], object]


#: What a row of a kind asks first.
ASKS: Final[Mapping[type, Callable[[Any], Question]]] = {
    experiences.ExperienceRow: experiences.question,
    transcripts.TranscriptRow: transcripts.question,
}


class Origin(NamedTuple):
    """Cycle that a row belongs to, and the phase whose product the row holds; "" if it is of no phase."""

    session: str = ""
    cycle_id: str = ""
    phase: Phase | Literal[""] = ""


NO_ORIGIN = Origin()


class Batch(Asking):
    """Unit of work of the writer, which writes it in one transaction and repeats it if the transaction was undone.

    The rows of many cycles are in it. If the database refuses one of them, the rows are written one by one when the
    transaction is repeated: only the refused row is left out, and the fault names the cycle and the phase that it came
    from.

    Args: report: called for a refused row, in the writer's thread.
    """

    __slots__ = ("_is_told", "_report", "events", "is_repeated", "size", "writes")

    def __init__(self, report: Callable[[Fault], object]) -> None:
        self.events: list[EventRow] = []
        self.writes: list[tuple[Write, list[Any], list[Origin]]] = []
        self.size = 0
        self._report, self.is_repeated, self._is_told = report, False, False

    def __call__(self, connection: Connection) -> None:
        if not self.is_repeated:
            self.is_repeated = True
            self._write(connection)
        elif type(guarded(connection, self._write)) is Rejected:
            self._write_one_by_one(connection)
        if armed:
            crashpoint("journal.txn_open")

    def add(self, write: Write, row: Any, origin: Origin) -> None:
        """Add a row. The order of rows is kept; successive rows with the same `write` are written together."""
        if self.writes and self.writes[-1][0] is write:
            _, rows, origins = self.writes[-1]
            rows.append(row)
            origins.append(origin)
        else:
            self.writes.append((write, [row], [origin]))

    @property
    def questions(self) -> list[Question] | None:
        """Return what its rows want to know first; None if rows of it change the answers."""
        questions = list[Question]()
        for _, rows, _ in self.writes:
            if (kind := type(rows[0])) is Feedback:
                return None
            if (ask := ASKS.get(kind)) is not None:
                questions += map(ask, rows)
        return questions

    def _write(self, connection: Connection) -> None:
        if self.events:
            events.append(connection, self.events)
        for write, rows, _ in self.writes:
            write(connection, rows)

    def _write_one_by_one(self, connection: Connection) -> None:
        rows: list[tuple[Write, Any, Origin]] = [(events.append, fact, Origin("", fact[1])) for fact in self.events]
        for write, some, origins in self.writes:
            rows += zip([write] * len(some), some, origins, strict=True)
        refused: list[tuple[Origin, Fault]] = []
        for write, row, origin in rows:
            if type(outcome := guarded(connection, partial(_write_one, write, row))) is Rejected:
                refused.append((origin, _fault(origin, row, outcome.error)))
        for origin, fault in refused:
            for write, row, _ in rows:
                if type(row) is CycleRecord and row.cycle_id == origin.cycle_id:
                    failed = replace(row, outcome="failed", faults=(*row.faults, fault))
                    guarded(connection, partial(_write_one, write, failed))
            if not self._is_told:  # the transaction may be repeated
                self._report(fault)
        self._is_told = True


def _write_one(write: Write, row: Any, connection: Connection) -> None:
    write(connection, [row])


def _fault(origin: Origin, row: Any, error: Exception) -> Fault:
    message = f"the database refused a row of this cycle: {type(error).__name__}: {error}; the row: {shorten(row, 200)}"
    detail = {"type": type(error).__name__, "cycle_id": origin.cycle_id, "session": origin.session}
    return Fault("refused", message, "memory", origin.phase, retryable=False, detail=detail)


def many(sql: str) -> Write:
    """Return a function that executes the statement once for each row."""

    def write(connection: Connection, rows: list[Any]) -> None:
        connection.executemany(sql, rows)

    return write


_open = many(statements.OPEN)


class Flush:
    """Result of a flush. The writer calls `answer`, which wakes all waiting tasks.

    A task that is cancelled does not cancel the flush.

    Args: report_error: called with the error of the flush if no task waits any more.
    """

    __slots__ = ("_error", "_is_over", "_report_error", "_waiters")

    def __init__(self, report_error: Callable[[BaseException], object]) -> None:
        self._waiters: list[asyncio.Future[None]] = []
        self._error: BaseException | None = None
        self._is_over, self._report_error = False, report_error

    def done(self) -> bool:
        return self._is_over

    def answer(self, outcome: object) -> None:
        """End the flush. Args: outcome: `Rejected` if it has failed."""
        self._is_over, self._error = True, outcome.error if isinstance(outcome, Rejected) else None
        waiting = [waiter for waiter in self._waiters if not waiter.done()]
        for waiter in waiting:
            self._wake(waiter)
        if self._error is not None and not waiting:
            self._report_error(self._error)

    def end(self) -> asyncio.Future[None]:
        """Return a new future that is done when the flush is over; awaiting it raises the error of the flush."""
        waiter = asyncio.get_running_loop().create_future()
        if self._is_over:
            self._wake(waiter)
        else:
            self._waiters.append(waiter)
        return waiter

    def _wake(self, waiter: asyncio.Future[None]) -> None:
        if self._error is None:
            waiter.set_result(None)
        else:
            waiter.set_exception(self._error)


class Handover:
    """Collector of rows in a batch, which hands the batches to the writer of an open file.

    Args: rows: makes the rows; report: called with an error of writing if nobody waits.

    `begun` are the cycles that have begun since the last batch was closed: the agent's name and the cycle or
    its beginning, by id. Their rows are made when the batch is closed; a cycle that ends before is removed.
    """

    def __init__(self, file: DatabaseSession, clock: Clock, rows: FactRows, report: Callable[[Fault], None]) -> None:
        self._writer, self._clock, self._rows, self._report = file.writer, clock, rows, report
        self._new_batch: Callable[[], Batch] = partial(Batch, self._writer.report)
        self._batch = self._new_batch()
        self.begun: dict[str, tuple[str, Unfinished | CycleOpened]] = {}
        self._timer: asyncio.Handle | None = None  # calls `hand_over`
        self._flush: Flush | None = None  # the last one that was handed over
        self._next_flush: Flush | None = None  # handed over at the end of this turn of the event loop
        self._is_unsafe = False  # a batch was handed over without a flush after it
        self._thread = get_ident()

    # -- adding rows

    def add_fact(self, fact: EventRow) -> None:
        """Add a fact to the batch."""
        batch = self._batch
        batch.events.append(fact)
        batch.size += len(fact[4])
        if self._timer is None:
            self._start_timer()
        elif len(batch.events) == MOST_GATHERED:
            self._cancel_timer()
            # Not at once: the caller may still add rows that belong to this fact.
            self._timer = asyncio.get_running_loop().call_soon(self.hand_over)

    def add(self, write: Write, row: Any, size: int = 0, origin: Origin = NO_ORIGIN) -> None:
        """Add a row to the batch, with its size in bytes and the cycle that it belongs to."""
        batch = self._batch
        batch.add(write, row, origin)
        batch.size += size
        if self._timer is None:
            self._start_timer()

    def begin(self, cycle_id: str, agent: str, cycle: Unfinished | CycleOpened) -> None:
        """Add a cycle that begins; its row is written only if it does not end in the same batch."""
        self.begun[cycle_id] = agent, cycle
        if self._timer is None:
            self._start_timer()

    def open(self, cycle_id: str, agent: str, cycle: Unfinished) -> None:
        """Add the row of an open cycle, even if the cycle ends in the same batch."""
        self.add(_open, self._rows.open_cycle(cycle_id, agent, cycle))

    # -- what waits

    @property
    def is_safe(self) -> bool:
        """Return whether `safe` would return at once."""
        if self._is_unsafe or self._has_rows:
            return False
        return self._flush is None or self._flush.done()

    @property
    def is_behind(self) -> bool:
        """Return whether so much waits for the writer that a caller should await `safe` before further writes."""
        return self._writer.queue.items > MOST_BEHIND

    @property
    def _has_rows(self) -> bool:
        return bool(self._batch.events or self._batch.writes or self.begun)

    # -- handing over

    async def safe(self) -> None:
        """Return when all rows added so far are safe. Raises: SparError when the memory is closed."""
        is_new = self._next_flush is None and (self._has_rows or self._is_unsafe)
        flush = Flush(self._report_error) if is_new else self._next_flush or self._flush
        if flush is None:
            return
        end = flush.end()
        if is_new and (self._flush is None or self._flush.done()):
            self._submit(flush)
        elif is_new:  # the writer is busy: rows that others add in this turn of the event loop join this flush
            self._next_flush = flush
            asyncio.get_running_loop().call_soon(self._submit_next)
        with self._clock.working():
            await end

    async def _commit(self, work: Callable[[Connection], R], size: int) -> R:
        """Do the work after all rows added so far, and return its result once it is safe."""
        self.hand_over()  # at once before it, so that the writer commits both in one transaction
        with self._clock.working():
            return await self._writer.submit(work, size)

    def hand_over(self) -> None:
        """Give the writer the batch.

        Raises: RuntimeError in another thread than that which opened the memory: both would hand over the same batch.
        """
        if get_ident() != self._thread:
            raise RuntimeError("a memory is used in the thread that opened it: run this in its event loop")
        self._cancel_timer()
        if self._has_rows:
            batch, self._is_unsafe = self._close_batch(), True
            try:
                self._writer.answer(None, batch, batch.size)
            except SparError as error:  # the file was closed meanwhile: nothing more is stored
                self._report(Fault("closed", f"what was to be written down is not kept: {error}", "memory"))

    def finish(self) -> int:
        """Give the writer the last batch, since the file is closed next.

        Returns: how many batches it did not accept, because another process has taken the file over.
        """
        try:
            if self._has_rows:
                self._submit(Flush(self._report_error))
        except SparError:  # the closing of the file reports them
            return 1
        return 0

    def take_batch(self) -> Batch:
        """Return the batch that was not handed over; the caller must give it to the writer."""
        self._cancel_timer()
        self._is_unsafe = True
        return self._close_batch()

    def _submit_next(self) -> None:
        flush, self._next_flush = self._next_flush, None
        assert flush is not None
        try:
            self._submit(flush)
        except SparError as error:  # the file was closed meanwhile
            flush.answer(Rejected(error))

    def _submit(self, flush: Flush) -> None:
        """Give the writer the batch and ask for a flush after it. Raises: SparError when the file is being closed."""
        self._cancel_timer()
        batch = self._close_batch()
        self._writer.answer(flush.answer, batch, batch.size)
        self._is_unsafe, self._flush = False, flush

    def _report_error(self, error: BaseException) -> None:
        self._report(Fault.of(error, part="memory"))

    def _close_batch(self) -> Batch:
        """Begin a new batch and return the former one, with the rows of the cycles that have begun and not ended."""
        batch, self._batch = self._batch, self._new_batch()
        if self.begun:
            begun = [
                (cycle_id, agent, cycle if isinstance(cycle, Unfinished) else cycle.unfinished)
                for cycle_id, (agent, cycle) in self.begun.items()
            ]
            self.begun.clear()
            batch.events[:0] = [self._rows.opened(cycle_id, cycle) for cycle_id, _, cycle in begun]
            for cycle_id, agent, cycle in begun:
                batch.add(
                    _open, self._rows.open_cycle(cycle_id, agent, cycle), Origin(cycle.session, cycle_id, "sense")
                )
        return batch

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _start_timer(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(GATHER_FOR, self.hand_over)
