"""The cycles of one session: their start, the hooks about them, and the steps that follow their end."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, ClassVar

from msgspec.structs import asdict

from spar.decisions.consequence import Consequence, Ending, consequence
from spar.decisions.finish import finish, judge
from spar.decisions.next_step import piece_to_take
from spar.events import LoopCompleted, LoopStarted
from spar.facts import CycleClosed
from spar.failpoints import armed, crashpoint
from spar.health.health import NEVER_SLOW
from spar.hooks import REWRITABLE, HookContext, Outcome
from spar.loop.cycle import Cycle, Skip, closed
from spar.loop.loop import Loop, PhaseCall
from spar.loop.plan_stream import OpenPlan
from spar.loop.setup import result_of
from spar.observe.logs import get_logger
from spar.ports.any_part import offers
from spar.ports.phases import TellsInterrupted
from spar.runs.run import End, EndedRun, Run
from spar.session.parts import SessionParts
from spar.session.work import SessionWork
from spar.state.work import InterruptedState
from spar.types import Action, ActionResult, Fault, Phase, answering

log = get_logger("spar.lane")

#: The end of a run when the verdict on its last cycle raised an exception.
_UNJUDGED = End("error", "its cycle could not be judged; the log says why")


class SessionCycles(SessionWork):
    """Session as its `Loop` sees it: it starts cycles, answers the loop's questions about them, and handles their
    end."""

    __slots__ = ("_messages", "ended", "last_completed", "loop", "rests_until", "stop_reason")

    #: The function that starts each phase.
    calls: ClassVar[Mapping[Phase, PhaseCall]]

    def __init__(self, parts: SessionParts, key: str) -> None:
        super().__init__(parts, key)
        core, setup = parts.core, parts.setup
        #: The run that the last cycle ended, until its answer was sent; and its messages for the hooks at `after_run`.
        self.ended: tuple[Run, End] | None = None
        self._messages: tuple[dict[str, Any], ...] = ()
        self.last_completed = core.clock.monotonic()
        self.rests_until: float | None = None
        self.stop_reason = ""
        self.loop = Loop(self, self.runner, setup.steps, core.events, core.hooks, core.clock,
                         plan_when_idle=setup.plan_when_idle)  # fmt: skip

    # -- the start of a cycle

    def use_present_modules(self) -> None:
        """Use the modules, timeouts and settings that are in force now."""
        self.modules = self.parts.setup.modules
        self.loop.steps, self.loop.plan_when_idle = self.parts.setup.steps, self.parts.setup.plan_when_idle

    def open_cycle(self, *, is_stepped: bool = False) -> Cycle:
        """Return a new cycle. It takes the next interrupted work, if there is any.

        Args: is_stepped: a person runs the phases one by one.
        """
        core, parts = self.core, self.parts
        if self.modules is not parts.setup.modules or self.loop.steps is not parts.setup.steps:
            self.use_present_modules()
        piece = None if is_stepped or not self.handed_out else piece_to_take(self.state, self._turn())
        # Interrupted work gets its own cycle, outside the current run.
        run_id = self.state.run if piece is None else piece.run
        run = parts.runs.open_run(run_id) if run_id else None
        cycle = Cycle(self.key, None if run is None else run.context(), core.clock, piece)
        if piece is not None:
            parts.recovery.restart.suspects.begin_trial(piece)
            self.take_piece(cycle, piece)
        self.cycle, cycle.configuration = cycle, core.configuration
        if core.events.wanted[LoopStarted]:
            now = core.clock.now()
            core.events.publish(LoopStarted(cycle_id=cycle.id, started_at=now, session=self.key, at=now))
        return cycle

    async def may_begin(self, run: Run, cycle: Cycle) -> bool:
        """Return whether the hooks at `before_run` allow a new run. A refused run is ended here."""
        await self.parts.conversations.hooks.run_begins(self.key)
        outcome = await self._consult("before_run", cycle, run.message)
        if outcome is not None and outcome.denied:
            await self._end_now(run, End("error", outcome.reason or "refused by a hook"))
            return False
        return True

    async def _end_now(self, run: Run, end: End) -> None:
        """End a run before its cycle has ended, and leave it."""
        self.leave(run, end)
        await self.parts.recovery.safe()
        self.parts.runs.end(run, end)

    # -- hooks and modules

    async def _consult(self, point: str, cycle: Cycle, value: Any, run_id: str | None = None) -> Outcome | None:
        """Run the hooks at a point, report their errors, and return the outcome; None without hooks at that point."""
        hooks = self.core.hooks
        if point not in hooks.used:
            return None
        about = run_id or (cycle.run.id if cycle.run else None)
        outcome = await hooks.run(HookContext(point, self.core.name, value, self.key, about, cycle.id))
        self.parts.reports.hooks_failed(cycle.id, outcome, self.key)
        return outcome

    async def ask(self, point: str, cycle: Cycle, value: Any) -> Any:
        """Return a value after the hooks at a point have seen, and perhaps replaced, it.

        A hook may also end the run. Raises: Skip when a hook denies the value.
        """
        outcome = await self._consult(point, cycle, value)
        if outcome is None:
            return value
        if outcome.stop_run and cycle.run is not None:
            run = self.parts.runs.get(cycle.run.id)
            await self._end_now(run, End("error", outcome.reason or f"stopped by a hook at {point}"))
        if outcome.denied:
            cycle.is_skipped, cycle.is_refused = True, not cycle.has_sensed
            raise Skip
        if point == "before_plan":
            cycle.noticed, cycle.perceptions = tuple(cycle.perceptions), tuple(outcome.value)
            return cycle.perceptions
        if point == "after_plan" and isinstance(outcome.value, Action):
            return answering(outcome.value, cycle.perceptions)
        return outcome.value if point in REWRITABLE else value

    def report_failure(self, cycle: Cycle, fault: Fault, error: BaseException, policy: str) -> None:
        """Report the failure of a phase."""
        self.parts.reports.phase_failed(cycle, fault, error, policy)

    def salvage(self, action: Action) -> ActionResult | None:
        """Return the result of an interrupted action, as far as the actor has it; None if the actor cannot tell."""
        module = self.modules["act"]
        try:
            known = module.part.interrupted(action.id) if offers(module.part, TellsInterrupted) else None
            return None if known is None else result_of(known, module.name, action)
        except Exception as error:
            log.warning("actor cannot tell", agent=self.core.name, part=module.name, reason=repr(error))
            return None

    def begin(self, work: Coroutine[Any, Any, Any], done: Callable[[BaseException | None], object]) -> None:
        """Run the session's task `work`. `done(error)` is called when the task ends."""
        with self.parts.requests.inside():
            self.runner.start(work, done)

    def cancel_phase(self, reason: str) -> None:
        """Cancel the current phase. The cycle is recorded as interrupted."""
        self.stop_reason = reason
        self.runner.cancel()

    # -- the end of a cycle

    def close_cycle(self, cycle: Cycle) -> None:
        """Do everything that follows the end of a cycle: statistics, records, the verdict on its run, and
        `LoopCompleted`.

        Each step is guarded by itself: an exception in one step is reported, and all other steps still happen.
        """
        core, parts, guarded = self.core, self.parts, self.parts.reports.guarded
        if core.shared is not None and not core.shared.has(self.key):  # its owner goes on, whatever errors came here
            self.cancel_phase("stop")
        if self.stop_reason:
            cycle.is_cut = True
        if cycle.is_cut or cycle.faults:
            guarded(cycle, self._close_interrupted, cycle)
        if cycle.interrupted is not None and cycle.interrupted.is_suspect:
            guarded(cycle, parts.recovery.restart.end_trial, cycle.interrupted)
        if armed:
            crashpoint("cycle.closing")
        monotonic = self.loop.monotonic
        self.last_completed = now = monotonic()
        self.rests_until = self.cycle = None
        self.is_open = True
        outcome, duration = cycle.conclude(now), cycle.duration
        parts.account.cycle(outcome, duration)
        parts.session_accounts.cycle((self.key, outcome, duration, cycle.durations, cycle.faults))
        if cycle.result is not None and cycle.result.results:
            guarded(cycle, parts.account.calls.add, cycle.result.results)
        if cycle.faults or duration > NEVER_SLOW or not parts.health.is_calm():
            guarded(cycle, parts.health.observe, cycle, duration)
        if self.is_resuming:
            self.is_resuming = guarded(cycle, self.resumed) is not None
        run = parts.runs.open_run(cycle.run.id) if cycle.run is not None else None
        what: Consequence = "done"
        if cycle.is_cut or cycle.faults or cycle.interrupted is not None:
            what = consequence_of(cycle, self.stop_reason, is_stopped=self.runner.is_cancelled)
        if what == "again" and cycle.interrupted is not None:
            self._put_back(cycle, cycle.interrupted, cycle.started)
        else:
            end = None
            if run is not None or self.state.cycle is not None:
                end = self._close(cycle, None if cycle.is_refused else run, now)
            guarded(cycle, parts.cycle_log.closed, cycle, duration, run, end, what)
            if run is not None and not cycle.is_journalled:  # else the journal has its entries
                guarded(cycle, parts.conversations.transcripts.add, run, cycle, end)
            if run is not None and end is not None:
                self._end(run, end, cycle)
        if cycle.interrupted is not None:
            parts.recovery.restart.suspects.end_trial(self.key, cycle.interrupted, is_put_back=what == "again")
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
        if isinstance(cycle.action, OpenPlan):
            cycle.action.close()
        if cycle.is_cut and cycle.result is None and cycle.written_action is not None:
            cycle.result = self.salvage(cycle.written_action)

    def _put_back(self, cycle: Cycle, piece: InterruptedState, since: float) -> None:
        """Put interrupted work back before all other, unless its run has ended. Args: since: when it was handed out."""
        is_open = not piece.run or piece.run in self.state.runs
        if is_open:
            self.handed_out[piece.work] = since
        else:
            self.parts.recovery.restart.drop(piece)
        self.tell(CycleClosed(session=self.key, cycle=cycle.id, outcome=cycle.outcome, is_put_back=is_open))

    # -- the end of a run

    def _close(self, cycle: Cycle, run: Run | None, now: float) -> End | None:
        """Close a cycle in the state of its session; return how its run ended with it, None while it continues."""
        parts, guarded = self.parts, self.parts.reports.guarded
        if run is None or (fact := guarded(cycle, closed, cycle, run.id, self.stop_reason)) is None:
            self.tell(CycleClosed(session=self.key, cycle=cycle.id, outcome=cycle.outcome))
            return None if run is None else _UNJUDGED
        run.note(cycle.result)
        end: End | None = guarded(cycle, self._judge, run, fact, now, otherwise=_UNJUDGED)
        self.tell(fact)
        run.touched = now
        if fact.waits:
            parts.runs.timers.wait_for_provider(run, fact.waits)
        return end

    def _judge(self, run: Run, fact: CycleClosed, now: float) -> End | None:
        elapsed = now - run.started_mono - run.state.waited - fact.waits
        verdict = judge(run.state, fact, elapsed, self.parts.runs.timers.limits)
        return None if verdict is None else End(verdict.status, verdict.error, verdict.output)

    def _end(self, run: Run, end: End, cycle: Cycle) -> None:
        """Leave a run that has ended. Send its answer now if the answer need not wait for the disk, or if no later step
        of this session would send it."""
        parts = self.parts
        self.ended = (run, end)
        self._messages = run.context().messages if "after_run" in self.core.hooks.used else ()
        self.leave(run, end, cycle.id if cycle.is_journalled else "")
        outbox = parts.conversations.outbox
        if cycle.is_cut or cycle.is_stepped or (parts.recovery.journal.is_safe and not outbox.is_guarded):
            parts.reports.guarded(cycle, outbox.answer_at_once, run, end)
            parts.runs.end(run, end)

    def leave(self, run: Run, end: End, cycle: str = "") -> None:
        """Finish a run, drop its interrupted work, and let the next run begin. Its answer may still be on its way.

        Args: cycle: the journalled cycle with whose end it finishes.
        """
        dropped = [piece for work in run.state.pieces if (piece := self.state.piece(work)) is not None]
        self.tell(*finish(self.state, run.id, end.status, end.error, end.output, cycle))
        for piece in dropped:
            if self.handed_out.pop(piece.work, None) is not None:
                self.parts.recovery.restart.drop(piece)
                self.parts.recovery.restart.suspects.wake_next()
        if self.core.hooks.used:
            self.parts.conversations.hooks.run_ended(self.key)

    async def publish_end(self, cycle: Cycle, run: Run, end: End) -> None:
        """Publish the end of a run, once its answer is on disk, and call the hooks at `after_run`."""
        if armed:
            crashpoint("run.before_answer")
        if run.status is None:
            self.parts.runs.end(run, await self.parts.conversations.outbox.answer(run, end))
        self.ended = None
        if "after_run" in self.core.hooks.used:
            status = await self.parts.runs.wait(run.id, 0)
            await self._consult("after_run", cycle, EndedRun(**asdict(status), messages=self._messages), run.id)

    def is_pursuing(self, run: Run) -> bool:
        """Return whether the current cycle belongs to this run. The run may not have begun yet in this process."""
        cycle = self.cycle
        if cycle is None or cycle.run is None:
            return False
        return self.state.run == run.id or (cycle.interrupted is not None and cycle.interrupted.run == run.id)

    def is_answering(self, run: Run) -> bool:
        """Return whether a run, or the run that absorbed it, has ended and its answer is being sent."""
        return self.ended is not None and self.ended[0].id in (run.id, run.state.into)

    @property
    def is_asking(self) -> bool:
        """Return whether hooks are being asked about a cycle that has taken no work yet."""
        cycle = self.cycle
        return (
            not self.is_standing and not self.state.run and cycle is not None and cycle.phase == "sense"
            and not cycle.items and not self.stop_reason
        )  # fmt: skip

    def release_task(self) -> None:
        """Clean up after the session's task has ended. A run whose answer was still being sent ends as its answer is on
        disk."""
        self.cycle = None
        if self.parts.holding.awaited:
            self.parts.holding.note_cycle_ended(self)
        if self.ended is not None:
            self.parts.runs.end(*self.ended)
            self.ended = None


def consequence_of(cycle: Cycle, stop_reason: str, *, is_stopped: bool) -> Consequence:
    """Return what becomes of the work of a cycle.

    Args: stop_reason: why it was cut off: "stop" if the agent stops, "" if it was not; is_stopped: its task was
        cancelled.
    """
    if cycle.is_cut:
        is_stopped &= not cycle.is_stepped
        ending: Ending = "called off" if stop_reason not in ("", "stop") else "stopped" if is_stopped else "broken"
    else:
        ending = "well" if cycle.failure is None else "failed"
    piece = cycle.interrupted
    usual = consequence(cycle.progress, ending, "" if piece is None else "item" if piece.cycle is None else "cycle")
    return "done" if cycle.is_stepped and usual == "later" else usual
