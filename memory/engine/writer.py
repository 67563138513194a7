"""Writer: the only thread that writes.

The event loop puts jobs into a bounded queue, and the thread writes them in groups, each in one transaction with at
most one flush. Jobs that are queued while a group is written form the next group; jobs for which nobody waits are
gathered for a few milliseconds first. A job is a function of the connection; it must be repeatable, because a group
that could not be committed is undone and done again. A group for which nobody waits is not flushed by itself: the next
flush, at most a second later, covers it.

When the disk is full or the file is locked, the queue stays, the group is tried again with back-off and the failure is
reported; no accepted job is lost while the process lives. A job that fails by itself is rejected alone, with its
error. After an error of the disk or the server the database is opened again. When another process has taken the
database over (its `epoch` has changed), nothing is ever written again. Between groups, and never in
the event loop, the thread does the idle work (`maintenance`).

The thread measures its waits for the disk on the real clock, even if the agent has a virtual one.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from memory.engine.maintenance import Tending
from memory.engine.transactions import FLUSH_WITHIN, GroupTransactions, Rejected
from spar.backoff import Backoff
from spar.errors import FencedError, SparError
from spar.types import Fault

if TYPE_CHECKING:
    from memory.engine.connection import Connection

R = TypeVar("R")

MAX_ITEMS = 8_192
MAX_BYTES = 64 << 20
GROUP = 1_000  # most jobs in one transaction: some ten milliseconds
_COUNTS = ("accepted", "committed", "rejected", "lost", "groups")
LINGER = 0.005  # seconds for which jobs without a waiter are gathered: a transaction costs more than a job


#: Function that gets the result of a unit of work, or `Rejected`.
Answer = Callable[[Any], object]


class Job(NamedTuple):
    """Unit of work, its size in bytes, and who waits for its commit: called in the event loop with the outcome."""

    work: Callable[[Connection], Any]
    size: int
    answer: Answer | None = None


class JobQueue:
    """Queue of accepted jobs, in order, with their counts.

    `items` and `bytes` count the accepted jobs that are not yet committed, those of the current group included; `lost`
    is the number of them at the end. `refusal` is the error for jobs after the closing; None for the usual one.
    """

    __slots__ = ("_changed", "_closing_at", "_is_awaited", "_jobs", "_max_bytes", "_max_items", "accepted", "bytes",
                 "committed", "groups", "items", "lost", "refusal", "rejected")  # fmt: skip

    def __init__(self, max_items: int = MAX_ITEMS, max_bytes: int = MAX_BYTES) -> None:
        self._max_items, self._max_bytes = max_items, max_bytes
        self._changed = threading.Condition()
        self._jobs: deque[Job] = deque()
        self._is_awaited = False  # whether a caller waits for a queued job
        self._closing_at: float | None = None
        self.refusal: SparError | None = None
        self.items = self.bytes = 0
        self.accepted = self.committed = self.rejected = self.groups = self.lost = 0

    def accept(self, job: Job, *, is_bounded: bool) -> bool:
        """Accept a job, or return False while the queue is full and it is bounded. Raises: SparError when closing."""
        with self._changed:
            if self._closing_at is not None:
                raise self.refusal or SparError("the memory is closed")
            if is_bounded and self._is_full():
                return False
            self._jobs.append(job)
            self.items += 1
            self.bytes += job.size
            self.accepted += 1
            if job.answer is not None and not self._is_awaited:
                self._is_awaited = True
                self._changed.notify()
            elif self.items == 1 or self.items == GROUP:
                self._changed.notify()
        return True

    def close(self, within: float) -> None:
        """Accept nothing more. The queued jobs are written for at most `within` seconds."""
        with self._changed:
            self._closing_at = self._closing_at or time.monotonic() + within
            self._changed.notify()

    @property
    def is_closing(self) -> bool:
        return self._closing_at is not None

    def snapshot(self) -> dict[str, int]:
        """Return the counts, all of the same moment. Safe from any thread."""
        with self._changed:
            counts = {"queued": self.items, "queued_bytes": self.bytes}
            return counts | {name: getattr(self, name) for name in _COUNTS}

    def next(self, due_at: Callable[[], float | None]) -> list[Job] | None:
        """Wait for the next group and return it; None at the end.

        An empty group says that the time of `due_at` (monotonic seconds) has come.
        """
        with self._changed:
            while not self._jobs:
                if self._closing_at is not None:
                    return None
                due = due_at()
                wait = None if due is None else due - time.monotonic()
                if wait is not None and wait <= 0:
                    return []
                self._changed.wait(wait)
            if not self._is_awaited and self.items < GROUP and self._closing_at is None:
                self._changed.wait(LINGER)
            if len(self._jobs) <= GROUP:
                group = list(self._jobs)
                self._jobs.clear()
                self._is_awaited = False  # else unchanged: a job that is left in the queue may have a waiter
                return group
            return [self._jobs.popleft() for _ in range(GROUP)]

    def settle(self, number: int, size: int, *, failed: int, unawaited: int) -> None:
        """Count a group of `number` jobs and `size` bytes as finished.

        Args: failed: number of jobs that failed; unawaited: number of these for which nobody waited.
        """
        with self._changed:
            self.items -= number
            self.bytes -= size
            self.committed += number - failed
            self.rejected += unawaited
            self.groups += 1

    def pause(self, seconds: float) -> bool:
        """Wait so many seconds before the next attempt. Return False if the time to close is over."""
        until = time.monotonic() + seconds
        with self._changed:
            while (left := until - time.monotonic()) > 0:
                if self._closing_at is not None:
                    if time.monotonic() >= self._closing_at:
                        return False
                    left = min(left, self._closing_at - time.monotonic())
                self._changed.wait(max(left, 0.001))
        return True

    def end(self) -> list[Job]:
        """Accept nothing more and count all jobs that are not committed as lost. Return the queued jobs."""
        with self._changed:
            self._closing_at = self._closing_at or time.monotonic()
            jobs = list(self._jobs)
            self._jobs.clear()
            self.lost = self.items
        return jobs

    def _is_full(self) -> bool:
        return self._closing_at is None and (self.items >= self._max_items or self.bytes >= self._max_bytes)


class Reserve(Protocol):
    """Reserve of disk space: `held` bytes; `is_given_up` says that it was removed because the disk was full."""

    held: int
    is_given_up: bool

    def hold(self) -> bool:
        """Create the reserve if there is enough space. Return False if the caller should try again soon."""

    def give_up(self) -> int:
        """Remove the reserve. Return the number of freed bytes."""

    def is_full(self, error: BaseException) -> bool:
        """Return whether an error means that there is no room on the disk."""


class WriterThread:
    """Owner of the writing connection from `start` to its end.

    Args:
        name: the database as errors name it.
        transactions: those of a connection opened by the caller, closed here.
        maintenance: the idle work.
        reserve: given up when the disk is full.
        report: called in the event loop with a Fault when writing begins to fail (or fails differently) and with None
            when it works again.
        ended: called in the thread, last of all.

    `queue` has the accepted jobs and their counts. `reserve.is_given_up` says that the disk was full and has no room
    again: only that of the former reserve is left.
    """

    def __init__(
        self,
        name: str,
        transactions: GroupTransactions,
        maintenance: Tending,
        reserve: Reserve,
        *,
        report: Callable[[Fault | None], None],
        ended: Callable[[], None],
        max_items: int = MAX_ITEMS,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._name, self._report, self._ended = name, report, ended
        self._backoff = Backoff(0.05, 1.0)
        self.queue = JobQueue(max_items, max_bytes)
        self._over: asyncio.Future[None] | None = None
        self._fenced: FencedError | None = None
        self._transactions, self._maintenance, self.reserve = transactions, maintenance, reserve
        self.last_error: str | None = None
        self.is_failing = False
        self._idle_failures, self._again_at = 0, 0.0  # and when an empty transaction shows whether writing works again

    def start(self) -> None:
        """Start the thread; call it in the event loop that will offer work."""
        self._loop = asyncio.get_running_loop()
        self._over = self._loop.create_future()
        self._maintenance.begin()
        threading.Thread(target=self._run, name="memory-writer", daemon=True).start()

    # -- the event loop's side ---------------------------------------------------------------------------------

    def offer(self, work: Callable[[Connection], Any], size: int = 0) -> bool:
        """Queue work, or return False while the queue is full. Raises: SparError when closing."""
        return self.queue.accept(Job(work, size), is_bounded=True)

    def submit(self, work: Callable[[Connection], R], size: int = 0) -> asyncio.Future[R]:
        """Do the work; return a future of its result, which is set once that is as safe as the durability promises.

        All work offered before is then safe too. Cancelling stops the waiting, not the work. The future has the error
        of the work, which then had no effect, or SparError when closed before it was written.
        Raises: SparError when closing.
        """
        future: asyncio.Future[R] = self._loop.create_future()
        self.answer(partial(_resolve, future), work, size)
        return future

    def answer(self, answer: Answer | None, work: Callable[[Connection], Any], size: int = 0) -> None:
        """Do the work as `submit` does and call `answer` with its outcome; None: nobody waits. Raises: SparError when
        closing."""
        self.queue.accept(Job(work, size, answer), is_bounded=False)

    @property
    def is_writable(self) -> bool:
        """Return whether more can be accepted: the last write worked, there is room, and no other process has taken the
        file over."""
        return not (self.is_failing or self.reserve.is_given_up or self._fenced)

    def report(self, fault: Fault) -> None:
        """Report a fault of the file that another part has found. Safe from any thread."""
        self._in_loop(self._report, fault)

    async def close(self, within: float) -> None:
        """Write the queued jobs, checkpoint and close. Jobs not written after `within` seconds are lost."""
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
            "is_full": self.reserve.is_given_up,
            "ballast_bytes": self.reserve.held,
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
                    self._do_idle_work()
        except FencedError as error:
            self._undo()
            self._fenced = self.queue.refusal = error
            self.last_error = str(error)
            self._in_loop(self._report, Fault("fenced", str(error), "memory", retryable=False))
        finally:
            self._finish(group or [])

    def _due_at(self) -> float | None:
        """Return when a flush, maintenance or another attempt is due, in monotonic seconds; None if none is."""
        due = (self._transactions.flush_at, self._maintenance.due_at(), self._again_at if self.is_failing else None)
        return min((at for at in due if at is not None), default=None)

    def _write(self, group: list[Job]) -> bool:
        """Commit the group, with as many attempts as needed. Return False if the time to close is over."""
        failures, is_guarded, has_given = 0, False, False
        works, is_awaited = [job.work for job in group], any(job.answer is not None for job in group)
        while True:
            try:
                outcomes = self._transactions.run(works, is_guarded=is_guarded, must_flush=is_awaited)
                break
            except FencedError:
                raise
            except Exception as error:
                self._undo()
                if not is_guarded and not self._transactions.connection.is_storage(error):
                    is_guarded = True  # one job failed: find out which
                    continue
                failures += 1
                self._transactions.failed(error)
                if not has_given and self.reserve.is_full(error) and self._give_reserve(error):
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
        answers: list[tuple[Answer, Any]] = []
        unawaited: list[Exception] = []
        size = failed = 0
        for job, outcome in zip(group, outcomes, strict=True):
            size += job.size
            failed += type(outcome) is Rejected
            if job.answer is not None:
                answers.append((job.answer, outcome))
            elif type(outcome) is Rejected:
                unawaited.append(outcome.error)
        self.queue.settle(len(group), size, failed=failed, unawaited=len(unawaited))
        if answers:
            self._in_loop(_answer, answers)
        for error in unawaited:
            self._report_rejected(error)

    # -- failing and recovering --------------------------------------------------------------------------------

    def _fail(self, error: Exception) -> None:
        sentence = f"{self._name!r} cannot be written: {first_line(error)}"
        is_new = not self.is_failing or sentence != self.last_error
        self.is_failing, self.last_error = True, sentence
        if is_new:
            message = f"{sentence}; {self.queue.items} accepted items are kept and tried again"
            self._in_loop(self._report, Fault("io", message, "memory", detail={"type": type(error).__name__}))

    def _recover(self) -> None:
        if self.is_failing:
            self.is_failing, self._idle_failures = False, 0
            if not self.reserve.is_given_up:  # else reported by `_hold_reserve`
                self._in_loop(self._report, None)

    def _give_reserve(self, error: Exception) -> bool:
        """Give the reserve up on a full disk, so that rows can be deleted. Return whether there was any."""
        if not self.reserve.held:
            return False
        freed = f"{self.reserve.give_up() >> 10} KiB that were kept for this day are given up"
        self.last_error = f"{self._name!r}: the disk is full ({error}); {freed}, make room"
        self._in_loop(self._report, Fault("full", self.last_error, "memory", detail={"type": type(error).__name__}))
        self._maintenance.hold_reserve_soon()
        return True

    def _hold_reserve(self) -> bool:
        was_given_up = self.reserve.is_given_up
        is_held = self.reserve.hold()
        if was_given_up and not self.reserve.is_given_up and not self.is_failing:
            self._in_loop(self._report, None)
        return is_held

    def _report_rejected(self, error: Exception) -> None:
        self.last_error = f"{self._name!r}: an accepted item could not be kept and was set aside: {first_line(error)}"
        detail = {"type": type(error).__name__}
        self._in_loop(self._report, Fault("permanent", self.last_error, "memory", retryable=False, detail=detail))

    def _do_idle_work(self) -> None:
        flush_at, now = self._transactions.flush_at, time.monotonic()
        try:
            if self.is_failing and now >= self._again_at:  # no job will show it: while it fails none is accepted
                self._transactions.run((), is_guarded=False, must_flush=True)
                self._recover()
            elif flush_at is not None and now >= flush_at:
                self._transactions.run((), is_guarded=False, must_flush=True)
            else:
                self._maintenance.step()
        except FencedError:
            raise
        except Exception as error:  # maintenance can wait; no accepted job is concerned
            self._undo()
            self._transactions.failed(error)
            if self.reserve.is_full(error):
                self._give_reserve(error)
            self._fail(error)
            self._idle_failures += 1
            self._again_at = now + self._backoff.delay(self._idle_failures)
            self._maintenance.postpone()
            self._transactions.flush_at = None if flush_at is None else time.monotonic() + FLUSH_WITHIN
        else:
            self._recover()

    def _in_loop(self, function: Callable[..., object], *args: Any) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody can be called
            self._loop.call_soon_threadsafe(function, *args)

    def _finish(self, group: list[Job]) -> None:
        queued = self.queue.end()
        left = [*group, *queued] if self.queue.lost else []
        reason = self._fenced or SparError(f"the memory was closed before it could be written: {self.last_error}")
        self._in_loop(_answer, [(job.answer, Rejected(reason)) for job in left if job.answer])
        try:
            self._maintenance.stop()
            if self._fenced is None:
                self._maintenance.checkpoint(is_idle=True)
                self._transactions.close()
            else:  # the mark belongs to another process now
                self._transactions.connection.close()
        except Exception as error:
            self._fail(error)
        try:
            self._ended()
        finally:
            self._in_loop(_resolve, self._over, None)


def first_line(error: BaseException) -> str:
    """Return the first line of an error: drivers of servers add others for people at a terminal."""
    return str(error).partition("\n")[0] or type(error).__name__


async def is_done(future: asyncio.Future[Any], within: float) -> bool:
    """Wait for a future at most `within` seconds of the real clock, also in a loop whose own time is virtual."""
    deadline = time.monotonic() + within
    while not future.done() and (left := deadline - time.monotonic()) > 0:
        await asyncio.wait([future], timeout=left)
    return future.done()


def _answer(answers: Iterable[tuple[Answer, Any]]) -> None:
    for answer, outcome in answers:
        answer(outcome)


def _resolve(future: asyncio.Future[Any], outcome: Any) -> None:
    if future.done():  # its waiter was cancelled
        return
    if isinstance(outcome, Rejected):
        future.set_exception(outcome.error)
    else:
        future.set_result(outcome)
