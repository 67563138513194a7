"""One batch of calls: each arrives, starts when nothing blocks it, ends, and frees the calls that waited for it.

A call is proposed, then held, then attempted, then ended. The graph holds it until all that it reads is there; then
it takes the holds of its tool one after the other (`run/holds`). Workers carry out the calls that nothing holds, the
board holds the data. This module joins these parts, and gives every call exactly one result. It acts on two events
only, the arrival and the end of a call, and then looks only at the calls that this event may free.

The steps of a call: decode and prepare (`arrive`), take its holds (`_pass`), attempt and normalize (a worker), apply
and record (`_record`).

A batch ends early when a new message arrives for the agent (it is *steered*), when the stream of calls breaks off, or
when a hook ends the run: running calls finish, every other call is skipped, at once or when it would start, and
questions to people about it are void. When the batch is cancelled, running calls are cancelled too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator
from contextvars import copy_context
from typing import Any

from acting.calls import NO_QUESTION, Scope, fault, fault_of
from acting.graph.graph import Graph
from acting.graph.nodes import ATTEMPT, ENDED, MOVES
from acting.run.background import Detach
from acting.run.call.call_state import Step
from acting.run.call.prepare import decode
from acting.run.holds.answer import Answers, Confirm
from acting.run.holds.order import Order, Resources
from acting.run.holds.rule import Rules
from acting.run.journal import CallJournalWriter
from acting.run.parked import Parking
from acting.run.replay import Replay
from acting.run.results import ResultCollector
from acting.run.runtime import Runtime
from acting.run.workers import WorkerPool
from acting.tooling.bound_tool import BoundTool
from acting.tooling.limits import Hold, Slots
from spar.data.blackboard import Board
from spar.events import CallCompleted, CallFailed, CallProposed, CallSkipped
from spar.failpoints import armed, crashpoint
from spar.protocols import CALLED_FOR
from spar.threads import OTHERS_TURN, SLICE
from spar.types import ASKED, SERVICE_KEYS, Action, ActionResult, Call, CallResult, Fault, copy_with

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
        self._parking = Parking(scope, board, self._graph.ended_well, self.steps)
        self._context = copy_context()  # tools run in it; its variable CALLED_FOR names their cycle and run
        if scope.cycle_id or scope.run_id is not None:
            self._context.run(CALLED_FOR.set, (scope.cycle_id, scope.run_id))
        self._workers = WorkerPool(
            runtime, self._context, self._collector.begin, self._free_slots, self._complete, self._break_down
        )
        self._writer = None
        if runtime.journal is not None:
            self._writer = CallJournalWriter(runtime.journal, scope, self._workers.spawn)
        self._withdrawing = 0  # count of questions that are being withdrawn, which the batch waits for
        self._order = Order(scope.session, runtime.is_sequential)
        self._confirm = confirm
        self._rules: Rules | None = None  # made for the first call that needs them, with the answers
        self._answers: Answers | None = None
        self._usual: dict[BoundTool, tuple[Hold, ...]] = {}  # the holds of calls without meta
        #: Whether only a tool's own terms decide whether a call may run; and whether nothing else holds calls either.
        self._is_unruled = runtime.hooks is None and runtime.approvals is None and runtime.spending is None
        self._is_bare = self._is_unruled and self._writer is None and not runtime.is_sequential
        self._parallel: Slots | None = None
        self._is_live = False  # whether the calls come from a stream, which may itself wait for their results
        self._is_closed = False
        self._why = self._reason = ""  # why no more calls may start, and the reason in the results of skipped calls
        self._fault: Fault | None = None  # of the batch as a whole
        self._is_cut_off = False  # whether the batch is cancelled
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
            self._fault = fault_of(error, "plan")
            self._stop("the plan broke off before this call had started")
        if self._replay is not None and not self._replay.is_on_board:
            self._end_replayed(self._replay)

    def arrive(self, item: Any) -> None:
        """Take one call: decode and prepare it, add it to the graph, and start the calls that are ready."""
        if type(item) is Call and item.is_sound() and SERVICE_KEYS.issuperset(item.meta):
            call, wrong = item, ""
        else:
            call, wrong = decode(item)
        step, replay = Step(call.id, call=call, params=call.params, scope=self.scope), self._replay
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
                self._order.enter(step)
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
        graph, order, given_up = self._graph, self._order, 0
        step: Step
        while not self._is_cut_off:
            while graph.doomed or graph.ready or order.due:
                if order.due:
                    order.call_due()
                while graph.doomed:
                    self._pass_over(graph.doomed.pop(), "a call that it is to run after did not end well")
                ready, graph.ready = graph.ready, []
                for step in ready:
                    if step.result is None:
                        self._start(step)
            # If all ready calls wait for their turn, the order itself may block the batch.
            if order.waiting and self._has_more and order.let_pass(is_complete=self._is_closed):
                continue
            if not self._is_closed or graph.open or self._withdrawing:
                return
            if given_up >= GIVEN_UP_LIMIT:
                asyncio.get_running_loop().call_soon(self._drain)
                return
            stuck = graph.stuck() if graph.pending else None
            if stuck is None:
                self._finish_waiting()
                return
            given_up += len(stuck[0])
            for step in stuck[0]:
                self._pass_over(step, stuck[2])

    @property
    def _has_more(self) -> bool:
        """Return whether `_drain` has something to do: calls that may start or never can, or no call that goes on by
        itself because all wait for their turn."""
        graph, order = self._graph, self._order
        if graph.ready or graph.doomed or order.due:
            return True
        is_going_on = graph.open + self._withdrawing > len(order.waiting)
        return (self._is_closed or self._is_live) and not is_going_on

    def _pass_over(self, step: Step, sentence: str) -> None:
        """End a call that can never start. `sentence` says why."""
        if step.result is not None:
            return
        if step.why == "branch":  # it is on a branch that was not taken, which is no error
            self._record(step, CallResult(step.call, "skipped", "branch"))
        elif step.why in ("", "dep_failed"):
            self._skip(step, sentence)
        else:
            self._record(step, step.failed(fault(step.why, sentence, step.call.tool)))

    def _start(self, step: Step) -> None:
        """Read the values of a ready call, and let it take its holds."""
        call, entry = step.call, step.entry
        if self._why:
            self._skip(step, self._why)
        elif step.references and (why := step.take_values(self._board)):
            self._record(step, step.failed(why))
        elif self._is_bare and entry.is_plain and not call.meta and step.late is None:
            self._workers.offer(step)
        else:
            is_usual = not call.meta and step.late is None
            holds = self._usual.get(entry) if is_usual else None
            if holds is None:
                is_ruled = not (self._is_unruled and entry.is_let) or step.late is not None or ASKED in call.meta
                holds = tuple(self._holds_of(step, is_ruled=is_ruled))
                if is_usual:
                    self._usual[entry] = holds
            if holds:
                step.holds = holds
                self._pass(step)
            else:
                self._workers.offer(step)

    def _holds_of(self, step: Step, *, is_ruled: bool = False) -> Iterator[Hold]:
        """Yield the holds of a call in the order in which it takes them."""
        runtime, scope, spawn, entry = self._runtime, self.scope, self._workers.spawn, step.entry
        if is_ruled:
            if self._rules is None:
                self._answers = Answers(runtime, scope, self._board, self._confirm, self._graph.ended_well, spawn)
                self._rules = Rules(runtime, scope, self._answers, spawn, self._workers.attempts.cut, self._holds_of,
                                    self._end_run)  # fmt: skip
            yield self._rules
        if not entry.is_free or runtime.is_sequential:
            yield self._order
        redeem = self._answers if step.question.approval_id else None
        is_detached = entry.detaches(step.call)
        if is_detached:
            if redeem is not None:
                yield redeem
            yield Detach(runtime, self._board, self._writer, self._context)
        if entry.slots.limit:
            yield entry.slots
        if entry.has_resources:
            yield Resources(runtime.resource, scope.session)
        if rate := runtime.rate_of(entry):
            yield rate
        if is_detached:
            return
        uses = (redeem, runtime.spending, self._writer)
        if runtime.approvals is not None or any(uses):
            # No more calls than may run at once use their approval or budget, or are written to the disk as started.
            self._parallel = self._parallel or Slots(runtime.limits.max_parallel)
            yield self._parallel
        yield from filter(None, uses)

    def _pass(self, step: Step) -> None:
        """Let a call take its holds one after the other; it starts when it has all of them."""
        while step.passed < len(step.holds):
            taken = step.holds[step.passed].take(step, self._go_on)
            if taken is not True:
                if taken is not False:
                    self._record(step, taken)
                return
            step.passed += 1
        if step.lines:
            self._order.begin(step)
        self._workers.offer(step)

    def _go_on(self, step: Step, refusal: CallResult | None = None, /) -> bool:
        """Let a held call go on, or end it; return False if it is over."""
        if step.result is not None:
            return False
        result = refusal or self._held_back(step)
        if result is None:
            step.passed += 1
            self._pass(step)
        else:
            self._record(step, result)
        if self._has_more:
            asyncio.get_running_loop().call_soon(self._drain)  # another call may still be ending
        return result is None

    # -- ending

    def _free_slots(self, step: Step) -> None:
        """Give back the slots of a call whose tool has ended: others may use them while hooks look at its result."""
        taken = [hold for hold in step.holds if isinstance(hold, Slots) and hold is not self._parallel]
        step.holds = tuple([hold for hold in step.holds if hold not in taken])
        step.passed = len(step.holds)
        for slots in taken:
            slots.release(step)

    def _complete(self, step: Step, result: CallResult) -> None:
        """Record the result of a ready call and start the calls that it frees."""
        if step.result is None:
            self._record(step, result)
            if self._has_more:
                self._drain()

    def _record(self, step: Step, result: CallResult) -> None:
        """Record a result: write its value, publish its event, and free the calls that wait for it."""
        if step.holds:
            holds, step.holds = step.holds[: step.passed], ()
            for hold in holds:
                hold.release(step)
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
        if step.state == ATTEMPT:
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
        if self._breakdown is None and (self._withdrawing or None in [step.result for step in self.steps]):
            self._done = asyncio.get_running_loop().create_future()
            await self._done
        if self._breakdown is not None:
            raise self._breakdown
        await self._leave_behind()
        if len(self.steps) > SLICE:
            await self._collector.build(self.steps)

    async def _leave_behind(self) -> None:
        """Park the calls that wait for people: a later cycle goes on with them."""
        approvals = self._runtime.approvals
        if approvals is not None:
            has_asked = self._is_replayed or any(step.question is not NO_QUESTION for step in self.steps)
            try:
                await approvals.parked.leave_behind(self._parking, self._write_parked, has_asked=has_asked)
            finally:
                approvals.taint.close(self.scope)

    def _write_parked(self) -> None:
        if self._writer is not None:
            self._writer.parked(self._parking.steps)

    # -- an early end

    def steer(self, why: str) -> None:
        """Skip the calls that have not started or not arrived yet, because a new message has arrived."""
        if not self._is_cut_off:
            self._stop(why, "steered")
            self._drain()

    def _end_run(self, fault: Fault | None) -> None:
        """Start no further call, because a hook ended the run."""
        self._fault = self._fault or fault
        self._stop("a hook ended the run before this call had started")
        self._drain()

    def _stop(self, why: str, reason: str = "dep_failed") -> None:
        """Start no further call and ask nobody any more. Calls that have started or are with a hook go on."""
        if not self._why:
            self._why, self._reason = why, reason
        heard: Collection[Step] = () if self._rules is None else self._rules.stop()
        for step in self.steps:
            # `at` is 0 while a call arrives: `arrive` then ends it
            if step.result is None and step.at and step not in heard and MOVES["stopped"][step.state] == ENDED:
                if step.asking is not None:
                    step.asking.cancel()
                else:
                    self._skip(step, why)

    def _skip(self, step: Step, why: str) -> None:
        """End a call that will not start: as parked if it waits for a parked call, else as skipped."""
        if step.result is None:
            self._record(step, self._parking.result(step) or self._held_back(step) or step.skipped(why))

    def _held_back(self, step: Step) -> CallResult | None:
        """Return the result of a call that must not start any more, and withdraw the question to people about it.

        None if it may start.
        """
        if not self._why:
            return None
        approvals = self._runtime.approvals
        if approvals is not None and (approval_id := approvals.parked.own_approval(step)):
            self._withdrawing += 1
            self._workers.spawn(self._withdraw(approval_id), "take back")
        return step.skipped(self._why, self._reason)

    async def _withdraw(self, approval_id: str) -> None:
        assert self._runtime.approvals is not None
        try:
            await self._runtime.approvals.queue.withdraw(approval_id, self._why)
        finally:
            self._withdrawing -= 1
            self._drain()

    async def abort(self) -> None:
        """Cancel all calls, wait `grace` seconds for them to end, and leave behind those that do not; calls that wait
        for people are parked for a later cycle."""
        self._is_cut_off = True
        asking, others = list[Step](), list[Step]()
        for step in self.steps:
            if step.result is None and step.state != ATTEMPT:
                (asking if step.question.approval_id else others).append(step)
        for step in asking:
            self._record(step, step.skipped(f"it waits for approval {step.question.approval_id!r}", "parked"))
        for step in others:
            self._record(step, self._parking.result(step) or self._workers.attempts.cut(step))
        runtime, tasks = self._runtime, list(self._workers.tasks)
        for task in tasks:
            task.cancel()
        try:
            tasks = await runtime.settle(tasks, runtime.limits.grace)
        finally:
            for task in tasks:
                runtime.leave(task)
            self.give_up()
            await self._leave_behind()

    def give_up(self) -> None:
        """End each call without a result as cancelled, without waiting for it."""
        self._is_cut_off = True
        for step in self.steps:
            if step.result is None:
                self._complete(step, self._workers.attempts.cut(step))

    def _break_down(self, error: BaseException) -> None:
        self._breakdown = error
        self._finish_waiting()

    def _finish_waiting(self) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_result(None)

    def close(self) -> None:
        """Drop the parts that refer back to the batch, so that its memory is free at once. All calls have ended."""
        del self._workers, self._parking, self._writer, self._rules, self._answers, self._usual
        self._graph.close()

    def result(self, action: Action, began: float) -> ActionResult:
        """Return the result of the whole batch; `began` is the monotonic time of its start."""
        duration = self._runtime.clock.monotonic() - began
        return self._collector.outcome(action, self.steps, self._fault, interrupted=self._is_cut_off, duration=duration)
