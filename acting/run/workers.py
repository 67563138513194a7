"""Pool of workers: tasks that carry out the calls of one queue. A call enters the queue when nothing holds it.

While a tool makes one worker wait, other workers take over the queue. So a call that never waits costs no task, and a
call that waits costs one. A worker that is stuck in a tool after the call's deadline is left behind, and another worker
takes its place.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any

from acting.run.attempt import Attempts, goes_on
from acting.run.call.call_state import Step
from acting.run.results import reviewed
from acting.run.runtime import Runtime
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

    Args: context: that of the tools; first: called before the first attempt at a call; free_slots: called with a call
        whose tool has ended, before hooks look at its result; ended: called with a call and its result; broke: called
        with an error in a task of the batch that is not the fault of a tool.
    """

    def __init__(
        self,
        runtime: Runtime,
        context: Context,
        first: Callable[[Step], None],
        free_slots: Callable[[Step], None],
        ended: Callable[[Step, CallResult], None],
        broke: Callable[[BaseException], None],
    ) -> None:
        self._runtime = runtime
        self._free_slots, self._ended, self._broke = free_slots, ended, broke
        self.attempts = Attempts(runtime, context, first)
        self.tasks: set[asyncio.Task[Any]] = set()
        self._queue: deque[Step] = deque()
        self._count = 0  # workers that run or are about to
        self._free = 0  # those of these workers that do not wait and so look at the queue next
        self._start_count = 1  # workers to start at once; doubles while calls turn out to wait

    def offer(self, step: Step) -> None:
        """Put a call that may start into the queue."""
        self._queue.append(step)
        if not self._free:
            self._start_workers()

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
        turns, attempts = 0, self.attempts
        try:
            while self._queue:
                step = self._queue.popleft()
                if step.result is not None:
                    continue
                ended = attempts.begin(step)
                if armed:
                    crashpoint("act.spawned")
                if step.copying is not None:  # the queue waits, so that large results come one by one
                    ended = await attempts.in_slices(step)
                if ended is None or (ended.fault is not None and goes_on(step, ended)):
                    self._hand_over()
                    turns = 0
                    ended = await attempts.finish(step, ended, self._leave)
                    if ended is None:
                        return
                    self._free += 1
                step.draft = ended
                if self._runtime.hooks is not None and self._runtime.reviews:
                    self._hand_over()
                    self._free_slots(step)
                    step.draft = await reviewed(self._runtime, step.scope, step.draft)
                    self._free += 1
                self._ended(step, step.draft)
                turns += _weight(step.draft)
                if turns >= INLINE_LIMIT:
                    turns = 0
                    await OTHERS_TURN
            self._free -= 1
            self._count -= 1
            self._start_count = 1
        except asyncio.CancelledError:
            # The batch is cancelled, or a tool has cancelled its own task: then other workers go on.
            self._count -= 1
            if step is not None and step.result is None:
                self._ended(step, attempts.cut(step))
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
        assert step.task is not None
        self.tasks.discard(step.task)
        self._runtime.leave(step.task)
        self._count -= 1
        step.draft = self.attempts.timed_out(step)
        if self._runtime.reviews:
            self.spawn(self._close(step), step.call.tool)
        else:
            self._ended(step, step.draft)
        if self._queue and not self._free:
            self._start_workers()

    async def _close(self, step: Step) -> None:
        assert step.draft is not None
        try:
            step.draft = await reviewed(self._runtime, step.scope, step.draft)
        finally:
            self._ended(step, step.draft)


def _weight(result: CallResult) -> int:
    """Return as how many calls in a row a call counts."""
    if result.status != "ok":
        return FAILED_CALL
    value = result.output.data if type(result.output) is Message else result.output
    return 1 if value is None else 1 + weigh(value, INLINE_LIMIT * VALUES) // VALUES
