"""A plan that is still being written while its first calls already run.

A planner streams by being an async generator (or returning an async iterator) of calls, as `Call`s or wire
objects; an `Action` among them sets goal, reason, output and the like. A task of its own writes the plan down;
the actor reads behind it. An act phase that cannot stream simply gets the finished action.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from typing import Any

from spar.checks import json_problem
from spar.clock import Clock, Timer
from spar.errors import ContractError, PhaseTimeoutError
from spar.loop.wake import Signal
from spar.ports.optional import ClosableStream, offers
from spar.ports.trust import answering
from spar.types import Action, ActionResult, Call, Perception, replace

#: A plan longer than this is a fault of its planner.
MOST_CALLS = 100_000


class OpenPlan:
    """An action that grows. `written` says whether it is finished; `error` what broke it off.

    Args: leave: told of the task that writes when it was cancelled, so that it is accounted for until it ends.
    """

    def __init__(self, source: AsyncIterator[Any], perceptions: Sequence[Perception], name: str, clock: Clock,
                 leave: Callable[[asyncio.Task[None]], object]) -> None:  # fmt: skip
        self._source, self._name, self._clock, self._leave = source, name, clock, leave
        self._noticed = tuple(perceptions)
        self._head = Action(perceptions=self._noticed)
        self._calls: list[Call] = []
        self._has_head = False
        self._task: asyncio.Task[None] | None = None
        self._timer: Timer | None = None
        self._late: PhaseTimeoutError | None = None
        self._news = Signal()
        self._tell: Callable[[Action, BaseException | None], object] | None = None
        self.written = False
        self.error: BaseException | None = None

    @property
    def action(self) -> Action:
        """The plan as far as it is written."""
        return replace(self._head, calls=tuple(self._calls))

    @property
    def head(self) -> Action:
        """The action without its calls, as the act phase is given it: those come one by one."""
        return self._head

    @property
    def degraded(self) -> bool:
        return self._head.degraded

    @property
    def next_look(self) -> float | None:
        return self._head.next_look

    @property
    def deferred(self) -> str:
        return self._head.deferred

    def completed(self, product: Any) -> Any:
        """Return what the act phase brought, with the whole plan in the place of the head that it was given."""
        action = product.action if isinstance(product, ActionResult) else None
        if action is None or action.id != self._head.id:
            return product
        return replace(product, action=replace(self._head, calls=action.calls or tuple(self._calls)))

    async def begin(self, timeout: float, grace: float, *, at_once: bool) -> Action | OpenPlan | None:
        """Write until there is a first call (`at_once`) or to the end.

        Returns: this open plan when there is more to come, else the action, or None for nothing to do.
        Raises: what the planner raised, unless a call was already handed out.
        """
        self._task = asyncio.get_running_loop().create_task(self._write(), name=f"plan of {self._name}")
        if timeout < float("inf"):
            self._timer = self._clock.call_at(self._clock.monotonic() + timeout, lambda: self._is_due(timeout, grace))
        try:
            while not self.written and not (at_once and self._calls):
                await self._news.wait()
        except BaseException:
            self.close()
            raise
        if not self.written:
            return self
        if self.error is not None:
            raise self.error
        return self.action if self._calls or self._has_head else None

    async def calls(self) -> AsyncIterator[Call]:
        """The calls in the order written, each as soon as it is; ends with the plan and raises what broke it off.

        A planner that cancels itself has said all it had to say.
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
            await self._news.wait()

    def when_written(self, tell: Callable[[Action, BaseException | None], object]) -> None:
        """Have `tell(action, error)` called once the plan is finished or broken off (at once if it is already)."""
        self._tell = tell
        if self.written:
            tell(self.action, self.error)

    def close(self) -> None:
        """No more is wanted: what is not written by now never will be. Idempotent."""
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
                    break  # it was cancelled and goes on: nobody listens any more
                self._take(item)
                self._news.set()
        except GeneratorExit as caught:
            stand_in = RuntimeError(f"{self._name} raised GeneratorExit")
            stand_in.__cause__ = caught
            self._end(stand_in)  # whoever reads behind must not be closed by it
            return
        except BaseException as caught:
            error = caught
        self._end(error)
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise error
        if offers(self._source, ClosableStream):
            with contextlib.suppress(Exception):  # of one that was not read to its end; why is said already
                await self._source.aclose()

    def _take(self, item: Any) -> None:
        if isinstance(item, Action):
            if problem := json_problem(item.output):
                raise ContractError(f"{self._name} must put JSON into Action.output: {problem}")
            # Once a call is handed out the action is known by its id.
            known = self._head.id if self._calls else item.id
            named = item.perceptions or self._head.perceptions
            self._head = answering(replace(item, id=known, calls=(), perceptions=named), self._noticed)
            self._has_head = True
            self._calls.extend(item.calls)
        elif isinstance(item, Call):
            self._calls.append(item)
        elif isinstance(item, Mapping):
            self._calls.append(Call.from_wire(item))
        else:
            raise ContractError(f"{self._name} must yield Call, a wire object or Action, found {type(item).__name__}")
        if len(self._calls) > MOST_CALLS:
            raise ContractError(f"{self._name} planned more than {MOST_CALLS} calls")

    def _is_due(self, timeout: float, grace: float) -> None:
        self._late = PhaseTimeoutError(f"took longer than {timeout:g} s to write its plan and was cancelled")
        self._cancel()
        self._timer = self._clock.call_at(self._clock.monotonic() + grace, self._is_left)

    def _is_left(self) -> None:
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
        self._news.set()
        if self._tell is not None:
            self._tell(self.action, error)


def joined(first: Action, then: Action | OpenPlan | None) -> Action:
    """One action of what goes on and what was planned."""
    return replace(_going_on(then), calls=(*first.calls, *then.calls)) if isinstance(then, Action) else first


def _going_on(action: Action) -> Action:
    """The action without being put off: calls of its run go on in this cycle, and the next one is planned from them."""
    return replace(action, deferred="", next_look=None) if action.deferred else action


async def led(calls: Sequence[Call], rest: Any) -> AsyncGenerator[Any]:
    """Yield these calls, then what a planner streams."""
    source = rest.__aiter__()
    try:
        for call in calls:
            yield call
        async for item in source:
            yield _going_on(item) if isinstance(item, Action) else item
    finally:
        if offers(source, ClosableStream):
            await source.aclose()
