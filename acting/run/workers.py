"""Pool of workers: tasks that carry out the calls of one queue. A call enters the queue when nothing holds it.

While a tool makes one worker wait, other workers take over the queue. So a call that never waits costs no task, and a
call that waits costs one. A worker that is stuck in a tool after the call's deadline is left behind, and another worker
takes its place.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from acting.calls import Scope
from acting.run.call.attempt import Attempt, begin, finish, goes_on, timed_out
from acting.run.call.call_state import Step
from acting.run.holds.hold import Go
from acting.run.results import reviewed
from acting.run.shared.runtime import Runtime
from spar.data.json_safe.slices import weigh
from spar.failpoints import armed, crashpoint
from spar.threads import OTHERS_TURN
from spar.types import CallResult, Message

INLINE_LIMIT = 32  # calls in a row in one worker, before other tasks get their turn
FAILED_CALL = 8  # a failed call counts as this many calls: its stack, its fault and its line in the log take time
VALUES = 32  # values of a result that count as a call: it is copied, encoded and looked through
LARGEST_START = 64  # most workers started at once


class WorkerPool:
    """The worker tasks of one batch.

    Args: attempt: called when a call begins, returns its attempt; free_slots: called with a call whose tool has ended,
        before hooks look at its result; ended: called with a call and its result; broke: called with an error in a task
        of the batch that is not the fault of a tool.
    """

    def __init__(
        self,
        runtime: Runtime,
        scope: Scope,
        attempt: Callable[[Step], Attempt],
        free_slots: Callable[[Step], None],
        ended: Callable[[Step, CallResult], None],
        broke: Callable[[BaseException], None],
    ) -> None:
        self._runtime, self._scope = runtime, scope
        self._attempt, self._free_slots, self._ended, self._broke = attempt, free_slots, ended, broke
        self.tasks: set[asyncio.Task[Any]] = set()
        self._queue: deque[Step] = deque()
        self._held: deque[tuple[Step, Go]] = deque()  # calls that are held until a worker is free
        self._count = 0  # workers that run or are about to
        self._free = 0  # those of these workers that do not wait and so look at the queue next
        self._start_count = 1  # workers to start at once; doubles while calls turn out to wait

    def offer(self, step: Step) -> None:
        """Put a call that may start into the queue."""
        self._queue.append(step)
        if not self._free:
            self._start_workers()

    def take(self, step: Step, go: Go, /) -> bool:
        """Hold a call while no worker is free for it, so that its approval is not used before."""
        if self._count < self._runtime.limits.max_parallel:
            return True
        self._held.append((step, go))
        return False

    def release(self, _: Step | None = None, /) -> None:
        """Let the next held call go on, because a worker is free."""
        while self._held:
            step, go = self._held.popleft()
            if go(step):
                return

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run other work of this batch in a task of its own."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self.tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._broke(error)

    def _start_workers(self) -> None:
        """Start workers, as many as the queue and the limits allow."""
        for _ in range(min(self._start_count, len(self._queue), self._runtime.limits.max_parallel - self._count)):
            self._free += 1
            self._count += 1
            self.spawn(self._work(), "calls")

    async def _work(self) -> None:
        step: Step | None = None
        turns, task = 0, asyncio.current_task()
        try:
            while self._queue:
                step = self._queue.popleft()
                if step.result is not None:
                    continue
                attempt = self._attempt(step)
                ended = begin(self._runtime, attempt)
                if armed:
                    crashpoint("act.spawned")
                if attempt.copying is not None:  # the queue waits, so that large results come one by one
                    ended = await attempt.in_slices(self._runtime)
                if ended is None or (ended.fault is not None and goes_on(attempt, ended)):
                    self._hand_over()
                    turns, attempt.task = 0, task
                    ended = await finish(self._runtime, attempt, ended, self._leave, step)
                    if ended is None:
                        return
                    self._free += 1
                step.draft = ended
                if self._runtime.hooks is not None and self._runtime.reviews:
                    self._hand_over()
                    self._free_slots(step)
                    step.draft = await reviewed(self._runtime, self._scope, step.draft)
                    self._free += 1
                self._ended(step, step.draft)
                if self._held:
                    self.release()
                turns += _weight(step.draft)
                if turns >= INLINE_LIMIT:
                    turns = 0
                    await OTHERS_TURN
            self._free -= 1
            self._count -= 1
            self._start_count = 1
            self.release()
        except asyncio.CancelledError:
            # The batch is cancelled, or a tool has cancelled its own task: then other workers go on.
            self._count -= 1
            if step is not None and step.result is None:
                self._ended(step, step.cut(self._runtime))
            self.release()
            if not self._free and any(queued.result is None for queued in self._queue):
                self._start_workers()
            raise

    def _hand_over(self) -> None:
        """Let other workers look after the queue, because this one is about to wait."""
        self._free -= 1
        if self._queue and not self._free:
            self._start_count = min(2 * self._start_count, LARGEST_START)
            self._start_workers()

    def _leave(self, step: Step) -> None:
        """Leave behind a worker that is stuck in its tool after the deadline; the batch goes on without it."""
        attempt = step.attempt
        assert attempt is not None
        assert attempt.task is not None
        self.tasks.discard(attempt.task)
        self._runtime.leave(attempt.task)
        self._count -= 1
        step.draft = timed_out(self._runtime.clock, attempt)
        if self._runtime.reviews:
            self.spawn(self._close(step), step.call.tool)
        else:
            self._ended(step, step.draft)
        self.release()
        if self._queue and not self._free:
            self._start_workers()

    async def _close(self, step: Step) -> None:
        assert step.draft is not None
        try:
            step.draft = await reviewed(self._runtime, self._scope, step.draft)
        finally:
            self._ended(step, step.draft)


def _weight(result: CallResult) -> int:
    """Return as how many calls in a row a call counts."""
    if result.status != "ok":
        return FAILED_CALL
    value = result.output.data if type(result.output) is Message else result.output
    return 1 if value is None else 1 + weigh(value, INLINE_LIMIT * VALUES) // VALUES
