"""The phases of one session: the calls of the modules, with their contexts and the work of the session.

In the simple case the phase is the module's own coroutine, so that a cycle costs no more than its modules. The other
cases add pushed perceptions, a new run, calls that a person has decided, an interrupted cycle that continues, and
journal rows that must be written before an effect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, cast

from spar.errors import ENDS_PROCESS, SparError, is_closing
from spar.facts import RunBegan
from spar.failpoints import armed, crashpoint
from spar.loop.cycle import Cycle
from spar.loop.plan_stream import OpenPlan, join_actions, prepend_calls
from spar.loop.setup import Module, action_of, perceptions_of
from spar.observe.logs import get_logger
from spar.ports.any_part import offers
from spar.ports.phases import StatesJournal
from spar.protocols import Context, StreamingActor
from spar.session.cycles import SessionCycles
from spar.state.work import InterruptedState
from spar.types import Action, ActionResult, Fault, Perception

if TYPE_CHECKING:
    from spar.journal.cycle_log import CycleLog
    from spar.records.abilities import ReadAbilities

log = get_logger("spar.lane")

#: The time limit (seconds) for `settled`, the call that confirms the perceptions of a cycle to the sense module.
SETTLE_WITHIN = 30.0


class SessionPhases(SessionCycles):
    """Session as it calls the modules, phase by phase."""

    __slots__ = ()

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

    def act(self, cycle: Cycle, action: Action | OpenPlan) -> Coroutine[Any, Any, Any]:
        """Return the coroutine of the act phase: carry out an action, or the calls of a plan that is still being
        written."""
        module = self.modules["act"]
        if cycle.run is not None and self.state.steers:
            self.steer(cycle.run.id)  # the plan does not know messages that came while it was written
        if cycle.is_stepped:  # a person may act without a plan
            self.parts.cycle_log.opened(cycle, cycle.perceptions)
        if type(action) is OpenPlan:
            return self._act_on_stream(module, action, cycle)
        if cycle.is_journalled and (action.calls or cycle.resumed is not None) and not journals_calls(module.part):
            return self._act_journalled(module, cast(Action, action), cycle)
        call = module.call
        return call(action, self._context(cycle)) if module.wants_context else call(action)

    async def _act_journalled(self, module: Module, action: Action, cycle: Cycle) -> Any:
        """Journal the whole action, then act: for an actor that does not journal its calls itself."""
        if (known := await cast("CycleLog", self.parts.cycle_log).acting(module.part, action, cycle)) is not None:
            return known
        return await (module.call(action, self._context(cycle)) if module.wants_context else module.call(action))

    def reflect(self, cycle: Cycle, result: ActionResult) -> Coroutine[Any, Any, Any]:
        """Return the coroutine of the reflect phase."""
        module = self.modules["reflect"]
        call = module.call
        if not module.wants_context:
            return call(result)
        read = cycle.abilities = self.parts.agent_state.abilities.read()
        return call(result, self._context(cycle, read))

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
        return sorted([*pushed, *polled], key=lambda perception: -perception.importance)

    @property
    def _has_polled_suspects(self) -> bool:
        """Return whether a polled perception may have ended earlier processes."""
        if self.parts.recovery.polled:
            return True
        shared = self.core.shared
        return shared is not None and shared.is_suspect(self.key)

    async def _call_perceive(self, module: Module, pushed: list[Perception], cycle: Cycle) -> list[Perception]:
        """Return pushed perceptions after the sense module has processed them."""
        if pushed and self.parts.setup.perceive is not None:
            try:
                return list(perceptions_of(await self.parts.setup.perceive(pushed, self._context(cycle)), module.name))
            except Exception as error:
                # A message that could not be classified is used unclassified, so that it is not lost.
                self.report_failure(cycle, Fault.of(error, part=module.name, phase="sense"), error, "continue")
        return pushed

    async def _sense_interrupted(self, module: Module, cycle: Cycle, piece: InterruptedState) -> list[Perception]:
        """Return the perceptions of one piece of interrupted work: an interrupted cycle, or work that may have killed
        the process."""
        run = self.parts.runs.open_run(piece.run)
        begun = None if run is self.run else run
        if begun is not None:
            assert self.run is None, "a session takes interrupted work while it has a run"
            self.tell(RunBegan(session=self.key, run=begun.id))  # first: it goes on if this phase fails
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
        assert (item := piece.item) is not None  # noqa: RUF018
        pushed = [item.perception]
        if run is not None:
            cycle.run, cycle.new_messages = run.context(), run.state.new
            pushed = list(run.state.new)
        if item.is_sensed or not pushed:
            return pushed
        # The pipeline of this process may drop the perception as a duplicate of itself.
        return await self._call_perceive(module, pushed, cycle) or pushed

    def plan(self, cycle: Cycle, perceptions: Any) -> Coroutine[Any, Any, Any]:
        """Return the coroutine of the plan phase."""
        self.parts.cycle_log.opened(cycle, perceptions)
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
            self.report_failure(cycle, Fault.of(error, part=name, phase="plan"), error, "continue")
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
        if type(product) is Action or not hasattr(product, "__aiter__"):
            return product if first is None else join_actions(first, action_of(product, module.name, perceptions))
        step = self.loop.steps["plan"]
        source = product.__aiter__() if first is None else prepend_calls(first.calls, product)
        plan = OpenPlan(source, perceptions or (), module.name, self.core.clock, self.runner.leave)
        return await plan.begin(step.timeout, step.grace, at_once=self._can_stream(self.modules["act"], cycle))

    async def _act_on_stream(self, module: Module, plan: OpenPlan, cycle: Cycle) -> Any:
        """Have the actor run the calls of a plan while the planner still writes it."""
        context_arguments = (self._context(cycle),) if module.streams_with_context else ()
        product = await module.part.act_stream(plan.head, plan.calls(), *context_arguments)
        plan.close()
        return plan.completed(product)

    def _can_stream(self, actor: Module, cycle: Cycle) -> bool:
        """Return whether calls may start before the plan is complete. Hooks that judge whole plans and single steps
        prevent it."""
        is_guarded = not self.core.hooks.used.isdisjoint(("after_plan", "before_act"))
        return not cycle.is_stepped and offers(actor.part, StreamingActor) and not is_guarded

    async def settle(self, cycle: Cycle) -> None:
        """Confirm the perceptions of a cycle to the sense module after the cycle, and restart modules that keep
        failing."""
        parts = self.parts
        if cycle.faults:
            await parts.health.ladder.mend(cycle.session)
        settled, runner = parts.setup.settled, self.runner
        # Only the standing session polls, so only its cycles have perceptions of sensors to confirm.
        if settled is None or not self.is_standing or not cycle.perceptions or cycle.faults:
            return
        try:
            work, begun = _awaited(settled), self.core.clock.monotonic()
            try:
                waiting = work.send(None)
            except StopIteration:
                return
            await runner.finish_phase(work, waiting, begun, SETTLE_WITHIN, parts.setup.steps["sense"].grace)
        except asyncio.CancelledError:
            if runner.is_cancelled:
                raise
            error: BaseException = SparError("it cancelled itself")
        except ENDS_PROCESS:
            raise
        except BaseException as caught:
            if is_closing(caught, runner.task):
                raise
            error = caught
        else:
            return
        fault = Fault.of(error, part=parts.setup.modules["sense"].name, phase="sense")
        parts.reports.phase_failed(cycle, fault, error, "continue")

    def _context(self, cycle: Cycle, abilities: ReadAbilities | None = None) -> Context:
        """Return the context of the current phase for its module."""
        core, parts, step = self.core, self.parts, self.loop.steps[cycle.phase]
        return Context(
            agent=core.name,
            cycle_id=cycle.known_id or cycle.id,
            session=self.key,
            run=cycle.run,
            memory=parts.agent_state.memory,
            abilities=parts.agent_state.abilities.aged if abilities is None else abilities,
            deadline=core.clock.monotonic() + step.timeout,
            clock=core.clock,
            known=cycle.resumed.known if cycle.resumed is not None else (),
            noticed=cycle.noticed,
            learning=core.settings.memory.learning,
        )


async def _awaited(function: Callable[[], Awaitable[object]]) -> None:
    await function()


SessionPhases.calls = {
    "sense": SessionPhases.sense,
    "plan": SessionPhases.plan,
    "act": SessionPhases.act,
    "reflect": SessionPhases.reflect,
}


def ends_episode(perception: Perception) -> bool:
    """Return whether a perception reports the end of an environment's episode, which needs reflection."""
    return perception.attributes.get("done") is True and "episode" in perception.attributes


def journals_calls(actor: Any) -> bool:
    """Return whether an actor journals its calls itself."""
    return offers(actor, StatesJournal) and actor.keeps_journal
