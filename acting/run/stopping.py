"""Early end of a batch.

When a new message arrives for the agent (the batch is *steered*), when the stream of calls breaks off, or when a hook
ends the run: running calls finish, every other call is skipped, at once or when it would start, and questions to people
about it are void. When the batch is cancelled, running calls are cancelled too.
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
    """Stopper of one batch: `why` says why no more calls may start; it is "" while they may.

    Args: steps: the calls that have arrived; parking: the calls that wait for people, and the calls that depend on
        them; record: records the result of a call; complete: does this for an admitted call, and starts the calls that
        it frees; drain: starts the calls that may start now.
    """

    _runtime: Runtime
    _workers: WorkerPool
    _steps: Sequence[Step]
    _parking: Parking[Step]
    _record: Callable[[Step, CallResult], None]
    _complete: Callable[[Step, CallResult], None]
    _drain: Callable[[], None]
    why: str = ""
    reason: str = ""  # the reason in the results of skipped calls
    fault: Fault | None = None  # the fault of the batch as a whole, if one stopped it
    is_cut_off: bool = False  # whether the batch is cancelled

    def steer(self, why: str) -> None:
        """Skip the calls that have not started or not arrived yet, because a new message has arrived."""
        if not self.is_cut_off:
            self.stop(why, "steered")
            self._drain()

    def stop(self, why: str, reason: str = "dep_failed") -> None:
        """Start no further call and ask nobody any more. Calls that have started or are with a hook go on."""
        if not self.why:
            self.why, self.reason = why, reason
        for step in self._steps:
            if step.result is not None or not step.at:  # `at` is 0 while a call arrives: `arrive` then ends it
                continue
            if step.asking is not None:
                step.asking.cancel()
            elif not step.is_started:
                if step.is_admitted:
                    self._workers.busy -= 1  # the call waited for its turn, a permit or a worker
                self.skip(step, why)

    def skip(self, step: Step, why: str) -> None:
        """End a call that will not start: as parked if it waits for a parked call, else as skipped."""
        if step.result is None:
            self._record(step, self._parking.result(step) or self.held_back(step) or step.skipped(why))

    def may_ask(self, step: Step) -> bool:
        """Return whether people may be asked about a call now. The current task is cancelled if that changes."""
        step.asking = asyncio.current_task()
        return not self.why

    def held_back(self, step: Step) -> CallResult | None:
        """Return the result of a call that must not start any more, and withdraw the question to people about it.

        None if it may start.
        """
        if not self.why:
            return None
        approvals = self._runtime.approvals
        if approvals is not None and (approval_id := approvals.parked.own_approval(step)):
            self._workers.busy += 1
            self._workers.spawn(self._withdraw(approval_id), "take back")
        return step.skipped(self.why, self.reason)

    async def _withdraw(self, approval_id: str) -> None:
        assert self._runtime.approvals is not None
        try:
            await self._runtime.approvals.queue.withdraw(approval_id, self.why)
        finally:
            self._workers.busy -= 1
            self._drain()

    async def abort(self) -> None:
        """Cancel all calls, wait `grace` seconds for them to end, and leave behind those that do not."""
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
        """End each call without a result as cancelled, without waiting for it."""
        self.is_cut_off = True
        for step in self._steps:
            if step.result is None:
                self._complete(step, step.cut(self._runtime))
