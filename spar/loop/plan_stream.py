"""Plan that is still being written while its first calls already run.

A planner streams when it is an async generator, or returns an async iterator, of calls (`Call`s or wire objects, which
are dicts). An `Action` among them sets goal, reason, output and other fields. A separate task collects what the planner
yields; the actor reads the calls from the collected plan. An actor that cannot stream gets the finished action.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from typing import Any

from spar.checks import json_problem
from spar.clock import Clock, Signal, Timer
from spar.errors import ContractError, PhaseTimeoutError
from spar.ports.any_part import offers
from spar.types import Action, ActionResult, Call, Perception, answering, copy_with, replace

#: Most calls of one plan. A longer plan is a fault of its planner.
MOST_CALLS = 100_000


class OpenPlan:
    """Action that grows. `written` says whether it is finished; `error` is the exception that ended it early.

    The *head* is the action without its calls.
    Args: source: the planner's iterator; perceptions: the input of the planner; name: the planner's name; leave: called
        with the task that reads the planner when this task is cancelled, so that it is counted until it ends.
    """

    def __init__(self, source: AsyncIterator[Any], perceptions: Sequence[Perception], name: str, clock: Clock,
                 leave: Callable[[asyncio.Task[None]], object]) -> None:  # fmt: skip
        self._source, self._name, self._clock, self._leave = source, name, clock, leave
        self._noticed = tuple(perceptions)
        self._head: Action | None = None  # until it is asked for, or the planner gives one
        self._calls: list[Call] = []
        self._task: asyncio.Task[None] | None = None
        self._timer: Timer | None = None
        self._late: PhaseTimeoutError | None = None
        self._progress = Signal()
        self._when_written: Callable[[Action, BaseException | None], object] | None = None
        self.written = False
        self.error: BaseException | None = None

    @property
    def action(self) -> Action:
        """Return the action with the calls written so far."""
        return copy_with(self.head, calls=tuple(self._calls))

    @property
    def head(self) -> Action:
        """Return the action without calls, as the act phase gets it; the calls follow one by one."""
        if self._head is None:
            self._head = Action(perceptions=self._noticed)
        return self._head

    @property
    def degraded(self) -> bool:
        return self.head.degraded

    @property
    def next_look(self) -> float | None:
        return self.head.next_look

    @property
    def deferred(self) -> str:
        return self.head.deferred

    def completed(self, product: Any) -> Any:
        """Return the product of the act phase; where its action is this one, with the calls of the whole plan."""
        action = product.action if isinstance(product, ActionResult) else None
        if action is None or action.id != self.head.id:
            return product
        return copy_with(product, action=copy_with(self.head, calls=action.calls or tuple(self._calls)))

    async def begin(self, timeout: float, grace: float, *, at_once: bool) -> Action | OpenPlan | None:
        """Read the planner until its first call (`at_once`) or until the end of the plan; the task reads on after that.

        Returns: this open plan when more may follow, else the action, or None for nothing to do.
        Raises: what the planner raised, unless this plan was returned before; then `calls` raises it.
        """
        self._task = asyncio.get_running_loop().create_task(self._write(), name=f"plan of {self._name}")
        if timeout < float("inf"):
            self._timer = self._clock.call_at(self._clock.monotonic() + timeout, lambda: self._expire(timeout, grace))
        try:
            while not self.written and not (at_once and self._calls):
                await self._progress.wait()
        except BaseException:
            self.close()
            raise
        if not self.written:
            return self
        if self.error is not None:
            raise self.error
        return self.action if self._calls or self._head is not None else None

    async def calls(self) -> AsyncIterator[Call]:
        """Yield the calls in the order written, each as soon as it is written.

        Ends with the plan. A planner that cancels itself has finished its plan.
        Raises: the exception that ended the plan early.
        """
        index = 0
        while True:
            while index < len(self._calls):
                yield self._calls[index]
                index += 1
            if self.written:
                if self.error is not None and not isinstance(self.error, asyncio.CancelledError):
                    raise self.error
                return
            await self._progress.wait()

    def when_written(self, tell: Callable[[Action, BaseException | None], object]) -> None:
        """Call `tell(action, error)` once the plan is finished or has failed; at once if it already is."""
        self._when_written = tell
        if self.written:
            tell(self.action, self.error)

    def close(self) -> None:
        """End the plan with what is written so far. Idempotent."""
        self._cancel()
        self._end(None)

    def _cancel(self) -> None:
        if self._task is not None and not self._task.done():
            self._task.cancel()
            self._leave(self._task)

    async def _write(self) -> None:
        error: BaseException | None = None
        try:
            async for item in self._source:
                if self.written or self._late is not None:
                    break  # the planner ignores its cancellation, and the plan has ended without it
                self._add_item(item)
                self._progress.set()
        except GeneratorExit as caught:
            stand_in = RuntimeError(f"{self._name} raised GeneratorExit")
            stand_in.__cause__ = caught
            self._end(stand_in)  # GeneratorExit itself would close the reader of `calls`
            return
        except BaseException as caught:
            error = caught
        self._end(error)
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise error
        with contextlib.suppress(Exception):  # the source was not read to its end; the reason is already reported
            await _close(self._source)

    def _add_item(self, item: Any) -> None:
        if isinstance(item, Action):
            if problem := json_problem(item.output):
                raise ContractError(f"{self._name} must put JSON into Action.output: {problem}")
            # Once a call is handed out, the actor knows the action by its id.
            action_id = self.head.id if self._calls else item.id
            perceptions = item.perceptions or (self._noticed if self._head is None else self._head.perceptions)
            head = copy_with(item, id=action_id, calls=(), perceptions=perceptions)
            self._head = answering(head, self._noticed)
            self._calls.extend(item.calls)
        elif isinstance(item, Call):
            self._calls.append(item)
        elif isinstance(item, Mapping):
            self._calls.append(Call.from_wire(item))
        else:
            raise ContractError(f"{self._name} must yield Call, a wire object or Action, found {type(item).__name__}")
        if len(self._calls) > MOST_CALLS:
            raise ContractError(f"{self._name} planned more than {MOST_CALLS} calls")

    def _expire(self, timeout: float, grace: float) -> None:
        self._late = PhaseTimeoutError(f"took longer than {timeout:g} s to write its plan and was cancelled")
        self._cancel()
        self._timer = self._clock.call_at(self._clock.monotonic() + grace, self._leave_behind)

    def _leave_behind(self) -> None:
        assert self._late is not None
        self._late.was_left_behind = True
        self._end(None)

    def _end(self, error: BaseException | None) -> None:
        if self.written:
            return
        error = self._late or error
        self.written, self.error = True, error
        if self._timer is not None:
            self._timer.cancel()
        self._progress.set()
        if self._when_written is not None:
            self._when_written(self.action, error)


def join_actions(first: Action, then: Action | OpenPlan | None) -> Action:
    """Return one action with the calls of a continued action (`first`) and of a new plan (`then`).

    A continued action holds calls of an earlier cycle that waited for people; they run first.
    """
    return replace(_without_deferral(then), calls=(*first.calls, *then.calls)) if isinstance(then, Action) else first


def _without_deferral(action: Action) -> Action:
    """Return the action without `deferred`, the planner's reason to wait: the cycle runs calls meanwhile, and the next
    plan builds on their results."""
    return replace(action, deferred="", next_look=None) if action.deferred else action


async def prepend_calls(calls: Sequence[Call], stream: Any) -> AsyncGenerator[Any]:
    """Yield these calls, then the items that a planner streams."""
    source = stream.__aiter__()
    try:
        for call in calls:
            yield call
        async for item in source:
            yield _without_deferral(item) if isinstance(item, Action) else item
    finally:
        await _close(source)


async def _close(source: object) -> None:
    """Close a stream that can be closed."""
    from spar.ports.phases import ClosableStream  # of no use to an agent whose plans are whole

    if offers(source, ClosableStream):
        await source.aclose()
