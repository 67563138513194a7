"""The one thread that writes.

Work is offered from the event loop into a bounded queue (`job_queue`) and written in groups, each in one transaction
with at most one flush. A unit of work is a function of the connection; it must be repeatable, because a group that
could not be committed is undone and done again. A group in which nobody waits is not flushed by itself: the next flush,
a second later at most, takes it along.

When the disk is full or the file is locked, the queue is kept, the group is tried again with back-off and the
failure is told; nothing that was accepted is lost while the process lives. Work that fails by itself is set aside
alone, with its error. After an error of the disk itself the log is mended (`wal`) and the file opened anew. When
another process has taken the file over (its `epoch` has changed) nothing is ever written again. Between groups, and
never on the event loop, the thread does the idle work (`maintenance`).

Its waits are those of a disk, measured on the real clock, whatever clock the agent lives by.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from memory.sqlite.database import is_storage
from memory.sqlite.disk_reserve import DiskReserve
from memory.sqlite.job_queue import MAX_BYTES, MAX_ITEMS, Awaited, Job, JobQueue
from memory.sqlite.maintenance import REST, Copies, Maintenance
from memory.sqlite.transactions import FLUSH_WITHIN, Rejected, Transactions
from spar.backoff import Backoff
from spar.errors import FencedError, SparError
from spar.types import Fault

if TYPE_CHECKING:
    from apsw import Connection

R = TypeVar("R")


class Writer:
    """Owns the writing connection from `start` to its end.

    Args:
        connection: opened by the caller, closed here.
        durability: as in `database`.
        epoch: what the file's must be in every transaction.
        tend: one small step of maintenance inside a transaction, returns whether there is more to do.
        told: called in the event loop with a Fault when writing begins to fail (or fails differently) and with None
            when it works again.
        ended: called in the thread, last of all.
        reopen: a new connection after an error of the disk.
        ballast: given up when the disk is full.
        copies: made when one is due.

    `queue` has what was accepted, and the account of it.
    """

    def __init__(
        self,
        connection: Connection,
        name: str,
        *,
        durability: str = "process",
        epoch: int | None = None,
        tend: Callable[[Connection], bool],
        told: Callable[[Fault | None], None],
        ended: Callable[[], None],
        reopen: Callable[[], Connection] | None = None,
        ballast: DiskReserve | None = None,
        copies: Copies | None = None,
        max_items: int = MAX_ITEMS,
        max_bytes: int = MAX_BYTES,
        rest: float = REST,
    ) -> None:
        self._name, self._told, self._ended = name, told, ended
        self._backoff = Backoff(0.05, 1.0)
        self.queue = JobQueue(max_items, max_bytes)
        self._over: asyncio.Future[None] | None = None
        self._fenced: FencedError | None = None
        self._reserve = ballast or DiskReserve(name, 0)
        self._copies = copies
        if copies is not None:
            copies.told = self.tell
        self._transactions = Transactions(connection, name, durability, epoch, reopen)
        self._maintenance = Maintenance(self._transactions, tend, rest, self._hold_reserve if ballast else None, copies)
        self.last_error: str | None = None
        self.is_failing = False

    def start(self) -> None:
        """Begin; call it in the event loop that will offer work."""
        self._loop = asyncio.get_running_loop()
        self._over = self._loop.create_future()
        self._maintenance.begin()
        threading.Thread(target=self._run, name="memory-writer", daemon=True).start()

    # -- the event loop's side ---------------------------------------------------------------------------------

    def offer(self, work: Callable[[Connection], Any], size: int = 0) -> bool:
        """Accept work, or return False while the queue is full. Raises: SparError when closing."""
        return self.queue.accept(Job(work, size), is_bounded=True)

    async def put(self, work: Callable[[Connection], Any], size: int = 0) -> None:
        """Accept work; waits only while the queue is full. Raises: SparError when closing."""
        while not self.offer(work, size):
            await self.queue.has_room()

    async def commit(self, work: Callable[[Connection], R], size: int = 0) -> R:
        """Do the work and return its result once it is as safe as the durability promises.

        What was offered before it is then safe too. Cancelling stops the waiting, not the work.
        Raises: what the work raised, which then had no effect; SparError when closed before it was written.
        """
        return await self.submit(work, size)

    def submit(self, work: Callable[[Connection], R], size: int = 0) -> asyncio.Future[R]:
        """Do the work as `commit` does; returns a future. Raises: SparError when closing."""
        future: asyncio.Future[R] = self._loop.create_future()
        self.answer(future, work, size)
        return future

    def answer(self, future: Awaited, work: Callable[[Connection], Any], size: int = 0) -> None:
        """Do the work as `commit` does, and tell this future what becomes of it. Raises: SparError when closing."""
        self.queue.accept(Job(work, size, future), is_bounded=False)

    @property
    def pending(self) -> int:
        """Return how much was accepted and is not yet committed."""
        return self.queue.items

    @property
    def lost(self) -> int:
        """Return how much was accepted and not committed when it ended."""
        return self.queue.lost

    @property
    def is_out_of_room(self) -> bool:
        """Return whether the disk was full and has not become free again: only what is held in reserve is left."""
        return self._reserve.is_given_up

    @property
    def is_writable(self) -> bool:
        """Return whether it is of use to accept more: the last write worked, there is room, and the file is still
        ours."""
        return not (self.is_failing or self._reserve.is_given_up or self._fenced)

    def tell(self, fault: Fault) -> None:
        """Pass on what somebody else found out about the file; from any thread."""
        self._in_loop(self._told, fault)

    async def close(self, within: float) -> None:
        """Write what is queued, checkpoint, close; gives up on a disk that will not take it after `within` seconds."""
        self.queue.close(within)
        assert self._over is not None
        await is_done(self._over, within + 1.0)

    def snapshot(self) -> dict[str, Any]:
        return {
            **self.queue.snapshot(),
            "flushes": self._transactions.flushes,
            "commit_seconds": dict(zip(("count", "sum"), self._transactions.commits, strict=True)),
            "is_failing": self.is_failing,
            "is_writable": self.is_writable,
            "is_fenced": self._fenced is not None,
            "is_full": self._reserve.is_given_up,
            "ballast_bytes": self._reserve.held,
            "wal_is_long": self._maintenance.is_long,
            "last_error": self.last_error,
            "checkpoint_error": self._maintenance.last_error,
        }

    # -- the thread's side -------------------------------------------------------------------------------------

    def _run(self) -> None:
        group: list[Job] | None = []
        try:
            while (group := self.queue.next(self._due_at)) is not None:
                if group and not self._write(group):
                    break
                if not group or self._maintenance.is_overdue():
                    self._keep_up()
        except FencedError as error:
            self._undo()
            self._fenced = self.queue.refusal = error
            self.last_error = str(error)
            self._in_loop(self._told, Fault("fenced", str(error), "memory", retryable=False))
        finally:
            self._finish(group or [])

    def _due_at(self) -> float | None:
        """Return when a flush or maintenance is due, in monotonic seconds; None when neither is."""
        flush_at, tend_at = self._transactions.flush_at, self._maintenance.due_at()
        return min((at for at in (flush_at, tend_at) if at is not None), default=None)

    def _write(self, group: list[Job]) -> bool:
        """Commit the group, however often it must be tried; False when closing and out of time."""
        failures, is_guarded, has_given = 0, False, False
        works, is_awaited = [job.work for job in group], any(job.future is not None for job in group)
        while True:
            try:
                outcomes = self._transactions.run(works, is_guarded=is_guarded, must_flush=is_awaited)
                break
            except FencedError:
                raise
            except Exception as error:
                self._undo()
                if not is_guarded and not is_storage(error):
                    is_guarded = True  # one of them is to blame: find out which
                    continue
                failures += 1
                self._transactions.failed(error)
                if not has_given and self._reserve.is_full(error) and self._give_reserve(error):
                    has_given = True
                    continue
                self._fail(error)
                if not self.queue.pause(self._backoff.delay(failures)):
                    return False
        self._settle(group, outcomes)
        self._recover()
        self._maintenance.after_group()
        return True

    def _undo(self) -> None:
        try:
            self._transactions.undo()
        except Exception as error:
            self._fail(error)

    def _settle(self, group: list[Job], outcomes: list[Any]) -> None:
        answers: list[tuple[Awaited, Any]] = []
        unheard: list[Exception] = []
        size = failed = 0
        for job, outcome in zip(group, outcomes, strict=True):
            size += job.size
            failed += type(outcome) is Rejected
            if job.future is not None:  # its waiter is told
                answers.append((job.future, outcome))
            elif type(outcome) is Rejected:
                unheard.append(outcome.error)
        waiters = self.queue.settled(len(group), size, failed=failed, unheard=len(unheard))
        answers += [(waiter, None) for waiter in waiters]
        if answers:
            self._in_loop(_answer, answers)
        for error in unheard:
            self._tell(error)

    # -- failing and recovering --------------------------------------------------------------------------------

    def _fail(self, error: Exception) -> None:
        sentence = f"{self._name!r} cannot be written: {error}"
        is_new = not self.is_failing or sentence != self.last_error
        self.is_failing, self.last_error = True, sentence
        if is_new:
            kept = f"{sentence}; {self.queue.items} accepted items are kept and tried again"
            self._in_loop(self._told, Fault("io", kept, "memory", detail={"type": type(error).__name__}))

    def _recover(self) -> None:
        if self.is_failing:
            self.is_failing = False
            if not self._reserve.is_given_up:  # else it is told when there is room again
                self._in_loop(self._told, None)

    def _give_reserve(self, error: Exception) -> bool:
        """Give the reserve up on a full disk, so that rows can be deleted; returns whether there was any."""
        if not self._reserve.held:
            return False
        kept = f"{self._reserve.give_up() >> 10} KiB that were kept for this day are given up"
        self.last_error = f"{self._name!r}: the disk is full ({error}); {kept}, make room"
        self._in_loop(self._told, Fault("full", self.last_error, "memory", detail={"type": type(error).__name__}))
        self._maintenance.hold_reserve_soon()
        return True

    def _hold_reserve(self) -> bool:
        was_given_up = self._reserve.is_given_up
        is_held = self._reserve.hold()
        if was_given_up and not self._reserve.is_given_up and not self.is_failing:
            self._in_loop(self._told, None)
        return is_held

    def _tell(self, error: Exception) -> None:
        self.last_error = f"{self._name!r}: an accepted item could not be kept and was set aside: {error}"
        detail = {"type": type(error).__name__}
        self._in_loop(self._told, Fault("permanent", self.last_error, "memory", retryable=False, detail=detail))

    def _keep_up(self) -> None:
        flush_at = self._transactions.flush_at
        try:
            if flush_at is not None and time.monotonic() >= flush_at:
                self._transactions.run((), is_guarded=False, must_flush=True)
            else:
                self._maintenance.step()
        except FencedError:
            raise
        except Exception as error:  # maintenance can wait; what was accepted is not concerned
            self._undo()
            self._transactions.failed(error)
            if self._reserve.is_full(error):
                self._give_reserve(error)
            self._fail(error)
            self._maintenance.put_off()
            self._transactions.flush_at = None if flush_at is None else time.monotonic() + FLUSH_WITHIN
        else:
            self._recover()

    def _in_loop(self, function: Callable[..., object], *args: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *args)
        except RuntimeError:  # the loop is gone; the data is what matters now
            pass

    def _finish(self, group: list[Job]) -> None:
        queued, waiters = self.queue.end()
        left = [*group, *queued] if self.queue.lost else []
        reason = self._fenced or SparError(f"the memory was closed before it could be written: {self.last_error}")
        answers: list[tuple[Any, Any]] = [(job.future, Rejected(reason)) for job in left if job.future]
        self._in_loop(_answer, [*answers, *((waiter, None) for waiter in waiters)])
        try:
            if self._copies is not None:
                self._copies.stop()
            if self._fenced is None:
                self._maintenance.checkpoint(is_idle=True)
                self._transactions.close()
            else:  # the mark is another's by now
                self._transactions.connection.close()
        except Exception as error:
            self._fail(error)
        try:
            self._ended()
        finally:
            self._in_loop(_answer, [(self._over, None)])


async def is_done(future: asyncio.Future[Any], within: float) -> bool:
    """Wait for a future at most `within` seconds of the real clock, also in a loop whose own time is virtual."""
    deadline = time.monotonic() + within
    while not future.done() and (left := deadline - time.monotonic()) > 0:
        await asyncio.wait([future], timeout=left)
    return future.done()


def _answer(answers: Iterable[tuple[Awaited, Any]]) -> None:
    for future, outcome in answers:
        if future.done():  # its waiter went away
            continue
        if isinstance(outcome, Rejected):
            future.set_exception(outcome.error)
        else:
            future.set_result(outcome)
