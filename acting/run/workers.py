"""Pool of workers: tasks that take ready calls off one queue.

While a tool makes a worker wait, others take over; so a call that never waits costs no task, and one that waits costs
one. A worker that is stuck in a tool at its deadline is left behind, and another one goes on without it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from acting.calls import Scope, fault
from acting.run.authorize import redeem
from acting.run.call.attempt import Attempt, begin, finish, goes_on, timed_out
from acting.run.call.call_state import Step
from acting.run.journal import CallJournalWriter
from acting.run.results import reviewed
from acting.run.shared.runtime import Runtime
from spar.failpoints import armed, crashpoint
from spar.threads import OTHERS_TURN
from spar.types import CallResult

INLINE_LIMIT = 32  # calls in a row in one worker, before others get their turn
FAILED_CALL = 8  # calls that end well cost as much as one that fails: its stack, its fault, its line in the log
LARGEST_START = 64  # workers started at once


class WorkerPool:
    """The worker tasks of one batch. `attempt(step)` is asked when a call begins, `ended(step, result)` told when it
    has ended, `broke(error)` when a worker breaks down over what is no fault of a tool. `held_back(step)` is asked
    after each wait before a call begins: its result, if it is not to begin any more."""

    def __init__(
        self,
        runtime: Runtime,
        scope: Scope,
        writer: CallJournalWriter | None,
        attempt: Callable[[Step], Attempt],
        ended: Callable[[Step, CallResult], None],
        held_back: Callable[[Step], CallResult | None],
        broke: Callable[[BaseException], None],
    ) -> None:
        self._runtime, self._scope, self._writer = runtime, scope, writer
        self._attempt, self._ended, self._held_back, self._broke = attempt, ended, held_back, broke
        self.tasks: set[asyncio.Task[Any]] = set()
        self.busy = 0  # calls of the batch that are admitted and without a result, and other work it waits for
        self._is_kept = writer is not None or runtime.spending is not None  # whether it is told who begins
        self._queue: deque[Step] = deque()
        self._count = 0  # at work or about to be
        self._free = 0  # of them that are going to look at the queue
        self._ahead = 0  # told to start while they are in the queue
        self._start_count = 1  # how many are started at once; doubles while calls turn out to wait

    def offer(self, step: Step) -> None:
        """A call may run, as soon as a worker is free for it."""
        self._queue.append(step)
        if not self._free:
            self._start_workers()

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Do other work of this batch in a task of its own."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def _start_workers(self) -> None:
        """Start workers, as many as the queue and the limit have room for."""
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
                if step.is_told:
                    self._ahead -= 1
                if step.result is not None:
                    continue
                step.is_started = True
                if step.approval_id and not await self._may_begin(step):
                    continue
                is_to_be_written = self._is_kept and not step.is_told and self._is_to_be_written(step)
                if is_to_be_written and not await self._is_written(step):
                    continue
                attempt = self._attempt(step)
                ended = begin(self._runtime, attempt)
                if armed:
                    crashpoint("act.spawned")
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
                    step.draft = await reviewed(self._runtime, self._scope, step.draft)
                    self._free += 1
                self._ended(step, step.draft)
                turns += 1 if step.draft.status == "ok" else FAILED_CALL
                if turns >= INLINE_LIMIT:
                    turns = 0
                    await OTHERS_TURN
            self._free -= 1
            self._count -= 1
            self._start_count = 1
        except asyncio.CancelledError:
            # The run is cancelled, or the tool has cancelled its own task: then others go on.
            self._count -= 1
            if step is not None and step.result is None:
                self._ended(step, step.cut(self._runtime))
            if not self._free and any(each.result is None for each in self._queue):
                self._start_workers()
            raise
        except BaseException as error:
            self._broke(error)
            raise

    async def _may_begin(self, step: Step) -> bool:
        """Use the approval that it has; it ends when that is not good any more."""
        step.allowed = step.approval_id
        self._hand_over()
        against = await redeem(self._runtime, step) or self._held_back(step)
        self._free += 1
        if against is not None:
            self._ended(step, against)
        return against is None

    def _is_to_be_written(self, step: Step) -> bool:
        """Take what it reserved and tell that it starts; return whether that must be on disk before it does."""
        spending = self._runtime.spending
        if spending is not None and spending.budgets.limits_calls:
            spending.begin(step, self._scope)
        return self._writer is not None and self._writer.start(step)

    async def _is_written(self, step: Step) -> bool:
        """Wait until it is on disk that it starts; it ends when that cannot be.

        As many of the next ones as may run at once start with it, so that one flush is for all of them.
        """
        assert self._writer is not None
        group: list[Step] = []
        while self._queue and self._count + self._ahead < self._runtime.limits.max_parallel:
            each = self._queue[0]
            if each.result is None:
                if each.is_told or each.approval_id:
                    break
                self._ahead += 1
                if not self._is_to_be_written(each):
                    break
            group.append(self._queue.popleft())
        self._hand_over()
        try:
            why = await self._writer.safe()
        except BaseException:
            for each in group:
                self._ahead -= each.is_told
                each.is_told = False  # nobody knows whether it is on disk
            raise
        finally:
            self._queue.extendleft(reversed(group))
        self._free += 1
        for each in (step, *group) if why else ():
            if each.result is None:
                self._ended(each, CallResult(each.call, "failed", fault=fault("io", why, each.call.tool)))
        if step.result is None and (against := self._held_back(step)) is not None:
            self._ended(step, against)
        return step.result is None

    def _hand_over(self) -> None:
        """Note that this worker is about to wait: let others look after the queue."""
        self._free -= 1
        if self._queue and not self._free:
            self._start_count = min(2 * self._start_count, LARGEST_START)
            self._start_workers()

    def _leave(self, step: Step) -> None:
        """Called by the deadline: the worker is stuck in its tool and the run goes on without it."""
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
        if self._queue and not self._free:
            self._start_workers()

    async def _close(self, step: Step) -> None:
        assert step.draft is not None
        try:
            step.draft = await reviewed(self._runtime, self._scope, step.draft)
        finally:
            self._ended(step, step.draft)
