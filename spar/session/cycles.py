"""The cycles of one session, each with its phases sense – plan – act – reflect, and the steps that follow its end.

`run_phase` does what all four phases need: a deadline, two events, a duration, and the consequence of a failure, which
the policy of the phase decides (`Step`). A cycle costs a few microseconds: the phase is the module's own coroutine
where no other work is due, it is awaited inline, events without a subscriber are not built, and the deadline of a phase
that ends in time costs one assignment (`spar.loop.phase_runner`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from spar.data.reply import End
from spar.decisions.finish import Consequence
from spar.decisions.next_step import piece_to_take
from spar.errors import ENDS_PROCESS, SparError, is_closing, unwrap
from spar.events import LoopCompleted, LoopStarted, PhaseCompleted, PhaseStarted
from spar.facts import CycleClosed, RunBegan, WorkHandedOut
from spar.failpoints import armed, crashpoint
from spar.health.alerts import NEVER_SLOW
from spar.loop.cycle import PRODUCTS, Cycle, Skip, consequence_of, replace_product
from spar.loop.setup import Module, action_of, perceptions_of
from spar.ports.any_part import has
from spar.ports.phases import OptionalActor
from spar.protocols import Context
from spar.session.work import SessionWork
from spar.types import Action, ActionResult, Fault, Perception, Phase

if TYPE_CHECKING:
    from spar.journal.cycle_log import CycleLog
    from spar.loop.plan_stream import OpenPlan

#: Exceptions that end a phase without being errors of the phase.
NO_ERRORS = (asyncio.CancelledError, *ENDS_PROCESS)
#: The end of a run when the verdict on its last cycle raised an exception.
_UNJUDGED = End("error", "its cycle could not be judged; the log says why")
#: The time limit (seconds) for `settled`, the call that confirms the perceptions of a cycle to the sense module.
SETTLE_WITHIN = 30.0


class SessionCycles(SessionWork):
    """Session as it runs cycles. A failure of a module is handled here; `run_cycle` does not raise it."""

    __slots__ = ()

    def use_present_modules(self) -> None:
        """Use the modules, timeouts and settings that are in force now."""
        self.modules, self.steps = self.parts.setup.modules, self.parts.setup.steps

    def open_cycle(self, *, is_stepped: bool = False) -> Cycle:
        """Return a new cycle. It takes the next interrupted work, if there is any.

        Args: is_stepped: a person runs the phases one by one.
        """
        core, parts = self.core, self.parts
        if self.modules is not parts.setup.modules or self.steps is not parts.setup.steps:
            self.use_present_modules()
        piece = None if is_stepped or not self.handed_out else piece_to_take(self.state, self._turn())
        # Interrupted work gets its own cycle, outside the current run.
        run = parts.runs.open_run(self.state.run if piece is None else piece.run)
        cycle = Cycle(self.key, None if run is None else run.context(), core.clock, piece)
        if piece is not None:
            parts.recovery.restart.suspects.begin_trial(piece)
            self.take_piece(cycle, piece)
        self.cycle, cycle.configuration = cycle, core.configuration
        if core.events.wanted[LoopStarted]:
            now = core.clock.now()
            core.events.publish(LoopStarted(cycle_id=cycle.id, started_at=now, session=self.key, at=now))
        return cycle

    async def run_cycle(self) -> Cycle:
        """Run one cycle and return it.

        Raises: only exceptions that end the task itself: a cancellation from outside, the end of the process.
        """
        cycle = self.open_cycle()
        try:
            if self.core.hooks.used:
                await self.ask("before_cycle", cycle, cycle.id)
            perceptions = cycle.perceptions = await self.run_phase("sense", cycle, None)
            if perceptions or cycle.run is not None or cycle.resumed is not None or self.parts.setup.plan_when_idle:
                action = cycle.action = await self.run_phase("plan", cycle, perceptions)
                if action is not None:
                    result = cycle.result = await self.run_phase("act", cycle, action)
                    cycle.reflection = await self.run_phase("reflect", cycle, result)
        except Skip:
            pass  # the failure or the denial by a hook is reported already, and the next cycle senses again
        except BaseException as end:
            cycle.is_cut = True
            if not isinstance(end, asyncio.CancelledError) or self.runner.is_cancelled:
                raise  # from outside; a module that cancels its own task only ends its own cycle
        finally:
            self.close_cycle(cycle)
        return cycle

    async def run_phase(self, phase: Phase, cycle: Cycle, value: Any) -> Any:
        """Run one phase with its deadline, events, timing and attempts. Return its product, or a replacement of the
        product after a failure.

        Args: value: the product of the phase before; None for the phase sense.
        Raises: Skip when the remaining phases of the cycle are left out.
        """
        core, step, monotonic = self.core, self.steps[phase], self.monotonic  # a local name is faster than an attribute
        events, check_product = core.events, step.check_product
        cycle.phase = phase
        if core.hooks.used:
            value = await self.ask(f"before_{phase}", cycle, value)
        if events.wanted[PhaseStarted]:
            events.publish(PhaseStarted(cycle_id=cycle.id, phase=phase, input=value,
                                        session=cycle.session))  # fmt: skip
        begun = cycle.phase_began = monotonic()
        attempt = 0
        while True:
            try:
                work = _CALLS[phase](self, cycle, value)
                try:
                    waiting = work.send(None)
                except StopIteration as ended:  # most phases end without waiting
                    product = ended.value
                else:
                    product = await self.runner.finish_phase(work, waiting, begun, step.timeout, step.grace)
                product = check_product(product, step.name, value)
                break
            except BaseException as error:
                if isinstance(end := unwrap(error), NO_ERRORS) or is_closing(end, self.runner.task):
                    raise end from None
                attempt += 1
                fault = Fault.of(error, part=step.name, phase=phase)
                wait = step.wait_before_retry(attempt, fault)
                self.parts.reports.phase_failed(cycle, fault, error, step.final_policy if wait is None else "retry")
                if wait is None:
                    cycle.faults = (*cycle.faults, fault)
                    return replace_product(step, value, fault, error, self.salvage)
                await core.clock.sleep(wait)
                begun = monotonic()
        if phase == "plan" and product is not None and not isinstance(product, Action):  # it is still being written
            product.when_written(partial(self._written, cycle, cycle.phase_began))
            return product
        duration = cycle.durations[step.number] = monotonic() - cycle.phase_began
        step.durations.append(duration)
        if events.wanted[PhaseCompleted]:
            events.publish(PhaseCompleted(cycle_id=cycle.id, phase=phase, output=product,
                                          duration=duration, session=cycle.session))  # fmt: skip
        if not core.hooks.used:
            return product
        if phase != "plan":  # a hook that denies undoes no phase; but a denied plan is not carried out
            setattr(cycle, PRODUCTS[phase], product)
        return await self.ask(f"after_{phase}", cycle, product)

    def _written(self, cycle: Cycle, started: float, action: Action, error: BaseException | None) -> None:
        """Record the end of a streamed plan, which the act phase has read while it was written.

        The calls that the plan contains so far still run, and the phase reflect sees them, even if an error ended the
        plan. Args: started: when the phase plan began (monotonic seconds); error: what ended the plan early.
        """
        cycle.action = action
        if isinstance(error, asyncio.CancelledError):
            cycle.is_cut = True
        step, duration = self.steps["plan"], self.monotonic() - started
        if error is None and not cycle.is_cut:
            cycle.durations[step.number] = duration
            step.durations.append(duration)
            self.core.events.publish(PhaseCompleted(cycle_id=cycle.id, phase="plan", output=action, duration=duration,
                                                    session=cycle.session))  # fmt: skip
        elif not cycle.is_cut:
            assert error is not None
            fault = Fault.of(error, part=step.name, phase="plan")
            cycle.faults = (*cycle.faults, fault)
            self.parts.reports.phase_failed(cycle, fault, error, step.final_policy)

    def sense(self, cycle: Cycle, _: None) -> Coroutine[Any, Any, Any]:
        """Return the coroutine of the sense phase: poll the sensors, take pushed perceptions, begin or continue a
        run."""
        module = self.modules["sense"]
        cycle.has_sensed = True
        is_polled = self.is_standing and cycle.interrupted is None and not self._has_polled_suspects
        if not is_polled or not (self.is_empty() or not self.has_work):
            return self._sense(module, cycle)
        self.is_open = self.is_poll_requested = False
        call = module.call
        return call(self._context(cycle)) if module.wants_context else call()

    async def _sense(self, module: Module, cycle: Cycle) -> list[Perception]:
        """Return the perceptions of the sensors (standing session only), the pushed ones and those of the run, by
        importance."""
        parts = self.parts
        if cycle.interrupted is not None:
            return await self._sense_interrupted(module, cycle, cycle.interrupted)
        polled: list[Perception] = []
        if self.is_standing and self.is_polling:
            self.is_poll_requested = False
            context_arguments = (self._context(cycle),) if module.wants_context else ()
            polled = list(perceptions_of(await module.call(*context_arguments), module.name))
            if self._has_polled_suspects:
                polled = parts.recovery.restart.accept_suspects(polled, self.key, cycle.id, module)
        before, pushed = self.state.run, self.take(cycle)
        run_id = self.state.run
        is_asked = self.core.hooks.used and run_id not in ("", before)
        if is_asked and not await self.may_begin(parts.runs.get(run_id), cycle):
            pushed = [perception for perception in pushed if perception not in cycle.new_messages]
            cycle.run, cycle.new_messages = None, ()
        pushed = await self._call_perceive(module, pushed, cycle)
        # While interrupted work waits, the resumable calls may be part of it.
        if self.is_resuming and not self.handed_out and (resumed := self.resumed()) is not None:
            cycle.resumable = resumed
            pushed = [*pushed, *resumed.perceptions]
        noticed = [*pushed, *polled]
        return noticed if len(noticed) < 2 else sorted(noticed, key=lambda perception: -perception.importance)

    @property
    def _has_polled_suspects(self) -> bool:
        """Return whether a polled perception may have ended earlier processes."""
        shared = self.core.shared
        return bool(self.parts.recovery.polled) or (shared is not None and shared.is_suspect(self.key))

    async def _sense_interrupted(self, module: Module, cycle: Cycle, piece: WorkHandedOut) -> list[Perception]:
        """Return the perceptions of one piece of interrupted work: an interrupted cycle, or work that may have killed
        the process."""
        run, item = self.parts.runs.open_run(piece.run), self.state.items.get(piece.work)
        begun = None if run is self.run else run
        if begun is not None:
            assert self.run is None, "a session takes interrupted work while it has a run"
            self.core.ledger.tell(RunBegan(session=self.key, run=begun.id))  # first: it goes on if this phase fails
        if piece.is_suspect:
            await self.parts.recovery.restart.begin_trial(piece)
        if begun is not None:
            if begun.state.is_planned or piece.cycle is not None:
                await self.parts.conversations.hooks.run_begins(self.key)
            elif self.core.hooks.used and not await self.may_begin(begun, cycle):
                cycle.run = None
                return []
        if piece.cycle is not None:
            return list(piece.cycle.perceptions)
        assert item is not None
        pushed = [item.perception]
        if run is not None:
            cycle.run, cycle.new_messages = run.context(), run.state.new
            pushed = list(run.state.new)
        if item.is_sensed or not pushed:
            return pushed
        # The pipeline of this process may drop the perception as a duplicate of itself.
        return await self._call_perceive(module, pushed, cycle) or pushed

    async def _call_perceive(self, module: Module, pushed: list[Perception], cycle: Cycle) -> list[Perception]:
        """Return pushed perceptions after the sense module has processed them."""
        if pushed and self.parts.setup.perceive is not None:
            try:
                return list(perceptions_of(await self.parts.setup.perceive(pushed, self._context(cycle)), module.name))
            except Exception as error:
                # A message that could not be classified is used unclassified, so that it is not lost.
                self.parts.reports.phase_failed(
                    cycle, Fault.of(error, part=module.name, phase="sense"), error, "continue"
                )
        return pushed

    def plan(self, cycle: Cycle, perceptions: Any) -> Coroutine[Any, Any, Any]:
        """Return the coroutine of the plan phase."""
        if self.has_journal:
            cast("CycleLog", self.parts.cycle_log).opened(cycle, perceptions)
        is_going_on = cycle.interrupted is not None or cycle.resumable is not None
        return self._continue_plan(cycle, perceptions) if is_going_on else self._call_planner(cycle, perceptions)

    async def _continue_plan(self, cycle: Cycle, perceptions: Any) -> Any:
        """Return the action of a cycle that continues interrupted work, or calls that a person has decided."""
        if cycle.resumed is not None and cycle.resumed.action is not None:
            await self.parts.recovery.restart.count_attempt(cycle.resumed)
            self.resumed()  # the actor recognizes its own calls among these
            return cycle.resumed.action
        if (resumed := cycle.resumable) is None:
            return await self._call_planner(cycle, perceptions)
        # Calls that people have decided continue whatever the planner does with the other perceptions.
        known = {perception.id for perception in resumed.perceptions}
        others = [perception for perception in perceptions or () if perception.id not in known]
        if not (others or cycle.run is not None or self.parts.setup.plan_when_idle):
            return resumed
        try:
            return await self._call_planner(cycle, others, resumed)
        except Exception as error:
            name = self.modules["plan"].name
            self.parts.reports.phase_failed(cycle, Fault.of(error, part=name, phase="plan"), error, "continue")
            return resumed

    async def _call_planner(self, cycle: Cycle, perceptions: Any, first: Action | None = None) -> Any:
        """Return the planner's product. The calls of `first` precede it."""
        if armed:
            crashpoint("plan.before")
        module = self.modules["plan"]
        call, own_copy = module.call, list(perceptions or ())  # a copy, since the planner may change it
        product = await (call(own_copy, self._context(cycle)) if module.wants_context else call(own_copy))
        if product is None and (ends := [perception for perception in perceptions or () if ends_episode(perception)]):
            product = Action(perceptions=tuple(ends), reason="an episode is over: there is something to learn from")
        is_whole = type(product) is Action or not hasattr(product, "__aiter__")
        if is_whole and first is None:
            return product
        from spar.loop.plan_stream import OpenPlan, join_actions, prepend_calls  # most plans are whole

        if is_whole and first is not None:
            return join_actions(first, action_of(product, module.name, perceptions))
        step = self.steps["plan"]
        source = product.__aiter__() if first is None else prepend_calls(first.calls, product)
        plan = OpenPlan(source, perceptions or (), module.name, self.core.clock, self.runner.leave)
        return await plan.begin(step.timeout, step.grace, at_once=self._can_stream(self.modules["act"], cycle))

    def _can_stream(self, actor: Module, cycle: Cycle) -> bool:
        """Return whether calls may start before the plan is complete. Hooks that judge whole plans and single steps
        prevent it."""
        is_guarded = not self.core.hooks.used.isdisjoint(("after_plan", "before_act"))
        return not cycle.is_stepped and has(actor.part, OptionalActor.act_stream) and not is_guarded

    def act(self, cycle: Cycle, action: Action | OpenPlan) -> Coroutine[Any, Any, Any]:
        """Return the coroutine of the act phase: carry out an action, or the calls of a plan that is still being
        written."""
        module = self.modules["act"]
        if cycle.run is not None and self.state.steers:
            # The plan does not know messages that came while it was written.
            self.core.ask(self.actor, OptionalActor.steer, cycle.run.id)
        if cycle.is_stepped and self.has_journal:  # a person may act without a plan
            cast("CycleLog", self.parts.cycle_log).opened(cycle, cycle.perceptions)
        if not isinstance(action, Action):
            return self._act_on_stream(module, action, cycle)
        work = (action, self._context(cycle)) if module.wants_context else (action,)
        is_owed = cycle.is_journalled and (action.calls or cycle.resumed is not None)
        if is_owed and not (module.states_journal and module.part.keeps_journal):
            return self._act_journalled(module, cycle, *work)
        return module.call(*work)

    async def _act_journalled(self, module: Module, cycle: Cycle, action: Action, *context: Context) -> Any:
        """Journal the whole action, then act: for an actor that does not journal its calls itself."""
        known = await cast("CycleLog", self.parts.cycle_log).acting(module.part, action, cycle)
        return await module.call(action, *context) if known is None else known

    async def _act_on_stream(self, module: Module, plan: OpenPlan, cycle: Cycle) -> Any:
        """Have the actor run the calls of a plan while the planner still writes it."""
        context_arguments = (self._context(cycle),) if module.streams_with_context else ()
        product = await module.part.act_stream(plan.head, plan.calls(), *context_arguments)
        plan.close()
        return plan.completed(product)

    def reflect(self, cycle: Cycle, result: ActionResult) -> Coroutine[Any, Any, Any]:
        """Return the coroutine of the reflect phase."""
        module = self.modules["reflect"]
        call = module.call
        return call(result, self._context(cycle)) if module.wants_context else call(result)

    def _context(self, cycle: Cycle) -> Context:
        """Return the context of the current phase for its module."""
        core, parts, step = self.core, self.parts, self.steps[cycle.phase]
        abilities = parts.agent_state.abilities
        if cycle.phase == "reflect" and (learning := parts.learning) is not None:
            abilities = cycle.abilities = learning.read()  # what a reflector reads is noted, since others may change it
        return Context(
            agent=core.name,
            cycle_id=cycle.id,
            session=self.key,
            run=cycle.run,
            memory=parts.agent_state.memory,
            abilities=abilities,
            deadline=core.clock.monotonic() + step.timeout,
            clock=core.clock,
            known=cycle.resumed.known if cycle.resumed is not None else (),
            noticed=cycle.noticed,
            learning=core.settings.memory.learning,
        )

    def close_cycle(self, cycle: Cycle) -> None:
        """Do everything that follows the end of a cycle: statistics, records, the verdict on its run, and
        `LoopCompleted`.

        Each step is guarded by itself: an exception in one step is reported, and all other steps still happen.
        """
        core, parts, report = self.core, self.parts, self.parts.reports.closing_failed
        if core.shared is not None and not core.shared.has(self.key):  # its owner goes on, whatever errors came here
            self.cancel_phase("stop")
        if self.stop_reason:
            cycle.is_cut = True
        if cycle.is_cut or cycle.faults:
            cycle.guarded(report, self._close_interrupted, cycle)
        if cycle.interrupted is not None and cycle.interrupted.is_suspect:
            cycle.guarded(report, parts.recovery.restart.end_trial, cycle.interrupted)
        if armed:
            crashpoint("cycle.closing")
        self.last_completed = now = self.monotonic()
        self.rests_until = self.cycle = None
        self.is_open = True
        outcome, duration = cycle.conclude(now), cycle.duration
        results = () if cycle.result is None else cycle.result.results
        cycle.guarded(report, parts.account.cycle, outcome, duration, results)
        parts.session_accounts.cycle((self.key, outcome, duration, cycle.durations, cycle.faults))
        if cycle.faults or duration > NEVER_SLOW or not parts.health.is_calm():
            cycle.guarded(report, parts.health.judge.observe, cycle, duration)
        if self.is_resuming:
            self.is_resuming = cycle.guarded(report, self.resumed) is not None
        run = parts.runs.open_run(cycle.run.id) if cycle.run is not None else None
        what: Consequence = "done"
        if cycle.is_cut or cycle.faults or cycle.interrupted is not None:
            what = consequence_of(cycle, self.stop_reason, is_stopped=self.runner.is_cancelled)
        if what == "again" and cycle.interrupted is not None:
            self._put_back(cycle, cycle.interrupted, cycle.started)
        else:
            end = None
            if run is not None or self.state.cycle is not None:
                fact = CycleClosed(session=self.key, cycle=cycle.id)
                if run is not None and not cycle.is_refused:
                    judged = cycle.guarded(report, parts.runs.judged, run, cycle, self.stop_reason, now)
                    fact, end = judged or (fact, _UNJUDGED)
                core.ledger.tell(fact)
                if run is not None and fact.waits:
                    parts.runs.timers.wait_for_provider(run, fact.waits)
            cycle.guarded(report, parts.cycle_log.closed, cycle, duration, run, end, what)
            if run is not None and not cycle.is_journalled:  # else the journal has its entries
                action, result = cycle.written_action, cycle.result
                cycle.guarded(report, parts.conversations.transcripts.add, run, action, result, end)
            if run is not None and end is not None:
                self._end(run, end, cycle)
        if cycle.interrupted is not None:
            parts.recovery.restart.suspects.end_trial(cycle.interrupted, is_put_back=what == "again")
        if core.events.wanted[LoopCompleted]:
            at = core.clock.now()
            core.events.publish(LoopCompleted(cycle_id=cycle.id, completed_at=at, duration=duration, outcome=outcome,
                                               session=self.key, calls=cycle.calls, deferred=cycle.deferred,
                                               at=at))  # fmt: skip
        for callback in cycle.when_closed:
            callback()
        if parts.holding.awaited:
            parts.holding.note_cycle_ended(self)

    def _close_interrupted(self, cycle: Cycle) -> None:
        """Close an unfinished plan, and get the result of an interrupted action from the actor."""
        if cycle.action is not None and not isinstance(cycle.action, Action):
            cycle.action.close()
        if cycle.is_cut and cycle.result is None and cycle.written_action is not None:
            cycle.result = self.salvage(cycle.written_action)

    async def settle(self, cycle: Cycle) -> None:
        """Confirm the perceptions of a cycle to the sense module after the cycle, and restart modules that keep
        failing."""
        parts = self.parts
        if cycle.faults:
            await parts.health.judge.ladder.mend(cycle.session)
        settled, runner = parts.setup.settled, self.runner
        # Only the standing session polls, so only its cycles have perceptions of sensors to confirm.
        if settled is None or not self.is_standing or not cycle.perceptions or cycle.faults:
            return
        try:
            work, begun = _awaited(settled), self.monotonic()
            try:
                waiting = work.send(None)
            except StopIteration:
                return
            await runner.finish_phase(work, waiting, begun, SETTLE_WITHIN, parts.setup.steps["sense"].grace)
        except BaseException as error:
            is_cancelled = isinstance(error, asyncio.CancelledError)
            if (
                isinstance(error, ENDS_PROCESS)
                or is_closing(error, runner.task)
                or (is_cancelled and runner.is_cancelled)
            ):
                raise
            failure = SparError("it cancelled itself") if is_cancelled else error
            fault = Fault.of(failure, part=parts.setup.modules["sense"].name, phase="sense")
            parts.reports.phase_failed(cycle, fault, failure, "continue")


async def _awaited(function: Callable[[], Any]) -> None:
    await function()


#: The function that starts an attempt at each phase, of the session, the cycle and the product of the phase before.
_CALLS: Final[dict[Phase, Callable[[SessionCycles, Cycle, Any], Coroutine[Any, Any, Any]]]] = {
    "sense": SessionCycles.sense,
    "plan": SessionCycles.plan,
    "act": SessionCycles.act,
    "reflect": SessionCycles.reflect,
}


def ends_episode(perception: Perception) -> bool:
    """Return whether a perception reports the end of an environment's episode, which needs reflection."""
    return perception.attributes.get("done") is True and "episode" in perception.attributes
