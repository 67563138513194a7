"""One batch of calls: they arrive, start the moment nothing blocks them, end, and free others.

It wakes on exactly two things, a call arrived and a call ended, and touches only what that may unblock. The graph
decides what is ready, the permits when, workers carry it out, the board holds the data; this file only brings them
together and owes one result for each call, whatever happens.

The steps of a call: decode and prepare (`arrive`), authorize (`_start`), journal, attempt and normalize (a worker),
apply and record (`_record`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import copy_context
from functools import partial
from typing import Any

from acting.approvals.parking import Parking
from acting.calls import Scope, fault, fault_of
from acting.graph.deadlock import reaches
from acting.graph.graph import Graph
from acting.run.authorize import authorize, is_authorized, judge_trust, redeem
from acting.run.background import detach
from acting.run.call.attempt import Attempt
from acting.run.call.call_state import Step
from acting.run.call.prepare import decode
from acting.run.confirm import Confirm
from acting.run.journal import CallJournalWriter
from acting.run.results import ResultCollector
from acting.run.shared.runtime import Runtime
from acting.run.start_order import StartOrder
from acting.run.workers import WorkerPool
from spar.checks import shorten
from spar.data.blackboard import Board
from spar.data.paths import Expression
from spar.events import CallCompleted, CallFailed, CallProposed, CallSkipped
from spar.failpoints import armed, crashpoint
from spar.protocols import CALLED_FOR
from spar.threads import OTHERS_TURN
from spar.types import ASKED, SERVICE_KEYS, Action, ActionResult, Call, CallResult, Fault, replace

READ_LIMIT = 64  # calls read in a row from a list, before others get their turn
GIVEN_UP_LIMIT = 64  # calls given up in a row at the end of a run, before others get their turn

_END_EVENTS: dict[str, Any] = {"ok": CallCompleted, "skipped": CallSkipped, "denied": CallSkipped}


class Batch:
    """One batch of calls. `read` the calls, then `settle`, then `result`; `abort` instead when cancelled."""

    def __init__(self, runtime: Runtime, board: Board, confirm: Confirm | None, scope: Scope,
                 resume: ActionResult | None = None, known: Sequence[CallResult] = (),
                 earlier: Callable[[str], bool | None] = lambda id: None) -> None:  # fmt: skip
        self.steps: list[Step] = []
        self.fault: Fault | None = None
        self._runtime, self._board, self._confirm, self._scope = runtime, board, confirm, scope
        self._graph = Graph(board.has, runtime.fallback, earlier)
        self._collector = ResultCollector(runtime, board, self._graph, scope.session, resume)
        self._ended = {each.call.id: each for each in resume.results if is_final(each)} if resume else {}
        self._known = {each.call.id: each for each in known}
        self._replayed: dict[str, Step] = {}
        self._writer = None if runtime.journal is None else CallJournalWriter(runtime.journal, scope)
        self._parking: Parking[Step] = Parking()
        self._order: StartOrder[Step] = StartOrder()
        self._context = copy_context()
        if scope.cycle_id or scope.run_id is not None:
            self._context.run(CALLED_FOR.set, (scope.cycle_id, scope.run_id))
        runtime.wall.look()
        self._workers = WorkerPool(
            runtime, scope, self._writer, self._attempt, self._complete, self._held_back, self._break_down
        )
        #: Whether nobody but a tool's own terms is asked whether a call may run.
        self._is_unasked = runtime.hooks is None and runtime.approvals is None and runtime.spending is None
        self._busy = 0  # calls that are admitted, and without a result; questions that are being taken back
        self._is_live = False  # whether the calls come from a stream, which may itself wait for what they bring
        self._is_closed = self._is_aborted = False
        self._stopped: tuple[str, ...] = ()  # why nothing further is started, and the reason of what is skipped for it
        self._breakdown: BaseException | None = None
        self._done: asyncio.Future[None] | None = None

    # -- arrival

    def begin(self, action: Action, *, is_streamed: bool) -> None:
        """Write down what is going to be done; of a stream its calls as they come."""
        if self._writer is not None:
            self._writer.begin(action, is_streamed=is_streamed)

    async def read(self, calls: Any) -> None:
        """Take in every item of a list or stream; what a stream raises becomes the batch's `fault`."""
        if self._known:
            self._replay(calls)
            return
        try:
            if hasattr(calls, "__aiter__"):
                self._is_live = True
                async for item in calls:
                    self.arrive(item)
            else:
                for count, item in enumerate(calls, 1):
                    self.arrive(item)
                    if count % READ_LIMIT == 0:
                        await OTHERS_TURN
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                raise
            self.fault = fault_of(error, "plan")
            self._stop("the plan broke off before this call had started")

    def arrive(self, item: Any) -> None:
        """Take in one call."""
        if type(item) is Call and item.is_sound() and SERVICE_KEYS.issuperset(item.meta):
            call, wrong = item, ""
        else:
            call, wrong = decode(item)
        step = Step(call)
        self.steps.append(step)
        if self._writer is not None and self._writer.is_streamed:
            self._writer.planned(call)
        if self._runtime.wanted[CallProposed]:
            run_id = self._runtime.run_of(call, self._scope)
            self._runtime.publish(CallProposed(call=call, cycle_id=self._scope.cycle_id, run_id=run_id))
        why: Fault | None
        reads: Sequence[Expression] = ()
        if wrong:
            why = fault("bad_call", wrong, call.tool)
        elif call.id in self._graph.known:
            why = fault("duplicate_id", f"an earlier call has the id {shorten(call.id)} already", call.tool)
        else:
            reads, why = step.prepare(self._runtime.catalog, self._board)
            if why is None and self._ended and (ended := self._ended.get(call.id)) is not None:
                self._adopt(step, ended)
                return
        if why is not None:
            self._graph.refuse(step, step.target, step.call.instance)
        elif not self._graph.add(step, reads, step.target, call.after, step.call.instance):
            why = fault("cycle", "it waits for itself, directly or through others", call.tool)
        if why is not None:
            self._record(step, step.failed(why))
        else:
            if not step.entry.is_free or self._runtime.is_sequential:
                self._take_place(step)
            if self._known and call.id in self._known:
                self._replayed[call.id] = step
        if not self._known:
            self._drain()

    def _replay(self, calls: Iterable[Any]) -> None:
        """Take in the calls of a batch that was cut off; those whose end is known end so again, in their order."""
        for item in calls:
            self.arrive(item)
        known, writer, self._writer = self._known, self._writer, None
        self._known = {}
        for call_id, result in known.items():
            if (step := self._replayed.get(call_id)) is not None and step.result is None:
                self._collector.moment += 1
                step.began = self._collector.moment
                judge_trust(self._runtime, step, self._scope.trust, self._scope)
                self._record(step, replace(result, call=step.call))
        self._writer = writer
        self._drain()

    def _adopt(self, step: Step, ended: CallResult) -> None:
        """Take over the result that a call had in the run that this one resumes: it does not run again."""
        self._graph.refuse(step, step.target, step.call.instance)
        judge_trust(self._runtime, step, self._scope.trust, self._scope)
        step.result = replace(ended, call=step.call)
        self._graph.end(step, ended.status == "ok")
        self._drain()

    def _take_place(self, step: Step) -> None:
        """Take its place among those that are to start in the order of the plan."""
        lines = self._runtime.lines_of(step.entry, step.params, step.found if step.is_reading else ())
        if lines != ():
            self._order.enter(step, lines)

    # -- starting

    def _let_pass(self) -> bool:
        """Let a call start before its turn if nothing runs and those before it wait for it; whether there was one.

        Once no more calls arrive, they can wait for nothing else.
        """
        if self._busy != len(self._order.waiting) or not (self._is_closed or self._is_live):
            return False
        first = self._order.next
        if not self._is_closed and not all(reaches(other, [first]) for other in self._order.ahead_of(first)):
            return False
        self._order.let(first)
        return True

    def _drain(self) -> None:
        """Act on what the graph says until it says nothing more, or others are to have their turn."""
        graph, given_up = self._graph, 0
        step: Step
        while not self._is_aborted:
            while graph.doomed or graph.ready or self._order.due:
                if self._order.due:
                    for step in self._order.taken():
                        if step.result is None:
                            self._go(step)
                while graph.doomed:
                    self._pass_over(graph.doomed.pop(), "a call that it is to run after did not end well")
                ready, graph.ready = graph.ready, []
                for step in ready:
                    if step.result is None:
                        self._start(step)
            if self._order.waiting and self._let_pass():
                continue
            if not self._is_closed or self._busy:
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
        """End a step that the graph has given up."""
        if step.result is not None:
            return
        if step.why == "branch":
            self._record(step, step.not_taken())
        elif step.why in ("", "dep_failed"):
            self._skip(step, sentence)
        else:
            self._record(step, step.failed(fault(step.why, sentence, step.call.tool)))

    def _start(self, step: Step) -> None:
        """Set a ready step going."""
        if self._stopped:
            self._skip(step, self._stopped[0])
        elif step.is_reading and (why := step.take_values(self._board)):
            self._record(step, step.failed(why))
        else:
            self._busy += 1
            step.is_admitted = True
            if (
                step.entry.is_let and ASKED not in step.call.meta
                if self._is_unasked
                else is_authorized(self._runtime, step, self._scope)
            ):
                self._go(step)
            else:
                step.is_started = True
                self._workers.spawn(self._authorize(step), step.call.tool)

    def _go(self, step: Step) -> None:
        """Carry out a call that may run: detached, or by a worker once it is its turn and it has its permits."""
        order, entry = self._order, step.entry
        if step.lines is None:
            order.name(step, self._runtime.lines_of(entry, step.params, ()) or ())
        if (step.lines or order.waiting) and not order.is_first(step):
            step.is_started = False
            return
        if step.call.meta.get("_detach", entry.terms.detach):
            step.is_started = True
            self._busy -= 1
            self._record(step, detach(self._runtime, self._attempt(step), step, self._writer))
            return
        step.is_started = False  # while it waits for a permit it can still be skipped
        if not entry.is_free:
            step.permits = self._runtime.permits_of(entry, step.params)
            if not self._pass(step):
                return
        self._workers.offer(step)

    def _pass(self, step: Step) -> bool:
        """Take the permits that it does not hold yet; return False when it must wait for one."""
        while step.passed < len(step.permits):
            if not step.permits[step.passed].take(self._opened, step):
                return False
            step.passed += 1
        if step.lines:
            self._order.begin(step)
        return True

    def _opened(self, step: Step) -> bool:
        """Go on with a call that has been given the permit it waited for; return whether it still wants it."""
        if step.result is not None or self._is_aborted:
            return False
        step.passed += 1
        if self._pass(step):
            self._workers.offer(step)
            if self._order.due:  # not now: whoever has given way may be in the middle of its end
                asyncio.get_running_loop().call_soon(self._drain)
        return True

    def _attempt(self, step: Step) -> Attempt:
        collector, call = self._collector, step.call
        collector.moment = step.began = collector.moment + 1
        collector.at_work += 1
        messages = step.messages(self._board) if call.meta else ()
        step.attempt = Attempt(call, step.entry, step.arguments, self._scope, self._context, messages, step.binds)
        return step.attempt

    async def _authorize(self, step: Step) -> None:
        try:
            against, ends_run = await authorize(
                self._runtime, self._board, step, self._confirm, self._scope, self._graph.ended_well,
                partial(self._may_ask, step),
            )  # fmt: skip
            step.asking = None
            if ends_run and self.fault is None and against is not None:
                self.fault = against.fault
            if against is None:
                against = self._held_back(step)
            if against is None and step.approval_id and step.entry.detaches(step.call):
                step.allowed = step.approval_id
                against = await redeem(self._runtime, step) or self._held_back(step)
            if against is None:
                self._go(step)
                self._drain()
                return
            if ends_run:
                self._stop("a hook ended the run before this call had started")
            self._busy -= 1
            self._record(step, against)
            self._drain()
        except asyncio.CancelledError:
            if step.result is None and not self._is_aborted and not step.attempt:
                self._complete(step, self._held_back(step) or step.cut(self._runtime))
            raise
        except BaseException as error:
            self._break_down(error)
            raise

    # -- ending

    def _complete(self, step: Step, result: CallResult) -> None:
        """An admitted step has ended: finish it and start what it frees."""
        if step.result is None:
            self._busy -= 1
            self._record(step, result)
            graph, order = self._graph, self._order
            if graph.ready or graph.doomed or order.waiting or order.due or self._is_closed:
                self._drain()

    def _record(self, step: Step, result: CallResult) -> None:
        """Keep the result, write what it brought, tell it and free what waits for it."""
        if step.passed:
            self._release(step)
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
        if self._runtime.wanted[kind] and result.reason != "detached":  # at the end: who hears it may steer
            run_id = self._runtime.run_of(result.call, self._scope)
            self._runtime.publish(kind(call=result.call, cycle_id=self._scope.cycle_id, run_id=run_id, result=result))
        if armed:
            crashpoint("act.next_ready")

    def _release(self, step: Step) -> None:
        held, step.passed = step.permits[: step.passed], 0
        for permit in held:
            permit.release()

    def _skip(self, step: Step, why: str) -> None:
        if step.result is None:
            self._record(step, self._parking.result(step) or self._held_back(step) or step.skipped(why))

    # -- starting nothing further

    def steer(self, sentence: str) -> None:
        """Skip the calls that have not started, also those still to arrive: somebody has said something new."""
        if not self._is_aborted:
            self._stop(sentence, "steered")
            self._drain()

    def _stop(self, why: str, reason: str = "dep_failed") -> None:
        """Start nothing further and ask nobody any more; what has started goes on, what hooks are looking at too."""
        self._stopped = self._stopped or (why, reason)
        for step in self.steps:
            if step.result is not None or not step.at:  # one that is just arriving ends by itself
                continue
            if step.asking is not None:
                step.asking.cancel()
            elif not step.is_started:
                if step.is_admitted:
                    self._busy -= 1  # it waited for a permit or a worker
                self._skip(step, why)

    def _may_ask(self, step: Step) -> bool:
        """Return whether people are to be asked about a call now; its task is told when they are not any more."""
        step.asking = asyncio.current_task()
        return not self._stopped

    def _held_back(self, step: Step) -> CallResult | None:
        """The result of a call that is not to start any more, if it is not: what people were asked about it is void."""
        if not self._stopped:
            return None
        if self._runtime.approvals is not None and (approval_id := self._runtime.approvals.parked.own_approval(step)):
            self._busy += 1
            self._workers.spawn(self._take_back(approval_id), "take back")
        return step.skipped(*self._stopped)

    async def _take_back(self, approval_id: str) -> None:
        assert self._runtime.approvals is not None
        try:
            await self._runtime.approvals.parked.refuse(approval_id, self._stopped[0])
        finally:
            self._busy -= 1
            self._drain()

    # -- the end of the run

    async def settle(self) -> None:
        """No further calls come: return when each has its result."""
        self._is_closed = True
        self._drain()
        if self._breakdown is None and (self._busy or None in [step.result for step in self.steps]):
            self._done = asyncio.get_running_loop().create_future()
            await self._done
        if self._breakdown is not None:
            raise self._breakdown
        await self._leave_behind()

    async def _leave_behind(self) -> None:
        """Leave the calls that wait for people to a later cycle."""
        if self._runtime.approvals is not None:
            await self._runtime.approvals.leave_behind(
                self._scope, self._parking, self._board, self._graph.ended_well, self.steps, self._tell_parked
            )

    def _tell_parked(self) -> None:
        if self._writer is not None:
            self._writer.parked(self._parking.steps)

    async def abort(self) -> None:
        """Cancel everything, wait a moment for it to end, leave behind what does not."""
        self._is_aborted = True
        self._parking.take_asking(self.steps, self._record)
        for step in self.steps:
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
            await self._leave_behind()

    def give_up(self) -> None:
        """Wait for nothing further: each call that has no result yet was cut off."""
        self._is_aborted = True
        for step in self.steps:
            if step.result is None:
                self._complete(step, step.cut(self._runtime))

    def _break_down(self, error: BaseException) -> None:
        self._breakdown = error
        self._finish_waiting()

    def _finish_waiting(self) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_result(None)

    @property
    def run_id(self) -> str | None:
        return self._scope.run_id

    def ended(self) -> Iterator[tuple[dict[str, Any], CallResult]]:
        """Yield the resolved parameters and the result of each call that has ended."""
        for step in self.steps:
            if step.result is not None:
                yield step.params, step.result

    def close(self) -> None:
        """Let go of what refers back to it, so that it goes when nobody holds it: all calls have ended."""
        del self._workers
        self._graph.close()

    def result(self, action: Action, began: float) -> ActionResult:
        """Return the result of the whole batch."""
        results = tuple([step.result for step in self.steps if step.result is not None])
        duration = self._runtime.clock.monotonic() - began
        corrections = [each for step in self.steps if step.corrections for each in step.final_corrections()]
        return self._collector.outcome(
            action,
            results,
            self.fault,
            corrections=corrections,
            interrupted=self._is_aborted,
            duration=duration,
        )


def is_final(result: CallResult) -> bool:
    """Return whether a call of a run that was cut is not to be done again: it ended, or may have had its effect."""
    return result.status not in ("cancelled", "skipped")
