"""One batch of calls: each arrives, starts when nothing blocks it, ends, and frees the calls that waited for it.

A call that neither the graph nor a hold holds any more enters the queue of the *workers*, tasks that carry out one call
after the other. While a tool makes one wait, others take over: a call that never waits costs no task. The batch acts on
two events only, the arrival and the end of a call, and then looks only at the calls that this event may free.

A batch ends early when a new message arrives for the agent (it is *steered*), when the stream of calls breaks off, or
when a hook ends the run: running calls finish, every other call is skipped, at once or when it would start, and
questions to people about it are void. When the batch is cancelled, running calls are cancelled too.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from functools import partial
from typing import Any, Final

from acting.graph.graph import Graph
from acting.graph.nodes import ATTEMPT, ENDED, HELD, MOVES
from acting.run.attempt import copied_result, finish, pause_after
from acting.run.call_state import IN_A_ROW, Step, date_at, weight
from acting.run.checks import decode
from acting.run.holds import RARE_KEYS, Confirm, Terms, release
from acting.run.order import CallJournalWriter, Order
from acting.run.parked import Parking
from acting.run.results import REVIEWS, Replay, Writes, corrections_of, error_of, is_shown_error, reviewed, status_of
from acting.run.runtime import Runtime
from acting.tooling.context import Scope, fault, fault_of
from spar.checks import PLAIN
from spar.data.blackboard import Board, message_of
from spar.events import CallCompleted, CallFailed, CallProposed, CallSkipped
from spar.facts import CallsPlanned
from spar.failpoints import armed, crashpoint
from spar.protocols import CALLED_FOR
from spar.threads import OTHERS_TURN, SLICE, is_cancelled, settle, slices_of
from spar.types import SERVICE_KEYS, Action, ActionResult, ActionStatus, Call, CallResult, Fault, Message, copy_with

GIVEN_UP_LIMIT: Final = 64  # calls given up in a row at the end of a batch, before other tasks get their turn
LARGEST_START: Final = 64  # most workers started at once

_LIGHT = frozenset({type(None), bool, int, float})  # types of values that weigh nothing
_END_EVENTS: dict[str, Any] = {"ok": CallCompleted, "skipped": CallSkipped, "denied": CallSkipped}


class Batch:  # at most 29 attributes: the interpreter looks those of an object with more up in a dictionary
    """One batch of calls. Use: `run`, `result`; on cancellation `abort`, `result`.

    Args: confirm: asks the embedding program; replay: the results of an interrupted batch with the same calls; earlier:
        returns whether the call with this id in an earlier batch of the run ended well, None for an unknown id.
    """

    def __init__(self, runtime: Runtime, action: Action, board: Board, confirm: Confirm | None, scope: Scope,
                 replay: Replay | None, earlier: Callable[[str], bool | None]) -> None:  # fmt: skip
        self.action, self.steps = action, list[Step]()
        self._runtime, self._board, self.scope = runtime, board, scope
        self._graph = Graph(board.has, runtime.fallback, earlier)
        self._context = context = copy_context()  # tools run in it; its variable CALLED_FOR names their cycle and run
        if scope.cycle_id or scope.run_id is not None:
            context.run(CALLED_FOR.set, (scope.cycle_id, scope.run_id))
        self._begin = partial(Step.begin, runtime=runtime, context=context)
        self._writes = Writes(runtime, board, self._graph, [*replay.messages] if replay is not None else [])
        self._at_work = 0  # count of calls that have begun and not ended
        self._tasks: set[asyncio.Task[Any]] = set()
        self._queue: deque[Step] = deque()
        self._count = 0  # workers that run or are about to
        self._free = 0  # those of these workers that do not wait and so look at the queue next
        self._start_count = 1  # workers to start at once; doubles while calls turn out to wait
        self._writer = None if runtime.journal is None else CallJournalWriter(runtime.journal, scope, self._spawn)
        self._replay = replay
        self._parking = Parking(scope, board, self._graph.ended_well, self.steps, self._writer)
        self._order = Order(runtime.is_sequential)
        self._terms = Terms(runtime, board, confirm, self._order, self._writer, self._graph.ended_well,
                            self._spawn, self._begin, self.stop)  # fmt: skip
        #: Whether nothing but a tool's own terms holds calls.
        others = (self._writer, runtime.hooks, runtime.approvals, runtime.spending)
        self._is_bare = others.count(None) == len(others) and not runtime.is_sequential
        self._is_live = self._is_closed = False
        self._why: tuple[str, str] | None = None  # why no more calls may start, and the reason of those skipped
        self._fault: Fault | None = None  # of the batch as a whole
        self._is_cut_off = False  # whether the batch is cancelled
        self._done = asyncio.get_running_loop().create_future()  # fails if a task of the batch does

    async def run(self, calls: Any) -> None:
        """Carry out the calls of the action, or of a stream, which may itself wait for their results; return when each
        call has its result. The journal has the calls of a stream when they arrive."""
        action, self._began = self.action, self._runtime.clock.monotonic()
        if self._writer is not None:
            self._writer.begin(action, is_streamed=calls is not action.calls)
        self._is_live = hasattr(calls, "__aiter__")
        # A task of its own reads a stream, so that a call of it wakes the batch alone and nobody who waits for its end.
        await (self._spawn(self._read(calls), "plan") if self._is_live else self._read(calls))
        await self._settle()

    async def _read(self, calls: Any) -> None:
        """Take each call of a plan. If the plan breaks off, no further call starts."""
        catalog, clock = self._runtime.catalog, self._runtime.clock
        try:
            if self._is_live:
                async for item in calls:
                    if not catalog.is_compiled:
                        await catalog.compile(clock)
                    self._arrive(item)
                return
            for count, item in enumerate(calls, 1):
                if not catalog.is_compiled:
                    await catalog.compile(clock)
                self._arrive(item)
                if count % SLICE == 0:
                    await OTHERS_TURN
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and is_cancelled():
                raise
            self.stop("the plan broke off before this call had started", fault=fault_of(error, "plan"))

    def _arrive(self, item: Any) -> None:
        """Take one call: decode and prepare it, add it to the graph, and start the calls that are ready."""
        runtime, scope, replay, graph = self._runtime, self.scope, self._replay, self._graph
        call, wrong = item, ""
        if not (type(item) is Call and PLAIN[Call](item) and item.tool and item.id and item.instance != ""
                and (not item.meta or SERVICE_KEYS.issuperset(item.meta))):  # fmt: skip
            call, wrong = decode(item)
        step = Step(call.id, call=call, params=call.params, scope=scope, run_id=scope.run_id)
        if runtime.approvals is not None and runtime.approvals.known:
            runtime.approvals.recognize(step)
        self.steps.append(step)
        if self._writer is not None and self._writer.is_streamed:
            self._writer.tell(CallsPlanned, calls=(call,))
        if runtime.wanted[CallProposed]:
            publish = runtime.publish  # a bound method: called as an attribute, it is looked for in the class first
            at = date_at(runtime, runtime.clock.monotonic())
            publish(CallProposed(call=call, cycle_id=scope.cycle_id, run_id=step.run_id, at=at))
        reads, why = step.prepare(runtime.catalog, self._board, wrong, graph.known)
        if replay is not None and why is None and replay.take_over(step, runtime, graph):
            self._drain()
            return
        if why is not None:
            graph.refuse(step, step.target, step.call.instance)
        elif not graph.add(step, reads, step.target, call.after, step.call.instance):
            why = fault("cycle", "it waits for itself, directly or through others", call.tool)
        if why is not None:
            self._record(step, step.failed(why))
        elif not step.entry.is_free or runtime.is_sequential:
            self._order.enter(step)
        if (replay is None or replay.is_on_board) and not self._is_cut_off:
            if step.state == HELD and len(graph.ready) == 1:  # the usual case
                self._start(graph.ready.pop())
            if graph.ready or graph.doomed or self._order.waiting:
                self._drain()

    # -- starting

    def _drain(self) -> None:
        """Start the calls that may start and end those that never can. After many of these, other tasks run first."""
        graph, order, given_up = self._graph, self._order, 0
        while not self._is_cut_off:
            while graph.doomed or graph.ready or order.due:
                if order.due:
                    order.call_due()
                while graph.doomed:
                    self._skip(graph.doomed.pop(), "a call that it is to run after did not end well")
                ready, graph.ready = graph.ready, []
                for step in ready:
                    if step.result is None:
                        self._start(step)
            # If all ready calls wait for their turn, the order itself may block the batch.
            if order.waiting and self._has_more and order.let_pass(is_complete=self._is_closed):
                continue
            if not self._is_closed or graph.open:
                return
            if given_up >= GIVEN_UP_LIMIT:
                asyncio.get_running_loop().call_soon(self._drain)
                return
            stuck = graph.stuck() if graph.pending else None
            if stuck is None:
                if not self._done.done():
                    self._done.set_result(None)
                return
            given_up += len(stuck[0])
            for step in stuck[0]:
                self._skip(step, stuck[2])

    @property
    def _has_more(self) -> bool:
        """Return whether `_drain` has something to do: calls to start or to skip, or all wait for their turn."""
        graph, order = self._graph, self._order
        if graph.ready or graph.doomed or order.due:
            return True
        return (self._is_closed or self._is_live) and graph.open <= len(order.waiting)

    def _skip(self, step: Step, sentence: str) -> None:
        """End a call that will not start, as parked if it waits for a parked call. `sentence` says why."""
        if step.result is not None:
            return
        if step.why == "branch":  # it is on a branch that was not taken, which is no error
            result = CallResult(step.call, "skipped", "branch")
        elif step.why in ("", "dep_failed"):
            result = self._parking.result(step) or self._held_back(step) or step.skipped(sentence)
        else:
            result = step.failed(fault(step.why, sentence, step.call.tool))
        self._record(step, result)

    def _start(self, step: Step) -> None:
        """Read the values of a ready call, and let it take its holds."""
        call, entry = step.call, step.entry
        if self._why:
            self._skip(step, self._why[0])
        elif step.references and (why := step.take_values(self._board)):
            self._record(step, step.failed(why))
        else:
            is_usual = step.late is None and (not call.meta or RARE_KEYS.isdisjoint(call.meta))
            if is_usual and self._is_bare and entry.is_plain:
                self._queue.append(step)
                if not self._free:
                    self._start_workers()
                return
            step.holds = (self._terms.usual.get(entry) if is_usual else None) or self._terms.of(step, is_usual=is_usual)
            self._pass(step)

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
        self._queue.append(step)
        if not self._free:
            self._start_workers()

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

    def _start_workers(self) -> None:
        """Start workers, as many as queue and limits allow, if no worker is about to look at the queue."""
        if not self._free:
            for _ in range(min(self._start_count, len(self._queue), self._runtime.limits.max_parallel - self._count)):
                self._free += 1
                self._count += 1
                self._spawn(self._work(), "calls")

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run work of this batch in a task of its own."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._task_ended)
        return task

    def _task_ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            settle(self._done, error=error)

    async def _work(self) -> None:
        runtime, context, writes, graph, order = self._runtime, self._context, self._writes, self._graph, self._order
        turns, step = 0, None
        try:
            while self._queue:
                step = self._queue.popleft()
                if step.result is not None:
                    continue
                ended = step.draft
                if ended is None:  # else it was left behind
                    step.state, step.moment = ATTEMPT, writes.count
                    self._at_work += 1
                    if step.call.meta:
                        step.select_messages(self._board)
                    ended = step.begin(runtime, context)
                    if armed:
                        crashpoint("act.spawned")
                    if ended is None and step.copying is not None:  # the queue waits: large results come one by one
                        ended = await copied_result(runtime, step)
                    if ended is None or (ended.fault is not None and pause_after(step, ended) is not None):
                        self._hand_over()
                        turns = 0
                        ended = await finish(runtime, step, ended, self._begin, self._leave)
                        if ended is None:
                            return
                        self._free += 1
                if runtime.hooks is not None and not runtime.hooks.used.isdisjoint(REVIEWS):
                    step.draft = ended
                    self._hand_over()
                    # Others may use its slots while hooks look at its result, but no other call starts for it.
                    release(step, self._terms.parallel)
                    step.draft = ended = await reviewed(runtime, step.scope, ended)
                    self._free += 1
                if step.result is None:
                    self._record(step, ended)
                    if len(graph.ready) == 1 and not graph.doomed:  # the usual case of a call that another follows
                        self._start(graph.ready.pop())
                    if graph.ready or graph.doomed or order.due or graph.open <= len(order.waiting):
                        self._drain()
                turns += 1 if ended.status == "ok" and type(ended.output) in _LIGHT else weight(ended)
                if turns >= IN_A_ROW:
                    turns = 0
                    await OTHERS_TURN
            self._free -= 1
            self._count -= 1
            self._start_count = 1
        except asyncio.CancelledError:
            # The batch is cancelled, or a tool has cancelled its own task: then other workers go on.
            self._count -= 1
            if step is not None and step.result is None:
                self._record(step, step.cut(runtime.clock))
                self._drain()
            if any(queued.result is None for queued in self._queue):
                self._start_workers()
            raise

    def _hand_over(self) -> None:
        """Let other workers look after the queue, because this one is about to wait."""
        self._free -= 1
        if self._queue and not self._free:
            self._start_count = min(2 * self._start_count, LARGEST_START)
            self._start_workers()

    def _leave(self, step: Step) -> None:
        """Leave behind a worker that is stuck in its tool after the deadline; the batch goes on without it."""
        if step.task is None:  # the batch was cancelled meanwhile
            return
        self._tasks.discard(step.task)
        self._count -= 1
        step.draft = step.timed_out(self._runtime.clock)
        self._queue.appendleft(step)
        self._start_workers()

    def _record(self, step: Step, result: CallResult) -> None:
        """Record a result: write its value, publish its event, and free the calls that wait for it."""
        runtime, writes, graph = self._runtime, self._writes, self._graph
        if step.holds:
            release(step)
        if step.lines:
            self._order.end(step)
        if step.reservation is not None and runtime.spending is not None:
            runtime.spending.release(step)
        if self._writer is not None:
            self._writer.ended(step, result)
        chosen, at, status = None, result.started_at, result.status
        if at is None or result.duration >= 0.001:
            at = date_at(runtime, runtime.clock.monotonic())
        if status == "ok" and result.reason != "detached":
            if step.target is not None or type(result.output) is Message:
                result, chosen = writes.apply(step, result, at, is_alone=self._at_work <= 1)
                status = result.status
            elif step.entry.activity:  # the value of a latent call without a path is no data for others
                writes.notes.append((step, None, "set", result.output, at))
                data = {"call": step.call.id, "tool": step.call.tool, "output": result.output}
                self._board.patch("result", data)
                if graph.is_watched:
                    graph.written(("result",), data)
        if status != "ok":
            if result.attempts and status in ("failed", "timeout"):
                result, chosen = writes.handled(step, result, at, is_alone=self._at_work <= 1)
            elif result.reason == "parked":
                self._parking.add(step)
        step.result, step.task = result, None
        if step.state == ATTEMPT:
            self._at_work -= 1
        graph.end(step, status == "ok", chosen)
        kind = _END_EVENTS.get(status, CallFailed)
        if runtime.wanted[kind] and result.reason != "detached":  # last, because a listener may stop the batch
            publish = runtime.publish
            publish(kind(call=result.call, cycle_id=self.scope.cycle_id, run_id=step.run_id, result=result, at=at))
        if armed:
            crashpoint("act.next_ready")

    async def _settle(self) -> None:
        """Return when each call has its result; no further calls arrive."""
        if self._replay is not None and not self._replay.is_on_board:
            # The journal holds these calls and results already, so they are not written again.
            writer, self._writer = self._writer, None
            for step, result in self._replay.endings(self._runtime, self._graph, self._writes):
                self._record(step, result)
            self._parking.replayed.update(self._parking.steps)
            self._writer = writer
        self._is_closed = True
        self._drain()
        await self._done
        await self._leave_behind()
        if len(self.steps) > SLICE:  # the results of the calls do not change any more
            writes, notes, steps = self._writes, slices_of(self._writes.notes), slices_of(self.steps)
            writes.messages += [message async for some in notes for note in some for message in Step.describe(*note)]
            writes.notes.clear()
            writes.errors = {s: error_of(s) async for some in steps for s in some if not s.ok and is_shown_error(s)}
        del self._writer, self._parking, self._terms  # they refer back to the batch, whose memory is to be free at once

    def stop(self, why: str, reason: str = "dep_failed", fault: Fault | None = None) -> None:
        """Start no further call and ask nobody any more. Calls that have started or are with a hook go on."""
        self._fault = self._fault or fault
        if self._is_cut_off:
            return
        if not self._why:
            self._why = why, reason
        self._terms.is_stopped, heard = True, self._terms.heard
        for step in self.steps:
            # `at` is 0 while a call arrives: `arrive` then ends it
            if step.result is None and step.at and step not in heard and MOVES["stopped"][step.state] == ENDED:
                if step.asking is not None:
                    step.asking.cancel()
                else:
                    self._skip(step, why)
        self._drain()

    def _held_back(self, step: Step) -> CallResult | None:
        """Return the result of a call that must not start any more, and withdraw its question; None if it may start."""
        if not self._why:
            return None
        if self._runtime.approvals is not None and (approval_id := step.question.own_id):
            self._runtime.approvals.queue.drop(approval_id, self._why[0])
        return step.skipped(*self._why)

    async def abort(self) -> None:
        """Cancel all calls; those that ignore that are left behind, and those that wait for people are parked."""
        self._is_cut_off = True
        waiting = [step for step in self.steps if step.result is None and step.state != ATTEMPT]
        for step in sorted(waiting, key=lambda step: not step.question.approval_id):  # those that ask people first
            result = self._parking.result(step) or step.cut(self._runtime.clock)
            if step.question.approval_id:
                result = step.skipped(f"it waits for approval {step.question.approval_id!r}", "parked")
            self._record(step, result)
        try:
            await self._runtime.end(self._tasks)
        finally:
            self.give_up()
            await self._leave_behind()

    async def _leave_behind(self) -> None:
        """Store the calls that wait for people; a batch that is replayed may have asked in an earlier process."""
        approvals, has_asked = self._runtime.approvals, self._replay is not None or self._terms.has_asked
        if approvals is not None and (has_asked or approvals.known):
            await approvals.leave_behind(self._parking)

    def give_up(self) -> None:
        """End each call without a result as cancelled, without waiting for it."""
        self._is_cut_off = True
        for step in self.steps:
            if step.result is None:
                self._record(step, step.cut(self._runtime.clock))

    # -- the result

    def result(self) -> ActionResult:
        """Return the result of the whole batch; the errors of detached calls that have ended since come first."""
        runtime, steps = self._runtime, self.steps
        results = tuple([step.result for step in steps if step.result is not None])
        # An interrupted batch takes no late messages: perhaps nobody reads its result.
        is_late = not self._is_cut_off and self.scope.session in runtime.late.sessions
        late_errors, late = runtime.take_late(self.scope) if is_late else ((), ())
        not_ok = [result for result in results if result.status != "ok"]
        status: ActionStatus = "interrupted" if self._is_cut_off else "ok"
        if not self._is_cut_off and (not_ok or self._fault is not None):
            status = status_of(not_ok, len(results), self._fault)
        shown = [step for step in steps if is_shown_error(step)] if not_ok else ()
        errors = [*late_errors, *[self._writes.errors.get(step) or error_of(step) for step in shown]]
        others = [message for step in steps if step.corrections for message in corrections_of(step)]
        if errors:
            others += [message_of("error", error) for error in errors]
        action = copy_with(self.action, calls=tuple([result.call for result in results]))
        state = self._board.state
        self._graph.close()  # its parts refer to one another
        messages = self._writes.messages
        for note in self._writes.notes:
            messages += Step.describe(*note)
        return ActionResult(action, status, results, state, (*messages, *late, *others), tuple(errors),
                            self._fault, runtime.clock.monotonic() - self._began)  # fmt: skip
