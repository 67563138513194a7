"""The calls of an agent's modules in one of its sessions: with what, and what else takes part in a phase.

Where nothing else does, the module's own coroutine is the phase's, so that a cycle costs what its modules cost. What
else there may be: what was pushed, a run that begins, calls that people have answered, a cycle that was cut off and
goes on, and the journal, which is told before anything is done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Protocol, cast

from spar.errors import ENDS_PROCESS, SparError, is_closing
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
from spar.records.abilities import AgedAbilities, ReadAbilities
from spar.records.journal import Interrupted, Item
from spar.runs.inbox import Inbox
from spar.runs.interrupted import InterruptedWork
from spar.runs.run import Run
from spar.session.parts import SessionParts
from spar.types import Action, ActionResult, Fault, Perception, Phase

log = get_logger("spar.lane")

#: Seconds that the sense module may take to hear between two cycles that what it handed over is seen through.
SETTLE_WITHIN = 30.0


class SessionState(Protocol):
    """The session whose phases are called: its run, what waits in it, and the cycle in hand."""

    core: Core
    parts: SessionParts
    key: str
    is_standing: bool
    is_open: bool
    is_polling: bool
    is_called: bool
    is_resuming: bool
    modules: dict[Phase, Module]
    runner: PhaseRunner
    inbox: Inbox
    interrupted: InterruptedWork
    run: Run | None
    cycle: Cycle | None
    loop: Loop

    def is_empty(self) -> bool: ...
    @property
    def has_work(self) -> bool: ...
    def take(self, cycle: Cycle) -> list[Perception]: ...
    async def may_begin(self, run: Run, cycle: Cycle) -> bool: ...
    def leave(self, run: Run) -> None: ...
    def failed(self, cycle: Cycle, fault: Fault, error: BaseException, policy: str) -> None: ...


class SessionPhases:
    """The phases of one session: `CALLS` makes of it, by phase, the coroutine of one attempt."""

    __slots__ = ("core", "parts", "session")

    def __init__(self, session: SessionState) -> None:
        self.session, self.parts, self.core = session, session.parts, session.core

    def sense(self, cycle: Cycle, _: None) -> Coroutine[Any, Any, Any]:
        module, session = self.session.modules["sense"], self.session
        cycle.has_sensed = True
        is_polled = session.is_standing and cycle.interrupted is None and not self.parts.recovery.suspects.polled
        if not is_polled or not (session.is_empty() or not session.has_work):
            return self._sense(module, cycle)
        session.is_open = session.is_called = False
        call = module.call
        return call(self._context(cycle)) if module.wants_context else call()

    def act(self, cycle: Cycle, action: Action | OpenPlan) -> Coroutine[Any, Any, Any]:
        module = self.session.modules["act"]
        if cycle.run is not None and self.session.inbox.steers:
            self.steer(cycle.run.id)  # the plan does not know what was said while it was made
        is_journalled = self.parts.work.journal is not None
        if is_journalled:
            self.parts.cycle_log.opened(cycle, cycle.perceptions)
        if type(action) is OpenPlan:
            return self._act_on_stream(module, action, cycle)
        if is_journalled and (action.calls or cycle.resumed is not None) and not tells_calls(module.part):
            return self._act_told(module, cast(Action, action), cycle)
        call = module.call
        return call(action, self._context(cycle)) if module.wants_context else call(action)

    async def _act_told(self, module: Module, action: Action, cycle: Cycle) -> Any:
        """The work of an actor that writes down nothing of its calls: what it does is written down as a whole."""
        if (known := await self.parts.cycle_log.acting(module.part, action, cycle)) is not None:
            return known
        return await (module.call(action, self._context(cycle)) if module.wants_context else module.call(action))

    def reflect(self, cycle: Cycle, result: ActionResult) -> Coroutine[Any, Any, Any]:
        module = self.session.modules["reflect"]
        call = module.call
        if not module.wants_context:
            return call(result)
        read = cycle.abilities = ReadAbilities(self.parts.agent_state.abilities.known, self.core.clock)
        return call(result, self._context(cycle, read))

    async def _sense(self, module: Module, cycle: Cycle) -> list[Perception]:
        """Return what the sensors noticed (on the standing session) and what was pushed, by priority."""
        parts, session = self.parts, self.session
        if cycle.interrupted is not None:
            return await self._sense_interrupted(module, cycle, cycle.interrupted)
        polled: list[Perception] = []
        if session.is_standing and session.is_polling:
            session.is_called = False
            given = (self._context(cycle),) if module.wants_context else ()
            polled = list(perceptions_of(await module.call(*given), module.name))
            if parts.recovery.suspects.polled:
                polled = parts.recovery.sift(polled, session.key, cycle.id, module)
        before, pushed = session.run, session.take(cycle)
        run = session.run
        if run is not None and run is not before and not await session.may_begin(run, cycle):
            pushed = [perception for perception in pushed if perception not in cycle.new_messages]
            cycle.run, cycle.new_messages = None, ()
            session.leave(run)
        pushed = await self._perceived(module, pushed, cycle)
        # While interrupted work waits, the calls that go on may be among its own.
        if session.is_resuming and not session.interrupted and (resumed := self.resumed()) is not None:
            cycle.resumable = resumed
            pushed = [*pushed, *resumed.perceptions]
        return sorted([*pushed, *polled], key=lambda perception: -perception.importance)

    async def _perceived(self, module: Module, pushed: list[Perception], cycle: Cycle) -> list[Perception]:
        """Return what the sense module makes of what was pushed."""
        if pushed and self.parts.setup.perceive is not None:
            try:
                return list(perceptions_of(await self.parts.setup.perceive(pushed, self._context(cycle)), module.name))
            except Exception as error:
                # What people said arrives unclassified rather than not at all.
                self.session.failed(cycle, Fault.of(error, part=module.name, phase="sense"), error, "continue")
        return pushed

    async def _sense_interrupted(self, module: Module, cycle: Cycle, piece: Interrupted[Run]) -> list[Perception]:
        """Return what was in hand before, by itself: a cycle that was cut off, or what may be to blame for that."""
        session, run, work = self.session, piece.run, piece.work
        if piece.is_suspect and self.parts.work.journal is not None:
            await self.parts.work.journal.safe()  # the end of what was tried before does not share the fate of this
        if run is not None and run is not session.run:
            assert session.run is None, "a session takes interrupted work while it has a run"
            session.run = run
            if run.started_at is None:
                self.parts.runs.start(run)
            if run.is_planned or piece.cycle is not None:
                await self.parts.session_hooks.run_begins(session.key)
            elif not await session.may_begin(run, cycle):
                cycle.run = None
                session.leave(run)
                return []
        if not isinstance(work, Item):
            return list(work.perceptions)
        pushed = [work.perception]
        if run is not None:
            cycle.run, cycle.new_messages = run.context(), run.new
            pushed = list(run.new)
        if work.is_sensed or not pushed:
            return pushed
        # To the pipeline of this process it may be a repetition of itself.
        return await self._perceived(module, pushed, cycle) or pushed

    @property
    def _actor(self) -> Module:
        """The actor of the cycle in hand, or else of the next one."""
        session = self.session
        return (session.modules if session.cycle is not None else session.parts.setup.modules)["act"]

    def resumed(self) -> Action | None:
        """The calls that the actor has to go on with; None also when it cannot tell."""
        module = self._actor
        try:
            return module.part.resumable(self.session.key) if offers(module.part, Resumable) else None
        except Exception as error:
            log.warning("actor cannot tell", agent=self.core.name, part=module.name, reason=repr(error))
            return None

    def steer(self, run_id: str) -> None:
        """Have the actor begin nothing more of what was planned for a run before somebody said something new."""
        module = self._actor
        try:
            if offers(module.part, Steerable):
                module.part.steer(run_id)
        except Exception as error:
            log.warning("actor cannot be steered", agent=self.core.name, part=module.name, reason=repr(error))

    async def abandon(self, run_id: str) -> None:
        """Have the actor forget what of this run is still to come."""
        module = self.parts.setup.modules["act"]
        try:
            if offers(module.part, Abandonable):
                await module.part.abandon(run_id)
        except Exception as error:
            log.warning("actor cannot forget", agent=self.core.name, part=module.name, reason=repr(error))

    def plan(self, cycle: Cycle, perceptions: Any) -> Coroutine[Any, Any, Any]:
        if self.parts.work.journal is not None:
            self.parts.cycle_log.opened(cycle, perceptions)
        is_going_on = cycle.interrupted is not None or cycle.resumable is not None
        return self._plan_on(cycle, perceptions) if is_going_on else self._planned(cycle, perceptions)

    async def _plan_on(self, cycle: Cycle, perceptions: Any) -> Any:
        """The plan of a cycle in which something may go on: what was cut off, or calls that people have answered."""
        if cycle.resumed is not None and cycle.resumed.action is not None:
            await self.parts.recovery.cut.begun_again(cycle.resumed)
            self.resumed()  # the actor knows its own calls among these again
            return cycle.resumed.action
        if (resumed := cycle.resumable) is None:
            return await self._planned(cycle, perceptions)
        # What people have answered goes on whatever the planner makes of the rest.
        known = {perception.id for perception in resumed.perceptions}
        rest = [perception for perception in perceptions or () if perception.id not in known]
        if not (rest or cycle.run is not None or self.parts.setup.plan_when_idle):
            return resumed
        try:
            return await self._planned(cycle, rest, resumed)
        except Exception as error:
            name = self.session.modules["plan"].name
            self.session.failed(cycle, Fault.of(error, part=name, phase="plan"), error, "continue")
            return resumed

    async def _planned(self, cycle: Cycle, perceptions: Any, first: Action | None = None) -> Any:
        """Return what the planner wants done, after what is to come first."""
        if armed:
            crashpoint("plan.before")
        module = self.session.modules["plan"]
        call, own = module.call, list(perceptions or ())  # the planner may do with it what it likes
        product = await (call(own, self._context(cycle)) if module.wants_context else call(own))
        if product is None and (over := [each for each in perceptions or () if ends_episode(each)]):
            product = Action(perceptions=tuple(over), reason="an episode is over: there is something to learn from")
        if type(product) is Action or not hasattr(product, "__aiter__"):
            return product if first is None else join_actions(first, action_of(product, module.name, perceptions))
        step = self.session.loop.steps["plan"]
        source = product.__aiter__() if first is None else prepend_calls(first.calls, product)
        plan = OpenPlan(source, perceptions or (), module.name, self.core.clock, self.session.runner.leave)
        return await plan.begin(step.timeout, step.grace, at_once=self._can_stream(self.session.modules["act"], cycle))

    async def _act_on_stream(self, module: Module, plan: OpenPlan, cycle: Cycle) -> Any:
        given = (self._context(cycle),) if module.streams_with_context else ()
        product = await module.part.act_stream(plan.head, plan.calls(), *given)
        plan.close()
        return plan.completed(product)

    def _can_stream(self, actor: Module, cycle: Cycle) -> bool:
        """Return whether calls may run before the plan is finished: the actor can, no hook judges plans, no step."""
        is_guarded = not self.core.hooks.used.isdisjoint(("after_plan", "before_act"))
        return not cycle.is_stepped and offers(actor.part, StreamingActor) and not is_guarded

    async def settle(self, cycle: Cycle) -> None:
        """Between two cycles: what has been seen through is told to the sense module; a failing module is restarted."""
        session, parts = self.session, self.parts
        if cycle.faults:
            await parts.health.mend(cycle.session)
        settled, runner = parts.setup.settled, session.runner
        # Only the standing session polls, so only its cycles have seen through what the sensors handed over.
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
        core, parts, step = self.core, self.parts, self.session.loop.steps[cycle.phase]
        return Context(
            agent=core.name,
            cycle_id=cycle.known_id or cycle.id,
            session=self.session.key,
            run=cycle.run,
            memory=parts.agent_state.memory,
            abilities=AgedAbilities(parts.agent_state.abilities.known, core.clock) if abilities is None else abilities,
            deadline=core.clock.monotonic() + step.timeout,
            clock=core.clock,
            known=cycle.resumed.known if cycle.resumed is not None else (),
            noticed=cycle.noticed,
            learning=core.settings.memory.learning,
        )


async def _awaited(function: Callable[[], Awaitable[object]]) -> None:
    await function()


#: By phase, what makes the coroutine of one attempt.
CALLS: Mapping[Phase, PhaseCall] = {
    "sense": SessionPhases.sense,
    "plan": SessionPhases.plan,
    "act": SessionPhases.act,
    "reflect": SessionPhases.reflect,
}


def ends_episode(perception: Perception) -> bool:
    """Return whether an environment says how an episode ended, so that there is something to reflect on."""
    return perception.attributes.get("done") is True and "episode" in perception.attributes


def tells_calls(actor: Any) -> bool:
    """Return whether an actor writes its calls down itself."""
    return offers(actor, StatesJournal) and actor.keeps_journal
