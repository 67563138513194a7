"""The one thread that writes.

Work is offered from the event loop into a bounded queue and written in groups: whatever has queued while the last
group went to disk goes into the next one, in one transaction with one flush. A unit of work is a function of the
connection; it must be repeatable, because a group that could not be committed is undone and done again.

When the disk is full or the file is locked, the queue is kept, the group is tried again with back-off and the
failure is told; nothing that was accepted is lost while the process lives. Work that fails by itself is set aside
alone, with its error. Between groups, and never on the event loop, the thread does the upkeep (`upkeep`).

Its waits are those of a disk, measured on the real clock, whatever clock the agent lives by.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from memory.database import is_storage
from memory.upkeep import REST, Upkeep
from spar.errors import SparError
from spar.policies import Backoff
from spar.types import Fault

if TYPE_CHECKING:
    from apsw import Connection

R = TypeVar("R")

MAX_ITEMS = 8_192
MAX_BYTES = 64 << 20
GROUP = 1_000  # units of work in one transaction: some ten milliseconds


class Job:
    """A unit of work, how large it is, and who waits for its commit."""

    __slots__ = ("future", "size", "work")

    def __init__(self, work: Callable[[Connection], Any], size: int, future: asyncio.Future[Any] | None = None) -> None:
        self.work, self.size, self.future = work, size, future


class Writer:
    """Owns the writing connection from `start` to its end.

    Args: connection: opened by the caller, closed here; tend: one small step of upkeep inside a transaction, returns
        whether there is more to do; told: called in the event loop with a Fault when writing begins to fail (or fails
        differently) and with None when it works again; ended: called in the thread, last of all.
    """

    def __init__(
        self,
        connection: Connection,
        name: str,
        *,
        tend: Callable[[Connection], bool],
        told: Callable[[Fault | None], None],
        ended: Callable[[], None],
        max_items: int = MAX_ITEMS,
        max_bytes: int = MAX_BYTES,
        rest: float = REST,
    ) -> None:
        self._connection, self._name = connection, name
        self._told, self._ended = told, ended
        self._max_items, self._max_bytes = max_items, max_bytes
        self._backoff = Backoff(0.05, 1.0)
        self._changed = threading.Condition()
        self._queue: deque[Job] = deque()
        self._items = self._bytes = 0  # accepted and not yet committed, the group in hand included
        self._waiters: list[asyncio.Future[None]] = []
        self._closing_at: float | None = None
        self._over: asyncio.Future[None] | None = None
        self._upkeep = Upkeep(connection, tend, rest)
        self.accepted = self.committed = self.rejected = self.groups = self.lost = 0
        self.last_error: str | None = None
        self.is_failing = False

    def start(self) -> None:
        """Begin; call it in the event loop that will offer work."""
        self._loop = asyncio.get_running_loop()
        self._over = self._loop.create_future()
        self._upkeep.begin()
        threading.Thread(target=self._run, name="memory-writer", daemon=True).start()

    # -- the event loop's side ---------------------------------------------------------------------------------

    def offer(self, work: Callable[[Connection], Any], size: int = 0) -> bool:
        """Accept work, or return False while the queue is full. Raises: SparError when closing."""
        return self._accept(Job(work, size), is_bounded=True)

    async def put(self, work: Callable[[Connection], Any], size: int = 0) -> None:
        """Accept work; waits only while the queue is full. Raises: SparError when closing."""
        while not self.offer(work, size):
            room = self._loop.create_future()
            with self._changed:
                if self._is_full():
                    self._waiters = [waiter for waiter in self._waiters if not waiter.done()] + [room]
                else:
                    room.set_result(None)
            await room

    async def commit(self, work: Callable[[Connection], R], size: int = 0) -> R:
        """What the work returned, once it is as safe as the durability promises.

        What was offered before it is then safe too. Cancelling stops the waiting, not the work.
        Raises: what the work raised, which then had no effect; SparError when closed before it was written.
        """
        return await self.submit(work, size)

    def submit(self, work: Callable[[Connection], R], size: int = 0) -> asyncio.Future[R]:
        """The same, as a future. Raises: SparError when closing."""
        future: asyncio.Future[R] = self._loop.create_future()
        self._accept(Job(work, size, future), is_bounded=False)
        return future

    @property
    def pending(self) -> int:
        """How much was accepted and is not yet committed."""
        return self._items

    async def close(self, within: float) -> None:
        """Write what is queued, checkpoint, close; gives up on a disk that will not take it after `within` seconds."""
        with self._changed:
            if self._closing_at is None:
                self._closing_at = time.monotonic() + within
            self._changed.notify()
        assert self._over is not None
        await is_done(self._over, within + 1.0)

    def snapshot(self) -> dict[str, Any]:
        with self._changed:
            return {
                "queued": self._items,
                "queued_bytes": self._bytes,
                "accepted": self.accepted,
                "committed": self.committed,
                "rejected": self.rejected,
                "lost": self.lost,
                "groups": self.groups,
                "is_failing": self.is_failing,
                "last_error": self.last_error,
                "checkpoint_error": self._upkeep.last_error,
            }

    def _is_full(self) -> bool:
        return self._closing_at is None and (self._items >= self._max_items or self._bytes >= self._max_bytes)

    def _accept(self, job: Job, *, is_bounded: bool) -> bool:
        with self._changed:
            if self._closing_at is not None:
                raise SparError("the memory is closed")
            if is_bounded and self._is_full():
                return False
            self._queue.append(job)
            self._items += 1
            self._bytes += job.size
            self.accepted += 1
            if self._items == 1:
                self._changed.notify()
        return True

    # -- the thread's side -------------------------------------------------------------------------------------

    def _run(self) -> None:
        group: list[Job] | None = []
        try:
            while (group := self._next()) is not None:
                if group and not self._write(group):
                    break
                if not group or self._upkeep.is_overdue():
                    self._keep_up()
        finally:
            self._finish(group or [])

    def _next(self) -> list[Job] | None:
        """The next group; empty when it is time for upkeep; None at the end."""
        with self._changed:
            while not self._queue:
                if self._closing_at is not None:
                    return None
                due = self._upkeep.due_at()
                wait = None if due is None else due - time.monotonic()
                if wait is not None and wait <= 0:
                    return []
                self._changed.wait(wait)
            return [self._queue.popleft() for _ in range(min(GROUP, len(self._queue)))]

    def _write(self, group: list[Job]) -> bool:
        """Commit the group, however often it must be tried; False when closing and out of time."""
        failures, is_guarded = 0, False
        while True:
            try:
                outcomes = self._transact(group, is_guarded)
                break
            except Exception as error:
                self._undo()
                if not is_guarded and not is_storage(error):
                    is_guarded = True  # one of them is to blame: find out which
                    continue
                failures += 1
                self._fail(error)
                if not self._pause(self._backoff.delay(failures)):
                    return False
        self._settle(group, outcomes)
        self._recover()
        self._upkeep.after_group()
        return True

    def _transact(self, group: list[Job], is_guarded: bool) -> list[Any]:
        connection, outcomes = self._connection, list[Any]()
        connection.execute("BEGIN IMMEDIATE")
        for job in group:
            outcomes.append(self._alone(job) if is_guarded else job.work(connection))
        connection.execute("COMMIT")
        return outcomes

    def _alone(self, job: Job) -> Any:
        """The outcome of one unit, or its own error without a trace in the data; the disk's errors go on up."""
        self._connection.execute("SAVEPOINT unit")
        try:
            outcome: Any = job.work(self._connection)
        except Exception as error:
            if is_storage(error):
                raise
            self._connection.execute("ROLLBACK TO unit")
            outcome = _Rejected(error)
        self._connection.execute("RELEASE unit")
        return outcome

    def _undo(self) -> None:
        try:
            if self._connection.in_transaction:  # a full disk may have rolled back by itself
                self._connection.execute("ROLLBACK")
        except Exception as error:
            self._fail(error)

    def _settle(self, group: list[Job], outcomes: list[Any]) -> None:
        failed = [
            job.future is None for job, outcome in zip(group, outcomes, strict=True) if isinstance(outcome, _Rejected)
        ]
        with self._changed:
            self._items -= len(group)
            self._bytes -= sum(job.size for job in group)
            self.committed += len(group) - len(failed)
            self.rejected += sum(failed)
            self.groups += 1
            waiters, self._waiters = self._waiters, []
        answers = [(job.future, outcome) for job, outcome in zip(group, outcomes, strict=True) if job.future]
        answers += [(waiter, None) for waiter in waiters]
        if answers:
            self._in_loop(_answer, answers)
        for job, outcome in zip(group, outcomes, strict=True):
            if isinstance(outcome, _Rejected) and job.future is None:  # else its waiter is told
                self._tell(outcome.error)

    # -- failing and recovering --------------------------------------------------------------------------------

    def _fail(self, error: Exception) -> None:
        sentence = f"{self._name!r} cannot be written: {error}"
        is_new = not self.is_failing or sentence != self.last_error
        self.is_failing, self.last_error = True, sentence
        if is_new:
            kept = f"{sentence}; {self._items} accepted items are kept and tried again"
            self._in_loop(self._told, Fault("io", kept, "memory", detail={"type": type(error).__name__}))

    def _recover(self) -> None:
        if self.is_failing:
            self.is_failing = False
            self._in_loop(self._told, None)

    def _tell(self, error: Exception) -> None:
        self.last_error = f"{self._name!r}: an accepted item could not be kept and was set aside: {error}"
        detail = {"type": type(error).__name__}
        self._in_loop(self._told, Fault("permanent", self.last_error, "memory", retryable=False, detail=detail))

    def _pause(self, seconds: float) -> bool:
        """Wait before the next try; False when there is no time for one."""
        until = time.monotonic() + seconds
        with self._changed:
            while (left := until - time.monotonic()) > 0:
                if self._closing_at is not None:
                    if time.monotonic() >= self._closing_at:
                        return False
                    left = min(left, self._closing_at - time.monotonic())
                self._changed.wait(max(left, 0.001))
        return True

    def _keep_up(self) -> None:
        try:
            self._upkeep.step()
        except Exception as error:  # upkeep can wait; what was accepted is not concerned
            self._undo()
            self._fail(error)
            self._upkeep.put_off()
        else:
            self._recover()

    def _in_loop(self, function: Callable[..., object], *args: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *args)
        except RuntimeError:  # the loop is gone; the data is what matters now
            pass

    def _finish(self, group: list[Job]) -> None:
        left = [*group, *self._queue] if self._items else []
        with self._changed:
            if self._closing_at is None:
                self._closing_at = time.monotonic()
            self._queue.clear()
            self.lost = self._items
            waiters, self._waiters = self._waiters, []
        reason = SparError(f"the memory was closed before it could be written: {self.last_error}")
        answers: list[tuple[Any, Any]] = [(job.future, _Rejected(reason)) for job in left if job.future]
        self._in_loop(_answer, [*answers, *((waiter, None) for waiter in waiters)])
        try:
            self._upkeep.checkpoint(is_idle=True)
            self._connection.close()
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


class _Rejected:
    """The error of one unit of work, as an outcome."""

    __slots__ = ("error",)

    def __init__(self, error: Exception) -> None:
        self.error = error


def _answer(answers: Iterable[tuple[asyncio.Future[Any], Any]]) -> None:
    for future, outcome in answers:
        if future.done():  # its waiter went away
            continue
        if isinstance(outcome, _Rejected):
            future.set_exception(outcome.error)
        else:
            future.set_result(outcome)
