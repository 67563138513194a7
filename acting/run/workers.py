"""Hands: tasks that take ready calls off one queue.

While a tool makes a hand wait, others take over; so a call that never waits costs no task, and one that waits costs
one. A hand that is stuck in a tool at its deadline is left behind, and another one goes on without it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from typing import Any

from acting.calls import Scope
from acting.run.authorize import redeem
from acting.run.call.attempt import Launch, begin, finish, timed_out
from acting.run.call.call_state import Step
from acting.run.journal import Minutes
from acting.run.results import reviewed
from acting.run.runtime import Stage
from spar.failpoints import crashpoint
from spar.types import CallResult

INLINE_LIMIT = 32  # calls in a row in one hand, before others get their turn
LARGEST_CREW = 64  # hands put to the queue at once


class OthersTurn:
    """Awaited, lets every other task run once: `asyncio.sleep(0)` without its frames."""

    def __await__(self) -> Generator[None, None, None]:
        yield


OTHERS_TURN = OthersTurn()


class Hands:
    """The hands of one tick. `launch(step)` is asked when a call begins, `ended(step, result)` told when it has ended,
    `broke(error)` when a hand breaks down over what is no fault of a tool. `held_back(step)` is asked after each wait
    before a call begins: its result, if it is not to begin any more."""

    def __init__(
        self,
        stage: Stage,
        scope: Scope,
        minutes: Minutes | None,
        launch: Callable[[Step], Launch],
        ended: Callable[[Step, CallResult], None],
        held_back: Callable[[Step], CallResult | None],
        broke: Callable[[BaseException], None],
    ) -> None:
        self._stage, self._scope, self._minutes = stage, scope, minutes
        self._launch, self._ended, self._held_back, self._broke = launch, ended, held_back, broke
        self.tasks: set[asyncio.Task[Any]] = set()
        self._queue: deque[Step] = deque()
        self._count = 0  # at work or about to be
        self._free = 0  # of them that are going to look at the queue
        self._crew = 1  # how many are put to the queue at once; doubles while calls turn out to wait

    def offer(self, step: Step) -> None:
        """A call may run, as soon as a hand is free for it."""
        self._queue.append(step)
        if not self._free:
            self._man()

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Do other work of this tick in a task of its own."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def _man(self) -> None:
        """Put hands to the queue, as many as it and the limit have room for."""
        for _ in range(min(self._crew, len(self._queue), self._stage.limits.max_parallel - self._count)):
            self._free += 1
            self._count += 1
            self.spawn(self._work(), "calls")

    async def _work(self) -> None:
        step: Step | None = None
        turns = 0
        try:
            while self._queue:
                step = self._queue.popleft()
                if step.result is not None:
                    continue
                step.is_started = True
                if step.ticket and not await self._may_begin(step):
                    continue
                if self._stage.spending is not None:
                    self._stage.spending.begin(step, self._scope)
                if self._minutes is not None and self._minutes.start(step) and not await self._is_written(step):
                    continue
                launch = self._launch(step)
                ended = begin(self._stage, launch)
                crashpoint("act.spawned")
                if ended is None:
                    self._hand_over()
                    turns = 0
                    ended = await finish(self._stage, launch, self._leave, step)
                    if ended is None:
                        return
                    self._free += 1
                step.draft = launch.result(self._stage.clock, ended)
                if self._stage.hooks is not None and self._stage.reviews:
                    self._hand_over()
                    step.draft = await reviewed(self._stage, self._scope, step.draft)
                    self._free += 1
                self._ended(step, step.draft)
                turns += 1
                if turns >= INLINE_LIMIT:
                    turns = 0
                    await OTHERS_TURN
            self._free -= 1
            self._count -= 1
            self._crew = 1
        except asyncio.CancelledError:
            # The run is cancelled, or the tool has cancelled its own task: then others go on.
            self._count -= 1
            if step is not None and step.result is None:
                self._ended(step, step.cut(self._stage))
            if not self._free and any(each.result is None for each in self._queue):
                self._man()
            raise
        except BaseException as error:
            self._broke(error)
            raise

    async def _may_begin(self, step: Step) -> bool:
        """Use the approval that it has; it ends when that is not good any more."""
        step.allowed = step.ticket
        self._hand_over()
        against = await redeem(self._stage, step) or self._held_back(step)
        self._free += 1
        if against is not None:
            self._ended(step, against)
        return against is None

    async def _is_written(self, step: Step) -> bool:
        """Wait until it is on disk that it starts; it ends when that cannot be."""
        assert self._minutes is not None
        self._hand_over()
        against = await self._minutes.safe(step) or self._held_back(step)
        self._free += 1
        if against is not None:
            self._ended(step, against)
        return against is None

    def _hand_over(self) -> None:
        """This hand is about to wait: let others look after the queue."""
        self._free -= 1
        if self._queue and not self._free:
            self._crew = min(2 * self._crew, LARGEST_CREW)
            self._man()

    def _leave(self, step: Step) -> None:
        """Called by the deadline: the hand is stuck in its tool and the run goes on without it."""
        launch = step.launch
        assert launch is not None
        assert launch.task is not None
        self.tasks.discard(launch.task)
        self._stage.leave(launch.task)
        self._count -= 1
        step.draft = launch.result(self._stage.clock, timed_out(launch))
        if self._stage.reviews:
            self.spawn(self._close(step), step.call.tool)
        else:
            self._ended(step, step.draft)
        if self._queue and not self._free:
            self._man()

    async def _close(self, step: Step) -> None:
        assert step.draft is not None
        try:
            step.draft = await reviewed(self._stage, self._scope, step.draft)
        finally:
            self._ended(step, step.draft)
