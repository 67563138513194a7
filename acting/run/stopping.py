"""Stops a batch before its calls have run their course.

A new message steers it, its plan broke off, or a hook ends the run: then calls that run finish, every other one is
skipped, at once or the moment it would start, and what people were asked about it is void. When the batch is cancelled,
calls that run are cancelled too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from msgspec import Struct

from acting.approvals.parking import Parking
from acting.run.call.call_state import Step
from acting.run.shared.runtime import Runtime
from acting.run.workers import WorkerPool
from spar.types import CallResult, Fault


class Stopping(Struct, eq=False):
    """Whether calls of one batch may still start: `why` says why not, empty as long as they may.

    Args: steps: the calls that have arrived; parking: those that wait for people; record: keeps the result of one that
        has not started; complete: that of one that is admitted; drain: starts what may start now.
    """

    _runtime: Runtime
    _workers: WorkerPool
    _steps: Sequence[Step]
    _parking: Parking[Step]
    _record: Callable[[Step, CallResult], None]
    _complete: Callable[[Step, CallResult], None]
    _drain: Callable[[], None]
    why: str = ""
    reason: str = ""  # of what is skipped for it
    fault: Fault | None = None  # of the batch as a whole, if that is why
    is_cut_off: bool = False  # whether the batch is cancelled: nothing more comes of its calls

    def steer(self, why: str) -> None:
        """Skip the calls that have not started, also those still to arrive: somebody has said something new."""
        if not self.is_cut_off:
            self.stop(why, "steered")
            self._drain()

    def stop(self, why: str, reason: str = "dep_failed") -> None:
        """Start nothing further and ask nobody any more; what has started goes on, what hooks are looking at too."""
        if not self.why:
            self.why, self.reason = why, reason
        for step in self._steps:
            if step.result is not None or not step.at:  # one that is just arriving ends by itself
                continue
            if step.asking is not None:
                step.asking.cancel()
            elif not step.is_started:
                if step.is_admitted:
                    self._workers.busy -= 1  # it waited for its turn, a permit or a worker
                self.skip(step, why)

    def skip(self, step: Step, why: str) -> None:
        """End a call that is not to start: as parked if it waits for one that is, else as skipped."""
        if step.result is None:
            self._record(step, self._parking.result(step) or self.held_back(step) or step.skipped(why))

    def may_ask(self, step: Step) -> bool:
        """Return whether people are to be asked about a call now; its task is told when they are not any more."""
        step.asking = asyncio.current_task()
        return not self.why

    def held_back(self, step: Step) -> CallResult | None:
        """Return the result of a call that is not to start any more; None if it may. What people were asked is void."""
        if not self.why:
            return None
        approvals = self._runtime.approvals
        if approvals is not None and (approval_id := approvals.parked.own_approval(step)):
            self._workers.busy += 1
            self._workers.spawn(self._take_back(approval_id), "take back")
        return step.skipped(self.why, self.reason)

    async def _take_back(self, approval_id: str) -> None:
        assert self._runtime.approvals is not None
        try:
            await self._runtime.approvals.parked.refuse(approval_id, self.why)
        finally:
            self._workers.busy -= 1
            self._drain()

    async def abort(self) -> None:
        """Cancel everything, wait a moment for it to end, leave behind what does not."""
        self.is_cut_off = True
        self._parking.take_asking(self._steps, self._record)
        for step in self._steps:
            if step.result is None and not step.is_started:
                self._record(step, self._parking.result(step) or step.cut(self._runtime))
        tasks = list(self._workers.tasks)
        for task in tasks:
            task.cancel()
        try:
            tasks = await self._runtime.settle(tasks, self._runtime.limits.grace)
        finally:
            for task in tasks:
                self._runtime.leave(task)
            self.give_up()

    def give_up(self) -> None:
        """Wait for nothing further: each call that has no result yet was cut off."""
        self.is_cut_off = True
        for step in self._steps:
            if step.result is None:
                self._complete(step, step.cut(self._runtime))
