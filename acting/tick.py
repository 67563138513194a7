"""One run of calls: they arrive, start the moment nothing blocks them, end, and free others.

It wakes on exactly two things, a call arrived and a call ended, and touches only what that may unblock. A
worker task that ends a call goes on with the first call that this freed, in the same task; the others get
tasks of their own. The graph decides what is ready, `launch` carries out, the board holds the data; this file
only brings them together and owes one result for each call, whatever happens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from typing import Any, cast

from acting.approvals import Confirm
from acting.board import Board
from acting.detached import detach
from acting.gate import pass_gate
from acting.graph import Graph
from acting.launch import Launch, perform, timed_out
from acting.ledger import Ledger, fit, reviewed
from acting.paths import Path, shorten
from acting.reading import read
from acting.slots import Slots
from acting.stage import Scope, Stage, fault, fault_of
from acting.step import Step
from spar.events import CallCompleted, CallFailed, CallProposed, CallSkipped
from spar.types import Action, ActionResult, CallResult, Fault

INLINE_LIMIT = 32  # calls in a row in one task, before others get their turn
READ_LIMIT = 64  # calls read in a row from a list, likewise

_END_EVENTS: dict[str, Callable[..., Any]] = {"ok": CallCompleted, "skipped": CallSkipped, "denied": CallSkipped}


class Tick:
    """See the module. `arrive` each call, then `settle`, then `result`; `abort` instead when cancelled."""

    def __init__(self, stage: Stage, board: Board, confirm: Confirm | None, scope: Scope) -> None:
        self.steps: list[Step] = []
        self.fault: Fault | None = None
        self._stage, self._board, self._confirm, self._scope = stage, board, confirm, scope
        self._graph = Graph(board.has)
        self._slots = Slots(stage.limits.max_parallel)
        self._ledger = Ledger(stage, board, self._graph)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._context = copy_context()
        self._busy = 0  # admitted, and without a result
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
                        await self._stage.clock.sleep(0)
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
        if self._stage.events is not None:
            self._stage.tell(CallProposed, call=call, cycle_id=self._scope.cycle_id)
        write, why = None, None
        reads: tuple[Path, ...] = ()
        if wrong:
            why = fault("bad_call", wrong, call.tool)
        elif self._graph.knows(call.id):
            why = fault("duplicate_id", f"an earlier call has the id {shorten(call.id)} already", call.tool)
        else:
            reads, write, why = step.examine(self._stage, self._board)
        if why is not None:
            self._graph.refuse(step, write)
        elif not self._graph.add(step, reads, write, call.after):
            why = fault("cycle", "it waits for itself, directly or through others", call.tool)
        if why is not None:
            self._finish(step, step.failed(why))
        self._drain()

    # -- starting

    def _drain(self, inline: bool = False) -> Step | None:
        """Act on what the graph says until it says nothing more; a step to go on with in this task, if allowed."""
        graph, chosen = self._graph, None
        while not self._is_aborted:
            while graph.doomed or graph.ready:
                while graph.doomed:
                    self._skip(cast(Step, graph.doomed.pop()), "a call that it is to run after did not end well")
                ready, graph.ready = graph.ready, []
                for node in ready:
                    step = cast(Step, node)
                    if step.result is None and self._start(step, inline and chosen is None):
                        chosen = step
            if not self._is_closed or self._busy:
                break
            stuck = graph.stuck()
            if stuck is None:
                self._finish_waiting()
                break
            for node in stuck[0]:
                step = cast(Step, node)
                if stuck[1] == "dep_failed":
                    self._skip(step, stuck[2])
                else:
                    self._finish(step, step.failed(fault(stuck[1], stuck[2], step.call.tool)))
        return chosen

    def _start(self, step: Step, inline: bool) -> bool:
        """Set a ready step going; True if the caller is to carry it out itself."""
        proposal = step.proposal
        assert proposal is not None
        if self._stopped:
            self._skip(step, self._stopped)
            return False
        if why := step.take_values(self._board):
            self._finish(step, step.failed(why))
            return False
        self._busy += 1
        if proposal.entry.terms.approval != "auto" or self._stage.asks("before_call"):
            step.is_started = True
            self._spawn(self._gated(step), step)
            return False
        return self._go(step, inline)

    def _go(self, step: Step, inline: bool) -> bool:
        """It may run: detached, in this task (True), in a task of its own, or when a slot is free."""
        proposal = step.proposal
        assert proposal is not None
        if proposal.is_detached:
            step.is_started = True
            self._busy -= 1
            self._finish(step, detach(self._stage, self._launch(step)))
            return False
        step.is_started = False  # while it waits for a slot it can still be skipped
        if not proposal.entry.slots.take(self._entered, step) or not self._slots.take(self._called, step):
            return False
        step.is_started = step.holds = True
        if not inline:
            self._spawn(self._work(step), step)
        return inline

    def _entered(self, step: Step) -> bool:
        """A slot of the tool is free for it; it still needs one of the run."""
        if step.result is not None or self._is_aborted:
            return False
        return not self._slots.take(self._called, step) or self._called(step)

    def _called(self, step: Step) -> bool:
        """A slot of the run is free for it, and it has one of its tool."""
        assert step.proposal is not None
        if step.result is not None or self._is_aborted:
            step.proposal.entry.slots.release()
            return False
        step.is_started = step.holds = True
        self._spawn(self._work(step), step)
        return True

    def _launch(self, step: Step) -> Launch:
        proposal = step.proposal
        assert proposal is not None
        step.began = self._ledger.moment()
        step.launch = Launch(proposal.call, proposal.entry, proposal.arguments, self._scope, self._context)
        return step.launch

    def _spawn(self, work: Coroutine[Any, Any, None], step: Step) -> None:
        task = asyncio.get_running_loop().create_task(work, name=step.call.tool)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- carrying out

    async def _gated(self, step: Step) -> None:
        proposal = step.proposal
        assert proposal is not None
        try:
            against, ends_run = await pass_gate(
                self._stage, self._board, proposal, self._confirm, self._scope, self._graph.ended_well
            )
            step.call = proposal.call
            if ends_run and self.fault is None and against is not None:
                self.fault = against.fault
            if against is None and self._stopped:
                against = step.skipped(self._stopped)
            if against is None:
                if self._go(step, inline=True):
                    await self._work(step)
                else:
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

    async def _work(self, step: Step | None) -> None:
        turns = 0
        try:
            while step is not None:
                ended = await perform(self._stage, self._launch(step), self._leave, step)
                if ended is None:
                    return
                assert step.launch is not None
                step.draft = step.launch.result(self._stage.clock, ended, fit(self._stage, ended.value))
                if self._stage.hooks is not None:
                    step.draft = await reviewed(self._stage, self._scope, step.draft)
                turns += 1
                step = self._complete(step, step.draft, inline=turns < INLINE_LIMIT)
        except asyncio.CancelledError:
            if step is not None and step.result is None:
                self._complete(step, step.cut(self._stage))
            raise
        except BaseException as error:
            self._break_down(error)
            raise

    def _leave(self, step: Step) -> None:
        """Called by the deadline: the task is stuck in its tool and the run goes on without it."""
        launch = step.launch
        assert launch is not None
        assert launch.task is not None
        self._tasks.discard(launch.task)
        self._stage.leave(launch.task)
        step.draft = launch.result(self._stage.clock, timed_out(launch))
        if self._stage.hooks is not None:
            self._spawn(self._close(step), step)
        else:
            self._complete(step, step.draft)

    async def _close(self, step: Step) -> None:
        assert step.draft is not None
        try:
            step.draft = await reviewed(self._stage, self._scope, step.draft)
        finally:
            self._complete(step, step.draft)

    # -- ending

    def _complete(self, step: Step, result: CallResult, *, inline: bool = False) -> Step | None:
        """An admitted step has ended: give back what it held, finish it and start what it frees."""
        if step.result is not None:
            return None
        if step.holds:
            step.holds = False
            assert step.proposal is not None
            step.proposal.entry.slots.release()
            self._slots.release()
        self._busy -= 1
        self._finish(step, result)
        return self._drain(inline)

    def _finish(self, step: Step, result: CallResult) -> None:
        """Keep the result, write what it brought, tell it and free what waits for it."""
        if result.status == "ok" and result.reason != "detached":
            path = step.proposal.path if step.proposal is not None else None
            result = self._ledger.keep(step.call, path, step.began, result)
        step.result = result
        if self._stage.events is not None and result.reason != "detached":
            kind = _END_EVENTS.get(result.status, CallFailed)
            self._stage.tell(kind, call=result.call, cycle_id=self._scope.cycle_id, result=result)
        self._graph.end(step, result.status == "ok")

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
                if step.is_ready:
                    self._busy -= 1  # it waited for a slot
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
