"""One batch of calls: each arrives, starts when nothing blocks it, ends, and frees the calls that waited for it.

The batch acts on two events only, the arrival and the end of a call, and then looks only at the calls that this event
may free. The graph decides which calls are ready, `turns` when they start; workers carry them out, the board holds the
data. This module joins these parts, and gives every call exactly one result. `stopping` ends a batch early.

The steps of a call: decode and prepare (`arrive`), authorize (`_start`), journal, attempt and normalize (a worker),
apply and record (`_record`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import copy_context
from typing import Any

from acting.approvals.parking import Parking
from acting.calls import Scope, fault, fault_of
from acting.graph.graph import Graph
from acting.run.asking import Asking
from acting.run.authorize import is_authorized
from acting.run.background import detach
from acting.run.call.attempt import Attempt
from acting.run.call.call_state import Step
from acting.run.call.prepare import decode
from acting.run.confirm import Confirm
from acting.run.journal import CallJournalWriter
from acting.run.replay import Replay
from acting.run.results import ResultCollector
from acting.run.shared.runtime import Runtime
from acting.run.start_order import StartOrder
from acting.run.stopping import Stopping
from acting.run.turns import Turns
from acting.run.workers import WorkerPool
from spar.data.blackboard import Board
from spar.events import CallCompleted, CallFailed, CallProposed, CallSkipped
from spar.failpoints import armed, crashpoint
from spar.protocols import CALLED_FOR
from spar.threads import OTHERS_TURN, SLICE
from spar.types import ASKED, SERVICE_KEYS, Action, ActionResult, Call, CallResult, copy_with

GIVEN_UP_LIMIT = 64  # calls given up in a row at the end of a batch, before other tasks get their turn

_END_EVENTS: dict[str, Any] = {"ok": CallCompleted, "skipped": CallSkipped, "denied": CallSkipped}


class Batch:
    """One batch of calls. Use it in this order: `begin`, `read`, `settle`, `result`; on cancellation `abort`, `result`.

    Args: confirm: asks the embedding program; replay: the results of an interrupted batch with the same calls; earlier:
        returns whether the call with this id in an earlier batch of the run ended well, None for an unknown id.
    """

    def __init__(self, runtime: Runtime, board: Board, confirm: Confirm | None, scope: Scope,
                 replay: Replay | None = None,
                 earlier: Callable[[str], bool | None] = lambda id: None) -> None:  # fmt: skip
        self.steps: list[Step] = []
        self._runtime, self._board, self.scope = runtime, board, scope
        self._graph = Graph(board.has, runtime.fallback, earlier)
        self._collector = ResultCollector(runtime, board, self._graph, scope, replay.messages if replay else ())
        self._replay, self._is_replayed = replay, replay is not None
        self._writer = None if runtime.journal is None else CallJournalWriter(runtime.journal, scope)
        self._parking: Parking[Step] = Parking()
        self._order: StartOrder[Step] = StartOrder()
        self._context = copy_context()  # tools run in it; its variable CALLED_FOR names their cycle and run
        if scope.cycle_id or scope.run_id is not None:
            self._context.run(CALLED_FOR.set, (scope.cycle_id, scope.run_id))
        runtime.wall.look()  # read the wall clock afresh for this batch
        self._workers = WorkerPool(runtime, scope, self._writer, self._begin_attempt, self._complete,
                                   lambda step: self.stopping.held_back(step), self._break_down)  # fmt: skip
        self.stopping = stopping = Stopping(runtime, self._workers, self.steps, self._parking,
                                            self._record, self._complete, self._drain)  # fmt: skip
        self._turns = Turns(runtime, self._order, stopping, self._start_late, scope.session)
        self._asking = Asking(runtime, board, confirm, scope, stopping, self._graph.ended_well,
                              self._go_and_drain, self._complete, self._break_down)  # fmt: skip
        #: Whether only a tool's own terms decide whether a call may run.
        self._is_unasked = runtime.hooks is None and runtime.approvals is None and runtime.spending is None
        self._is_live = False  # whether the calls come from a stream, which may itself wait for their results
        self._is_closed = False
        self._breakdown: BaseException | None = None
        self._done: asyncio.Future[None] | None = None

    # -- arrival

    def begin(self, action: Action, *, is_streamed: bool) -> None:
        """Write the action to the journal; the calls of a stream are written when they arrive."""
        if self._writer is not None:
            calls = () if is_streamed else action.calls
            self._writer.begin(copy_with(action, id=self.scope.key, calls=calls), is_streamed=is_streamed)

    async def read(self, calls: Any) -> None:
        """Take every item of a list or stream. An error of the stream becomes the fault of the batch."""
        catalog, clock = self._runtime.catalog, self._runtime.clock
        try:
            if hasattr(calls, "__aiter__"):
                self._is_live = True
                async for item in calls:
                    if not catalog.is_compiled:
                        await catalog.compile(clock)
                    self.arrive(item)
            else:
                for count, item in enumerate(calls, 1):
                    if not catalog.is_compiled:
                        await catalog.compile(clock)
                    self.arrive(item)
                    if count % SLICE == 0:
                        await OTHERS_TURN
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                raise
            self.stopping.fault = fault_of(error, "plan")
            self.stopping.stop("the plan broke off before this call had started")
        if self._replay is not None and not self._replay.is_on_board:
            self._end_replayed(self._replay)

    def arrive(self, item: Any) -> None:
        """Take one call: decode and prepare it, add it to the graph, and start the calls that are ready."""
        if type(item) is Call and item.is_sound() and SERVICE_KEYS.issuperset(item.meta):
            call, wrong = item, ""
        else:
            call, wrong = decode(item)
        step, replay = Step(call), self._replay
        self.steps.append(step)
        if self._writer is not None and self._writer.is_streamed:
            self._writer.planned(call)
        if self._runtime.wanted[CallProposed]:
            run_id = self._runtime.run_of(call, self.scope)
            self._runtime.publish(CallProposed(call=call, cycle_id=self.scope.cycle_id, run_id=run_id))
        reads, why = step.prepare(self._runtime.catalog, self._board, wrong, self._graph.known)
        if replay is not None and why is None and replay.take_over(step, self._runtime, self._graph, self.scope):
            self._drain()
            return
        if why is not None:
            self._graph.refuse(step, step.target, step.call.instance)
        elif not self._graph.add(step, reads, step.target, call.after, step.call.instance):
            why = fault("cycle", "it waits for itself, directly or through others", call.tool)
        if why is not None:
            self._record(step, step.failed(why))
        else:
            if not step.entry.is_free or self._runtime.is_sequential:
                self._turns.enter(step)
            if replay is not None:
                replay.note(step)
        if replay is None or replay.is_on_board:
            self._drain()

    def _end_replayed(self, replay: Replay) -> None:
        """End the calls of an interrupted batch that have a known result, before any other call starts.

        The journal holds these calls and results already, so they are not written again.
        """
        writer, self._writer, self._replay = self._writer, None, None
        for step, result in replay.endings(self._runtime, self._collector, self.scope):
            self._record(step, result)
        self._writer = writer
        self._drain()

    # -- starting

    def _drain(self) -> None:
        """Start the calls that may start and end those that never can. After many of these, other tasks run first."""
        graph, given_up = self._graph, 0
        step: Step
        while not self.stopping.is_cut_off:
            while graph.doomed or graph.ready or self._order.due:
                if self._order.due:
                    for step in self._order.take_due():
                        if step.result is None:
                            self._go(step)
                while graph.doomed:
                    self._pass_over(graph.doomed.pop(), "a call that it is to run after did not end well")
                ready, graph.ready = graph.ready, []
                for step in ready:
                    if step.result is None:
                        self._start(step)
            is_closed, busy = self._is_closed, self._workers.busy
            # If all admitted calls wait for their turn, the turns themselves may block the batch.
            are_all_waiting = busy > 0 and busy == len(self._order.waiting)
            if are_all_waiting and (is_closed or self._is_live) and self._turns.let_pass(is_complete=is_closed):
                continue
            if not is_closed or busy:
                return
            stuck = graph.stuck()
            if stuck is None:
                self._finish_waiting()
                return
            if given_up >= GIVEN_UP_LIMIT:
                asyncio.get_running_loop().call_soon(self._drain)
                return
            given_up += len(stuck[0])
            for step in stuck[0]:
                self._pass_over(step, stuck[2])

    def _pass_over(self, step: Step, sentence: str) -> None:
        """End a call that can never start. `sentence` says why."""
        if step.result is None:
            result = step.given_up(sentence)
            if result is None:
                self.stopping.skip(step, sentence)
            else:
                self._record(step, result)

    def _start(self, step: Step) -> None:
        """Authorize a ready call: in a task of its own if somebody has to be asked or it reads a large value."""
        if self.stopping.why:
            self.stopping.skip(step, self.stopping.why)
        elif step.is_reading and (why := step.take_values(self._board)):
            self._record(step, step.failed(why))
        else:
            self._workers.busy += 1
            step.is_admitted = True
            if step.late is None and (
                step.entry.is_let and ASKED not in step.call.meta
                if self._is_unasked
                else is_authorized(self._runtime, step, self.scope)
            ):
                self._go(step)
            else:
                step.is_started = True
                self._workers.spawn(self._asking.ask(step), step.call.tool)

    def _go(self, step: Step) -> None:
        """Carry out an authorized call: detached, or by a worker when its turn has come and it has its permits."""
        entry = step.entry
        if (step.lines != () or self._order.waiting) and not self._turns.has_come(step):
            step.is_started = False
            return
        if (entry.terms.detach or "_detach" in step.call.meta) and entry.detaches(step.call):
            step.is_started = True
            self._workers.busy -= 1
            self._record(step, detach(self._runtime, self._begin_attempt(step), step, self._writer))
            return
        step.is_started = False  # while it waits for a permit it can still be skipped
        if entry.is_free or self._turns.admit(step):
            self._workers.offer(step)

    def _go_and_drain(self, step: Step) -> None:
        """Go on with a call that was authorized in a task of its own."""
        self._go(step)
        self._drain()

    def _start_late(self, step: Step) -> None:
        """Go on with a call that has got the permits that it waited for."""
        self._workers.offer(step)
        if self._order.due:  # later: the call that gave the permit back may still be ending
            asyncio.get_running_loop().call_soon(self._drain)

    def _begin_attempt(self, step: Step) -> Attempt:
        collector, call = self._collector, step.call
        collector.moment = step.began = collector.moment + 1
        collector.at_work += 1
        messages = step.messages(self._board) if call.meta else ()
        step.attempt = Attempt(call, step.entry, step.arguments, self.scope, self._context, messages, step.binds)
        return step.attempt

    # -- ending

    def _complete(self, step: Step, result: CallResult) -> None:
        """Record the result of an admitted call and start the calls that it frees."""
        if step.result is None:
            self._workers.busy -= 1
            self._record(step, result)
            graph, order = self._graph, self._order
            if graph.ready or graph.doomed or order.waiting or order.due or self._is_closed:
                self._drain()

    def _record(self, step: Step, result: CallResult) -> None:
        """Record a result: write its value, publish its event, and free the calls that wait for it."""
        if step.passed:
            self._turns.release(step)
        if step.lines != ():
            self._order.end(step)
        if step.reservation is not None and self._runtime.spending is not None:
            self._runtime.spending.release(step)
        if self._writer is not None:
            self._writer.ended(step, result)
        chosen: int | None = None
        if result.status == "ok" and result.reason != "detached":
            result, chosen = self._collector.apply(step, result)
        status = result.status
        if status != "ok":
            if result.attempts and status in ("failed", "timeout"):
                result, chosen = self._collector.handled(step, result)
            elif result.reason == "parked":
                self._parking.add(step)
        step.result = result
        if step.attempt is not None:
            self._collector.at_work -= 1
        self._graph.end(step, status == "ok", chosen)
        kind = _END_EVENTS.get(status, CallFailed)
        if self._runtime.wanted[kind] and result.reason != "detached":  # last, because a listener may stop the batch
            run_id = self._runtime.run_of(result.call, self.scope)
            self._runtime.publish(kind(call=result.call, cycle_id=self.scope.cycle_id, run_id=run_id, result=result))
        if armed:
            crashpoint("act.next_ready")

    # -- the end of the run

    async def settle(self) -> None:
        """Return when each call has its result; no further calls arrive."""
        self._is_closed = True
        self._drain()
        if self._breakdown is None and (self._workers.busy or None in [step.result for step in self.steps]):
            self._done = asyncio.get_running_loop().create_future()
            await self._done
        if self._breakdown is not None:
            raise self._breakdown
        if len(self.steps) > SLICE:
            await self._collector.build(self.steps)
        await self._leave_behind()

    async def _leave_behind(self) -> None:
        """Park the calls that wait for people: a later cycle goes on with them."""
        if self._runtime.approvals is not None:
            has_asked = self._is_replayed or any(step.allowed or step.approval_id for step in self.steps)
            await self._runtime.approvals.leave_behind(
                self.scope, self._parking, self._board, self._graph.ended_well, self.steps, self._write_parked,
                has_asked=has_asked,
            )  # fmt: skip

    def _write_parked(self) -> None:
        if self._writer is not None:
            self._writer.parked(self._parking.steps)

    async def abort(self) -> None:
        """Cancel all calls; those that wait for people are parked for a later cycle."""
        try:
            await self.stopping.abort()
        finally:
            await self._leave_behind()

    def _break_down(self, error: BaseException) -> None:
        self._breakdown = error
        self._finish_waiting()

    def _finish_waiting(self) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_result(None)

    def close(self) -> None:
        """Drop the parts that refer back to the batch, so that its memory is free at once. All calls have ended."""
        del self._workers, self.stopping, self._turns, self._asking
        self._graph.close()

    def result(self, action: Action, began: float) -> ActionResult:
        """Return the result of the whole batch; `began` is the monotonic time of its start."""
        why, is_cut_off = self.stopping.fault, self.stopping.is_cut_off
        duration = self._runtime.clock.monotonic() - began
        return self._collector.outcome(action, self.steps, why, interrupted=is_cut_off, duration=duration)
