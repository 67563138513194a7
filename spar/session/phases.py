"""The phases of one session: the calls of the modules, with their contexts and the work of the session.

In the simple case the phase is the module's own coroutine, so that a cycle costs no more than its modules. The other
cases add pushed perceptions, a new run, calls that a person has decided, an interrupted cycle that continues, and
journal rows that must be written before an effect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Protocol, cast

from spar.errors import ENDS_PROCESS, SparError, is_closing
from spar.facts import Fact, RunBegan
from spar.failpoints import armed, crashpoint
from spar.loop.core import Core
from spar.loop.cycle import Cycle
from spar.loop.loop import Loop, PhaseCall
from spar.loop.module_adapter import Module, action_of, perceptions_of
from spar.loop.phase_runner import PhaseRunner
from spar.loop.plan_stream import OpenPlan, join_actions, prepend_calls
from spar.observe.logs import get_logger
from spar.ports.optional import Abandonable, StatesJournal, offers
from spar.protocols import Context, Resumable, Steerable, StreamingActor
from spar.runs.run import End, Run
from spar.session.parts import SessionParts
from spar.state.work import InterruptedState, SessionState
from spar.types import Action, ActionResult, Fault, Perception, Phase

if TYPE_CHECKING:
    from spar.records.abilities import ReadAbilities

log = get_logger("spar.lane")

#: The time limit (seconds) for `settled`, the call that confirms the perceptions of a cycle to the sense module.
SETTLE_WITHIN = 30.0


class PhasedSession(Protocol):
    """Session as its phases see it: its run, its queues, and its current cycle."""

    core: Core
    parts: SessionParts
    key: str
    is_standing: bool
    is_open: bool
    is_polling: bool
    is_poll_requested: bool
    is_resuming: bool
    modules: dict[Phase, Module]
    runner: PhaseRunner
    state: SessionState
    handed_out: dict[str, float]
    cycle: Cycle | None
    loop: Loop

    @property
    def run(self) -> Run | None: ...
    def is_empty(self) -> bool: ...
    def tell(self, *following: Fact) -> None: ...
    @property
    def has_work(self) -> bool: ...
    def take(self, cycle: Cycle) -> list[Perception]: ...
    async def may_begin(self, run: Run, cycle: Cycle) -> bool: ...
    def leave(self, run: Run, end: End) -> None: ...
    def report_failure(self, cycle: Cycle, fault: Fault, error: BaseException, policy: str) -> None: ...


class SessionPhases:
    """The four phases of one session. `CALLS` maps each phase to the method that returns the coroutine of one
    attempt."""

    __slots__ = ("core", "parts", "session")

    def __init__(self, session: PhasedSession) -> None:
        self.session, self.parts, self.core = session, session.parts, session.core

    def sense(self, cycle: Cycle, _: None) -> Coroutine[Any, Any, Any]:
        """Return the coroutine of the sense phase: poll the sensors, take pushed perceptions, begin or continue a
        run."""
        module, session = self.session.modules["sense"], self.session
        cycle.has_sensed = True
        is_polled = session.is_standing and cycle.interrupted is None and not self.parts.recovery.polled
        if not is_polled or not (session.is_empty() or not session.has_work):
            return self._sense(module, cycle)
        session.is_open = session.is_poll_requested = False
        call = module.call
        return call(self._context(cycle)) if module.wants_context else call()

    def act(self, cycle: Cycle, action: Action | OpenPlan) -> Coroutine[Any, Any, Any]:
        """Return the coroutine of the act phase: carry out an action, or the calls of a plan that is still being
        written."""
        module = self.session.modules["act"]
        if cycle.run is not None and self.session.state.steers:
            self.steer(cycle.run.id)  # the plan does not know messages that came while it was written
        is_journalled = self.parts.recovery.journal is not None
        if is_journalled:
            self.parts.cycle_log.opened(cycle, cycle.perceptions)
        if type(action) is OpenPlan:
            return self._act_on_stream(module, action, cycle)
        if is_journalled and (action.calls or cycle.resumed is not None) and not journals_calls(module.part):
            return self._act_journalled(module, cast(Action, action), cycle)
        call = module.call
        return call(action, self._context(cycle)) if module.wants_context else call(action)

    async def _act_journalled(self, module: Module, action: Action, cycle: Cycle) -> Any:
        """Journal the whole action, then act: for an actor that does not journal its calls itself."""
        if (known := await self.parts.cycle_log.acting(module.part, action, cycle)) is not None:
            return known
        return await (module.call(action, self._context(cycle)) if module.wants_context else module.call(action))

    def reflect(self, cycle: Cycle, result: ActionResult) -> Coroutine[Any, Any, Any]:
        """Return the coroutine of the reflect phase."""
        module = self.session.modules["reflect"]
        call = module.call
        if not module.wants_context:
            return call(result)
        read = cycle.abilities = self.parts.agent_state.abilities.read()
        return call(result, self._context(cycle, read))

    async def _sense(self, module: Module, cycle: Cycle) -> list[Perception]:
        """Return the perceptions of the sensors (standing session only), the pushed ones and those of the run, by
        importance."""
        parts, session = self.parts, self.session
        if cycle.interrupted is not None:
            return await self._sense_interrupted(module, cycle, cycle.interrupted)
        polled: list[Perception] = []
        if session.is_standing and session.is_polling:
            session.is_poll_requested = False
            context_arguments = (self._context(cycle),) if module.wants_context else ()
            polled = list(perceptions_of(await module.call(*context_arguments), module.name))
            if parts.recovery.polled:
                polled = parts.recovery.restart.accept_suspects(polled, session.key, cycle.id, module)
        before, pushed = session.state.run, session.take(cycle)
        run_id = session.state.run
        if run_id not in ("", before) and not await session.may_begin(parts.runs.get(run_id), cycle):
            pushed = [perception for perception in pushed if perception not in cycle.new_messages]
            cycle.run, cycle.new_messages = None, ()
        pushed = await self._call_perceive(module, pushed, cycle)
        # While interrupted work waits, the resumable calls may be part of it.
        if session.is_resuming and not session.handed_out and (resumed := self.resumed()) is not None:
            cycle.resumable = resumed
            pushed = [*pushed, *resumed.perceptions]
        return sorted([*pushed, *polled], key=lambda perception: -perception.importance)

    async def _call_perceive(self, module: Module, pushed: list[Perception], cycle: Cycle) -> list[Perception]:
        """Return pushed perceptions after the sense module has processed them."""
        if pushed and self.parts.setup.perceive is not None:
            try:
                return list(perceptions_of(await self.parts.setup.perceive(pushed, self._context(cycle)), module.name))
            except Exception as error:
                # A message that could not be classified is used unclassified, so that it is not lost.
                self.session.report_failure(cycle, Fault.of(error, part=module.name, phase="sense"), error, "continue")
        return pushed

    async def _sense_interrupted(self, module: Module, cycle: Cycle, piece: InterruptedState) -> list[Perception]:
        """Return the perceptions of one piece of interrupted work: an interrupted cycle, or work that may have killed
        the process."""
        session, run = self.session, self.parts.runs.open_run(piece.run)
        if piece.is_suspect and self.parts.recovery.journal is not None:
            await (
                self.parts.recovery.journal.safe()
            )  # before this work runs, the end of the former attempt must be safe
        if run is not None and run is not session.run:
            assert session.run is None, "a session takes interrupted work while it has a run"
            session.tell(RunBegan(session=session.key, run=run.id))
            if run.state.is_planned or piece.cycle is not None:
                await self.parts.conversations.hooks.run_begins(session.key)
            elif not await session.may_begin(run, cycle):
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

    @property
    def _actor(self) -> Module:
        """Return the actor of the current cycle, or of the next one between cycles."""
        session = self.session
        return (session.modules if session.cycle is not None else session.parts.setup.modules)["act"]

    def resumed(self) -> Action | None:
        """Return an action with the calls that the actor can resume; None if there are none, or if the actor raises."""
        module = self._actor
        try:
            return module.part.resumable(self.session.key) if offers(module.part, Resumable) else None
        except Exception as error:
            log.warning("actor cannot tell", agent=self.core.name, part=module.name, reason=repr(error))
            return None

    def steer(self, run_id: str) -> None:
        """Have the actor start no further call of a run's plan, because a new message came after that plan."""
        module = self._actor
        try:
            if offers(module.part, Steerable):
                module.part.steer(run_id)
        except Exception as error:
            log.warning("actor cannot be steered", agent=self.core.name, part=module.name, reason=repr(error))

    async def abandon(self, run_id: str) -> None:
        """Have the actor drop the waiting calls of a run."""
        module = self.parts.setup.modules["act"]
        try:
            if offers(module.part, Abandonable):
                await module.part.abandon(run_id)
        except Exception as error:
            log.warning("actor cannot forget", agent=self.core.name, part=module.name, reason=repr(error))

    def plan(self, cycle: Cycle, perceptions: Any) -> Coroutine[Any, Any, Any]:
        """Return the coroutine of the plan phase."""
        if self.parts.recovery.journal is not None:
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
            name = self.session.modules["plan"].name
            self.session.report_failure(cycle, Fault.of(error, part=name, phase="plan"), error, "continue")
            return resumed

    async def _call_planner(self, cycle: Cycle, perceptions: Any, first: Action | None = None) -> Any:
        """Return the planner's product. The calls of `first` precede it."""
        if armed:
            crashpoint("plan.before")
        module = self.session.modules["plan"]
        call, own_copy = module.call, list(perceptions or ())  # a copy, since the planner may change it
        product = await (call(own_copy, self._context(cycle)) if module.wants_context else call(own_copy))
        if product is None and (ends := [perception for perception in perceptions or () if ends_episode(perception)]):
            product = Action(perceptions=tuple(ends), reason="an episode is over: there is something to learn from")
        if type(product) is Action or not hasattr(product, "__aiter__"):
            return product if first is None else join_actions(first, action_of(product, module.name, perceptions))
        step = self.session.loop.steps["plan"]
        source = product.__aiter__() if first is None else prepend_calls(first.calls, product)
        plan = OpenPlan(source, perceptions or (), module.name, self.core.clock, self.session.runner.leave)
        return await plan.begin(step.timeout, step.grace, at_once=self._can_stream(self.session.modules["act"], cycle))

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
        session, parts = self.session, self.parts
        if cycle.faults:
            await parts.health.ladder.mend(cycle.session)
        settled, runner = parts.setup.settled, session.runner
        # Only the standing session polls, so only its cycles have perceptions of sensors to confirm.
        if settled is None or not session.is_standing or not cycle.perceptions or cycle.faults:
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
        core, parts, step = self.core, self.parts, self.session.loop.steps[cycle.phase]
        return Context(
            agent=core.name,
            cycle_id=cycle.known_id or cycle.id,
            session=self.session.key,
            run=cycle.run,
            memory=parts.agent_state.memory,
            abilities=parts.agent_state.abilities.aged() if abilities is None else abilities,
            deadline=core.clock.monotonic() + step.timeout,
            clock=core.clock,
            known=cycle.resumed.known if cycle.resumed is not None else (),
            noticed=cycle.noticed,
            learning=core.settings.memory.learning,
        )


async def _awaited(function: Callable[[], Awaitable[object]]) -> None:
    await function()


#: For each phase, the method that returns the coroutine of one attempt.
CALLS: Mapping[Phase, PhaseCall] = {
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
