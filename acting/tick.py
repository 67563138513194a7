"""One run of calls: they arrive, start the moment nothing blocks them, end, and free others.

It wakes on exactly two things, a call arrived and a call ended, and touches only what that may unblock. Ready calls
stand in a queue that *hands* work off: a hand is a task that takes one call after the other, and while a tool makes
it wait, the next hand takes over. So a call that never waits costs no task, and one that waits costs one. The graph
decides what is ready, `launch` carries out, the board holds the data; this file only brings them together and owes
one result for each call, whatever happens.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine, Generator
from contextvars import copy_context
from typing import Any, cast

from acting.approvals import Confirm
from acting.board import Board
from acting.detached import detach
from acting.gate import pass_gate, passes
from acting.graph import Graph
from acting.launch import Launch, begin, finish, timed_out
from acting.ledger import Ledger, reviewed
from acting.paths import Path, shorten
from acting.reading import read
from acting.stage import Scope, Stage, fault, fault_of
from acting.step import Step
from spar.events import CallCompleted, CallFailed, CallProposed, CallSkipped
from spar.types import Action, ActionResult, CallResult, Fault, replace

INLINE_LIMIT = 32  # calls in a row in one hand, before others get their turn
READ_LIMIT = 64  # calls read in a row from a list, likewise

_END_EVENTS: dict[str, Any] = {"ok": CallCompleted, "skipped": CallSkipped, "denied": CallSkipped}


class _OthersTurn:
    """Awaited, lets every other task run once: `asyncio.sleep(0)` without its frames."""

    def __await__(self) -> Generator[None, None, None]:
        yield


_OTHERS_TURN = _OthersTurn()


class Tick:
    """See the module. `read` the calls, then `settle`, then `result`; `abort` instead when cancelled."""

    def __init__(self, stage: Stage, board: Board, confirm: Confirm | None, scope: Scope,
                 resume: ActionResult | None = None) -> None:  # fmt: skip
        self.steps: list[Step] = []
        self.fault: Fault | None = None
        self._stage, self._board, self._confirm, self._scope = stage, board, confirm, scope
        self._graph = Graph(board.has)
        self._ledger = Ledger(stage, board, self._graph, resume)
        self._ended = {each.call.id: each for each in resume.results if is_final(each)} if resume else {}
        self._context = copy_context()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._queue: deque[Step] = deque()  # may run now, but for a hand
        self._hands = 0  # that are at work or about to be
        self._is_manned = False  # one of them is going to look at the queue
        self._busy = 0  # calls that are admitted, and without a result
        self._is_closed = self._is_aborted = False
        self._stopped = ""  # why nothing further is started
        self._breakdown: BaseException | None = None
        self._done: asyncio.Future[None] | None = None

    # -- arrival

    async def read(self, calls: Any) -> None:
        """Take in every item of a list or stream; what a stream raises becomes the tick's `fault`."""
        try:
            if hasattr(calls, "__aiter__"):
                async for item in calls:
                    self.arrive(item)
            else:
                for count, item in enumerate(calls, 1):
                    self.arrive(item)
                    if count % READ_LIMIT == 0:
                        await _OTHERS_TURN
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                raise
            self.fault = fault_of(error, "plan")
            self._stop("the plan broke off before this call had started")

    def arrive(self, item: Any) -> None:
        call, wrong = read(item)
        step = Step(call)
        self.steps.append(step)
        if self._stage.hears(CallProposed):
            self._stage.publish(CallProposed(call=call, cycle_id=self._scope.cycle_id))
        why: Fault | None
        reads: tuple[Path, ...] = ()
        if wrong:
            why = fault("bad_call", wrong, call.tool)
        elif self._graph.knows(call.id):
            why = fault("duplicate_id", f"an earlier call has the id {shorten(call.id)} already", call.tool)
        else:
            reads, why = step.examine(self._stage, self._board)
            if why is None and self._ended and (ended := self._ended.get(call.id)) is not None:
                self._adopt(step, ended)
                return
        if why is not None:
            self._graph.refuse(step, step.path)
        elif not self._graph.add(step, reads, step.path, call.after):
            why = fault("cycle", "it waits for itself, directly or through others", call.tool)
        if why is not None:
            self._finish(step, step.failed(why))
        self._drain()

    def _adopt(self, step: Step, ended: CallResult) -> None:
        """It ended in the run that this one resumes: what it wrote stands already, and it is not done again."""
        self._graph.refuse(step, step.path)
        step.result = replace(ended, call=step.call)
        self._graph.end(step, ended.status == "ok")
        self._drain()

    # -- starting

    def _drain(self) -> None:
        """Act on what the graph says until it says nothing more."""
        graph = self._graph
        while not self._is_aborted:
            while graph.doomed or graph.ready:
                while graph.doomed:
                    self._skip(cast(Step, graph.doomed.pop()), "a call that it is to run after did not end well")
                ready, graph.ready = graph.ready, []
                for node in ready:
                    step = cast(Step, node)
                    if step.result is None:
                        self._start(step)
            if not self._is_closed or self._busy:
                return
            stuck = graph.stuck()
            if stuck is None:
                self._finish_waiting()
                return
            for node in stuck[0]:
                step = cast(Step, node)
                if stuck[1] == "dep_failed":
                    self._skip(step, stuck[2])
                else:
                    self._finish(step, step.failed(fault(stuck[1], stuck[2], step.call.tool)))

    def _start(self, step: Step) -> None:
        """Set a ready step going."""
        if self._stopped:
            self._skip(step, self._stopped)
        elif step.is_reading and (why := step.take_values(self._board)):
            self._finish(step, step.failed(why))
        else:
            self._busy += 1
            step.is_admitted = True
            if passes(self._stage, step, self._scope):
                self._go(step)
            else:
                step.is_started = True
                self._spawn(self._gated(step), step.call.tool)

    def _go(self, step: Step) -> None:
        """It may run: detached, or by a hand as soon as its gates are open."""
        if step.is_detached:
            step.is_started = True
            self._busy -= 1
            self._finish(step, detach(self._stage, self._launch(step), self._stage.gates_of(step)))
            return
        step.is_started = False  # while it waits for a gate it can still be skipped
        gates = self._stage.gates_of(step)
        if gates:
            step.gates = gates
            if not self._pass(step):
                return
        self._offer(step)

    def _pass(self, step: Step) -> bool:
        """Take the gates that it has not passed yet; False when it must wait at one."""
        while step.passed < len(step.gates):
            if not step.gates[step.passed].take(self._opened, step):
                return False
            step.passed += 1
        return True

    def _opened(self, step: Step) -> bool:
        """The gate that it waited at is open for it."""
        if step.result is not None or self._is_aborted:
            return False
        step.passed += 1
        if self._pass(step):
            self._offer(step)
        return True

    def _offer(self, step: Step) -> None:
        self._queue.append(step)
        if not self._is_manned and self._hands < self._stage.limits.max_parallel:
            self._man()

    def _man(self) -> None:
        """Put one more hand to the queue."""
        self._is_manned = True
        self._hands += 1
        self._spawn(self._work(), "calls")

    def _launch(self, step: Step) -> Launch:
        step.began = self._ledger.moment()
        launch = step.launch = Launch(step.call, step.entry, step.arguments, self._scope, self._context)
        return launch

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- carrying out

    async def _work(self) -> None:
        """A hand: take calls off the queue until it is empty."""
        step: Step | None = None
        turns = 0
        try:
            while self._queue:
                step = self._queue.popleft()
                if step.result is not None:
                    continue
                step.is_started = True
                launch = self._launch(step)
                ended = begin(self._stage, launch)
                if ended is None:
                    self._hand_over()
                    turns = 0
                    ended = await finish(self._stage, launch, self._leave, step)
                    if ended is None:
                        return
                    self._is_manned = True
                step.draft = launch.result(self._stage.clock, ended)
                if self._stage.reviews:
                    self._hand_over()
                    step.draft = await reviewed(self._stage, self._scope, step.draft)
                    self._is_manned = True
                self._complete(step, step.draft)
                turns += 1
                if turns >= INLINE_LIMIT:
                    turns = 0
                    await _OTHERS_TURN
            self._is_manned = False
            self._hands -= 1
        except asyncio.CancelledError:
            if step is not None and step.result is None:
                self._complete(step, step.cut(self._stage))
            raise
        except BaseException as error:
            self._break_down(error)
            raise

    def _hand_over(self) -> None:
        """This hand is about to wait: let another one look after the queue."""
        self._is_manned = False
        if self._queue and self._hands < self._stage.limits.max_parallel:
            self._man()

    async def _gated(self, step: Step) -> None:
        try:
            against, ends_run = await pass_gate(
                self._stage, self._board, step, self._confirm, self._scope, self._graph.ended_well
            )
            if ends_run and self.fault is None and against is not None:
                self.fault = against.fault
            if against is None and self._stopped:
                against = step.skipped(self._stopped)
            if against is None:
                self._go(step)
                self._drain()
                return
            if ends_run:
                self._stop("a hook ended the run before this call had started")
            self._busy -= 1
            self._finish(step, against)
            self._drain()
        except asyncio.CancelledError:
            if step.result is None and not self._is_aborted and not step.launch:
                self._complete(step, step.cut(self._stage))
            raise
        except BaseException as error:
            self._break_down(error)
            raise

    def _leave(self, step: Step) -> None:
        """Called by the deadline: the hand is stuck in its tool and the run goes on without it."""
        launch = step.launch
        assert launch is not None
        assert launch.task is not None
        self._tasks.discard(launch.task)
        self._stage.leave(launch.task)
        self._hands -= 1
        step.draft = launch.result(self._stage.clock, timed_out(launch))
        if self._stage.reviews:
            self._spawn(self._close(step), step.call.tool)
        else:
            self._complete(step, step.draft)
        if not self._is_manned:
            self._hand_over()

    async def _close(self, step: Step) -> None:
        assert step.draft is not None
        try:
            step.draft = await reviewed(self._stage, self._scope, step.draft)
        finally:
            self._complete(step, step.draft)

    # -- ending

    def _complete(self, step: Step, result: CallResult) -> None:
        """An admitted step has ended: finish it and start what it frees."""
        if step.result is None:
            self._busy -= 1
            self._finish(step, result)
            self._drain()

    def _finish(self, step: Step, result: CallResult) -> None:
        """Keep the result, write what it brought, tell it and free what waits for it."""
        if step.passed:
            self._release(step)
        if result.status == "ok" and result.reason != "detached":
            result = self._ledger.keep(step, result)
        step.result = result
        kind = _END_EVENTS.get(result.status, CallFailed)
        if result.reason != "detached" and self._stage.hears(kind):
            self._stage.publish(kind(call=result.call, cycle_id=self._scope.cycle_id, result=result))
        self._graph.end(step, result.status == "ok")

    def _release(self, step: Step) -> None:
        held, step.passed = step.gates[: step.passed], 0
        for gate in held:
            gate.release()

    def _skip(self, step: Step, why: str) -> None:
        if step.result is None:
            self._finish(step, step.skipped(why))

    # -- the end of the run

    async def settle(self) -> None:
        """No further calls come: return when each has its result."""
        self._is_closed = True
        self._drain()
        if self._breakdown is None and not all(step.result for step in self.steps):
            self._done = asyncio.get_running_loop().create_future()
            await self._done
        if self._breakdown is not None:
            raise self._breakdown

    async def abort(self) -> None:
        """Cancel everything, wait a moment for it to end, leave behind what does not."""
        self._is_aborted = True
        for step in self.steps:
            if step.result is None and not step.is_started:
                self._finish(step, step.cut(self._stage))
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        try:
            tasks = await self._stage.settle(tasks, self._stage.limits.grace)
        finally:
            for task in tasks:
                self._stage.leave(task)
            self.give_up()

    def give_up(self) -> None:
        """Wait for nothing further: each call that has no result yet was cut off."""
        self._is_aborted = True
        for step in self.steps:
            if step.result is None:
                self._complete(step, step.cut(self._stage))

    def _stop(self, why: str) -> None:
        """Start nothing further; what has started goes on."""
        self._stopped = why
        for step in self.steps:
            if step.result is None and not step.is_started:
                if step.is_admitted:
                    self._busy -= 1  # it waited for a gate or a hand
                self._skip(step, why)

    def _break_down(self, error: BaseException) -> None:
        self._breakdown = error
        self._finish_waiting()

    def _finish_waiting(self) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_result(None)

    def result(self, action: Action, began: float) -> ActionResult:
        """What became of it all."""
        results = tuple(step.result for step in self.steps if step.result is not None)
        duration = self._stage.clock.monotonic() - began
        return self._ledger.outcome(action, results, self.fault, interrupted=self._is_aborted, duration=duration)


def is_final(result: CallResult) -> bool:
    """Whether a call of a run that was cut is not to be done again: it ended, or may have had its effect."""
    return result.status not in ("cancelled", "skipped")
