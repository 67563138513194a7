"""One session of an agent: a loop of its own, what was pushed to it, the run it pursues, and when it turns again.

`main` is the standing session, whose sense polls the sensors. Every other session is made when its first message comes
and ends when nothing is left to do. Sessions of one agent share its modules; their cycles never wait for one another.
A run needs a place, which `spar.session.sessions` gives: `main` turns without one and begins no run, any other session
does not turn, and leaves it after each run when others wait.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from typing import Any, Protocol

from msgspec.structs import asdict

from spar.clock import Timer
from spar.events import LoopCompleted, LoopStarted
from spar.failpoints import crashpoint
from spar.health.health import NEVER_SLOW
from spar.hooks import REWRITABLE, HookContext, Outcome
from spar.loop.cycle import STANDING, Cycle, Skip
from spar.loop.loop import Loop
from spar.loop.module_adapter import result_of
from spar.loop.pacing import pause_after
from spar.loop.phase_runner import PhaseRunner
from spar.loop.plan_stream import OpenPlan
from spar.loop.wake import Wake
from spar.observe.logs import get_logger
from spar.ports.optional import TellsInterrupted, offers
from spar.ports.trust import answering
from spar.records.journal import Interrupted
from spar.runs.inbox import PLACES, Inbox, Mode, Place, collected, overflow
from spar.runs.interrupted import InterruptedWork
from spar.runs.run import End, EndedRun, Run
from spar.runs.verdict import verdict
from spar.session.parts import SessionParts
from spar.session.phases import SessionPhases
from spar.types import Action, ActionResult, Fault, Perception

log = get_logger("spar.lane")

#: Seconds after which a run that waits for a provider is planned again at the latest.
LONGEST_DEFERRAL = 300.0
#: How a run ends about whose last cycle nothing can be said.
_UNJUDGED = End("error", "its cycle could not be judged; the log says why")
#: Seconds after which a cycle that a hook denied is tried again at the latest, while something waits for it.
LONGEST_REFUSAL = 60.0


class _OthersTurn:
    """Awaited, lets every other task of the event loop run once; what `asyncio.sleep(0)` does, without its frames."""

    def __await__(self) -> Generator[None, None, None]:
        yield


_OTHERS_TURN = _OthersTurn()


class Places(Protocol):
    """The places of the runs under way, as a session gives its own back and waits for the next one."""

    @property
    def do_others_wait(self) -> bool: ...
    def give_back(self, session: Session) -> None: ...
    def offer(self, session: Session, rest: float = 0.0) -> None: ...


class Session:
    """One session: it gives its loop the cycles, hears how they ended, and decides when the next one comes."""

    __slots__ = ("_ended", "_not_before", "_polled_at", "_told", "calls", "core", "cycle", "has_place", "inbox",
                 "interrupted", "is_called", "is_open", "is_polling", "is_resuming", "is_standing", "is_turning", "key",
                 "last_completed", "loop", "modules", "parts", "passed_over", "phases", "planned_look", "resting",
                 "rests_until", "run", "runner", "sessions", "stop_reason", "waits_for_place", "wake")  # fmt: skip

    def __init__(self, parts: SessionParts, sessions: Places, key: str) -> None:
        core = parts.core
        self.parts, self.core, self.sessions = parts, core, sessions
        self.key, self.is_standing = key, key == STANDING
        self.runner = PhaseRunner(f"{core.name}/{key}", core.clock)
        self.wake = Wake(core.clock)
        self.inbox = Inbox()
        self.run: Run | None = None
        self._ended: tuple[Run, End] | None = None
        self._told: tuple[dict[str, Any], ...] = ()  # the messages of the run that has ended, for hooks
        self.interrupted = InterruptedWork(parts.recovery)
        self.cycle: Cycle | None = None
        self.last_completed = core.clock.monotonic()
        self.rests_until: float | None = None
        self.planned_look: float | None = None  # seconds that the last plan proposed in the place of the interval
        self.stop_reason = ""
        self.is_resuming = False  # the actor said that it has calls of earlier cycles to go on with
        #: Those that its cycle in hand works with, and whether it is between the beginning of a cycle and its wait.
        self.modules, self.is_turning = parts.setup.modules, False
        #: Of its place among the runs under way: whether it has one, or waits for one; whether one that it is given now
        #: is used at once; the cycle in whose middle it was passed over; the timer that has it wait again after a rest.
        self.has_place = self.waits_for_place = False
        self.is_open = True
        self.passed_over: Cycle | None = None
        self.resting: Timer | None = None
        self._not_before = 0.0  # what failed asked to be left alone until then (monotonic seconds)
        self._polled_at, self.is_polling = 0.0, True
        self.is_called = False  # somebody asked for a cycle that polls
        self.phases = SessionPhases(self)
        self.calls = self.phases.calls
        self.loop = Loop(self, self.runner, parts.setup.steps, core.events, core.hooks, core.clock,
                         plan_when_idle=parts.setup.plan_when_idle)  # fmt: skip

    # -- its life

    async def live(self) -> None:
        """Turn after turn, while the agent runs; another one than `main` also ends when it has nothing to do now, and
        after a run when others wait for its place."""
        core, parts = self.core, self.parts
        self.is_turning = False  # the life before this one may have ended in the middle of a turn
        if self.is_standing and parts.setup.pace.interval == "off" and not self.has_work:
            await self.wake.sleep(None)  # only what is pushed begins a cycle
        while core.state == "running" and (not self._not_before or await self._is_left_alone()):
            if parts.holding.is_holding:
                await parts.holding.hold(self)
                if core.state != "running":
                    return
            if not (self.is_standing or self.has_work):
                return  # it was called off, or somebody else's has to come first
            self.is_turning = True
            cycle = await self.loop.cycle()
            if cycle.is_journalled and not await parts.cycle_log.kept(is_answered=self._ended is not None):
                self._ended = None  # who has taken the run over says how it ends
            if cycle.faults or (cycle.perceptions and parts.setup.settled is not None):
                await self.phases.settle(cycle)
            if self._ended is not None:
                await self._say_ended(cycle, *self._ended)
            if core.state != "running":
                return
            self.is_turning = False
            if parts.holding.is_holding:
                parts.requests.notify()
            if self.is_polling and cycle.has_sensed:
                self._polled_at = core.clock.monotonic()
            did_well = not (cycle.faults or cycle.is_refused)
            is_idle = did_well and self.is_empty  # so are most cycles, and then nothing else need be asked
            if is_idle and not self.has_place:
                wait = parts.budgets.paced(self._wait_by_pace(cycle), parts.setup.pace.max_interval)
            else:
                wait = self._make_way(cycle, did_well=did_well)
            if not self.is_standing and self.run is None and (wait != 0.0 or self.sessions.do_others_wait):
                self.rests_until = None if not wait else core.clock.monotonic() + wait
                return
            if wait == 0.0:
                self.wake.clear()
                await _OTHERS_TURN
                # What waits does not bring the next poll forward.
                self.is_polling = is_idle or self.is_called or self._is_interval_over()
            else:
                self.rests_until = None if wait is None else core.clock.monotonic() + wait
                self.is_polling = await self.wake.sleep(wait) or self._is_poll_due()
            self.is_called = False

    async def _is_left_alone(self) -> bool:
        """Wait as long as what failed asked for, whatever comes meanwhile; whether the agent still runs then."""
        clock = self.core.clock
        while (left := self._not_before - clock.monotonic()) > 0:
            self.rests_until = self._not_before
            await self.wake.sleep(left)
            if self.core.state != "running":
                return False
        return True

    def _is_poll_due(self) -> bool:
        """Return whether an uncalled cycle polls: a run that goes on does not bring the next poll forward."""
        return self.run is None or (self.parts.setup.pace.interval != "off" and self._is_interval_over())

    def _is_interval_over(self) -> bool:
        """Return whether a fixed interval, if there is one, has passed since the last poll."""
        interval = self.parts.setup.pace.interval
        return isinstance(interval, str) or self.core.clock.monotonic() >= self._polled_at + interval

    def _make_way(self, cycle: Cycle, *, did_well: bool) -> float | None:
        """Let others have the place that is not needed now; return the seconds until the next cycle."""
        parts = self.parts
        keeps_place = did_well and cycle.run is None and self._has_run_to_begin
        if is_done := self.is_standing and self.has_place and self.run is None and not keeps_place:
            self.sessions.give_back(self)
        wait = parts.budgets.paced(self._wait_after(cycle), parts.setup.pace.max_interval)
        if is_done or (self.is_standing and not self.is_empty):
            self.sessions.offer(self, 0.0 if did_well else wait or 0.0)
            if did_well and self.has_place and self._has_run_to_begin:
                wait = 0.0  # nobody else wants the place: the next run begins at once
        return wait

    def _wait_after(self, cycle: Cycle) -> float | None:
        """Seconds until the next cycle, None for: until something is pushed."""
        parts, pace, run = self.parts, self.parts.setup.pace, self.run
        if cycle.is_refused:
            return self._wait_refused()
        if not cycle.faults:
            if self.inbox.pushed or self._next_interrupted() is not None or (self.can_begin and not self._quiet):
                return 0.0
            if run is not None and cycle.deferred and cycle.planned_look is not None:
                least = pace.min_interval if pace.interval != 0 else 0.0
                return min(max(least, cycle.planned_look), LONGEST_DEFERRAL)  # somebody else sets the pace
        has_failed_work = bool(cycle.faults) and self.has_work and not self._quiet
        wait = self._wait_by_pace(cycle, is_busy=run is not None or self.is_resuming or has_failed_work)
        if cycle.faults:
            wait = parts.health.back_off(wait, cycle)
            if patience := cycle.retry_after:
                self._not_before = self.core.clock.monotonic() + patience
                wait = None if wait is None else max(wait, patience)
        if (quiet := self._quiet) and self.can_begin:
            return quiet if wait is None or not self.is_standing else min(wait, quiet)
        return wait

    def _wait_by_pace(self, cycle: Cycle, *, is_busy: bool = False) -> float | None:
        """Seconds until the next cycle by the pace and what the last one proposed; None for: until something comes."""
        pace, planned_look = self.parts.setup.pace, cycle.planned_look
        self.planned_look = None if is_busy else planned_look
        next_look = cycle.next_look if pace.interval == "adaptive" else None  # no other pace heeds it
        wait = pause_after(pace, len(cycle.perceptions), busy=is_busy, next_look=next_look, planned_look=planned_look)
        if not (self.is_polling or is_busy or wait is None or pace.interval == "adaptive"):
            wait = max(self._polled_at + wait - self.core.clock.monotonic(), 0.0)  # the interval is that of polling
        return wait

    def _wait_refused(self) -> float | None:
        """The usual wait, though what the cycle was to deal with still waits: never none."""
        pace = self.parts.setup.pace
        wait = pause_after(pace, 0)
        if self.is_empty:
            return wait
        return min(wait or pace.min_interval, LONGEST_REFUSAL)

    @property
    def deadline(self) -> float:
        """Return when the phase in hand must have ended (monotonic seconds); infinite between cycles."""
        return self.runner.deadline

    @property
    def rests_for(self) -> float | None:
        """Seconds until its next cycle, None while it turns or waits for what is pushed. From any thread."""
        until = self.rests_until
        return None if until is None else max(0.0, round(until - self.core.clock.monotonic(), 3))

    # -- what it has to do

    @property
    def _quiet(self) -> float:
        """Seconds for which collected messages still wait, because somebody may say more."""
        inbox = self.inbox
        return inbox.wait(self.core.clock.monotonic()) if inbox.quiet_until and self.run is None else 0.0

    def _next_interrupted(self) -> Interrupted[Run] | None:
        """The interrupted work that its next cycle takes; that of a run needs a place."""
        if not self.interrupted.number:
            return None
        piece = self.interrupted.next(self.run)
        return None if piece is not None and piece.run is not None and not self._may_pursue(piece.run) else piece

    def _may_pursue(self, run: Run) -> bool:
        return self.has_place or not self.is_standing or run is self.run

    @property
    def can_begin(self) -> bool:
        """Return whether a run waits and may begin once nobody says more: none is in hand, none was interrupted."""
        is_stepped = self.cycle is not None and self.cycle.is_stepped
        return self._has_next_run and (self.has_place or not self.is_standing or is_stepped)

    @property
    def _has_next_run(self) -> bool:
        return self.run is None and bool(self.inbox.runs) and not self.interrupted.runs

    @property
    def wants_place(self) -> bool:
        """Return whether it has a run to begin, or to go on with, and no place for that."""
        if self.has_place:
            return False
        if not self.is_standing:
            return self.has_work
        return self.run is not None or self._has_run_to_begin

    @property
    def _has_run_to_begin(self) -> bool:
        if self._has_next_run:
            return not self._quiet
        piece = self.interrupted.next(None) if self.interrupted.number and self.run is None else None
        return piece is not None and piece.run is not None

    @property
    def since(self) -> float:
        """Since when the oldest waits of what it has to do (monotonic seconds); who goes on with calls goes first."""
        if self.is_resuming:
            return 0.0
        piece = self.interrupted.next(self.run) if self.interrupted.number else None
        oldest = self.inbox.oldest if self.inbox.waiting else None
        if piece is None:
            return oldest or 0.0
        return piece.since if oldest is None else min(oldest, piece.since)

    @property
    def has_suspects_to_try(self) -> bool:
        """Return whether it has work that may have killed the process, which waits for nothing of its own session."""
        return bool(self.interrupted.suspects) and self.interrupted.next(self.run) is not None

    def wait_for_turn(self, now: float) -> float:
        """Seconds for which it would have nothing to do though something waits: people still speak, or what failed asks
        to be left alone."""
        has_more = not self.is_standing and (self.inbox.pushed or self.run is not None or self.is_resuming)
        quiet = self._quiet if not has_more and self._has_next_run else 0.0
        return max(self._not_before - now, quiet, 0.0)

    @property
    def is_amid(self) -> bool:
        """Return whether it is in the middle of a cycle, or of what has its place right after one."""
        return self.is_turning and self.runner.task is not None

    @property
    def has_work(self) -> bool:
        """Return whether a cycle would have something to do, though perhaps not at once."""
        return (
            self.run is not None
            or bool(self.inbox.pushed)
            or self.is_resuming
            or self.can_begin
            or self._next_interrupted() is not None
        )

    @property
    def is_empty(self) -> bool:
        """Return whether nothing is left that it would be kept for."""
        return self.run is None and not (self.inbox.waiting or self.is_resuming or self.interrupted.number)

    @property
    def is_busy(self) -> bool:
        """Return whether it has a run, under way or about to be."""
        return self.run is not None or bool(self.inbox.runs or self.interrupted.runs)

    @property
    def waits_for_model(self) -> bool:
        """Return whether its run waits until a provider can be asked again; from any thread."""
        run = self.run
        return run is not None and run.waits_until > self.core.clock.monotonic()

    @property
    def is_asking(self) -> bool:
        """Return whether hooks are asked about a cycle of a session that has taken nothing yet."""
        cycle = self.cycle
        return (
            not self.is_standing and self.run is None and cycle is not None and cycle.phase == "sense"
            and not cycle.items and not self.stop_reason
        )  # fmt: skip

    # -- what comes in

    def push(self, perception: Perception) -> None:
        self.inbox.push(perception, self.core.clock.monotonic())
        self.wake.set()

    def queue(self, run: Run, mode: Mode = "followup") -> Place:
        """Have a message wait for its turn, or for the run in hand; returns where it waits."""
        place = PLACES[mode, self.is_busy]
        self.inbox.add(run, place, self.core.clock.monotonic(), self.core.settings.runs.quiet,
                       is_interrupting=mode == "interrupt")  # fmt: skip
        if place == "steer" and self.run is not None and self.cycle is not None and self.cycle.phase == "act":
            self.phases.steer(self.run.id)
        self.wake.set()
        return place

    def call(self) -> None:
        """Begin the next cycle at once, and have it poll."""
        self.is_called = True
        self.wake.set()

    def resume_with(self, piece: Interrupted[Run]) -> None:
        """Have interrupted work wait for a cycle of its own."""
        self.interrupted.add(piece)
        self.wake.set()

    def rehouse(self) -> None:
        """Have what was to be heard in a run that is gone become a run of its own."""
        if self.inbox.steers:
            self.inbox.put_back(self.inbox.take_steers())
            self.wake.set()

    @property
    def oldest(self) -> float | None:
        """Since when the oldest perception or run waits (monotonic seconds); None when none does. From any thread."""
        return self.inbox.oldest

    @property
    def waiting(self) -> int:
        """Return how many perceptions and runs wait for their cycle."""
        return self.inbox.waiting

    def take(self, cycle: Cycle) -> list[Perception]:
        """Return what was pushed since and said in the run in hand, or in the one that begins, that no plan has
        been made for yet."""
        runs, inbox = self.parts.runs, self.inbox
        pushed = inbox.take_pushed() if inbox.pushed else []
        cycle.items = tuple([perception.id for perception in pushed])
        if self.can_begin:
            self._begin_run()
        self.is_open = False
        run = self.run
        if run is not None:
            if inbox.steers:
                for other in inbox.take_steers():
                    runs.absorb(run, other, "steered")
                self._tell_dropped(run)
            cycle.run = run.context()
            cycle.said = run.new
            cycle.items = (run.id, *cycle.items)
            pushed = [*run.new, *pushed]
        return pushed

    def _begin_run(self) -> None:
        """The next run begins, unless people are still saying what it is about."""
        core, parts, inbox = self.core, self.parts, self.inbox
        if (found := inbox.next_run(core.clock.monotonic())) is None:
            return
        run, others = found
        self.run = run
        parts.runs.start(run)
        for other in others:
            parts.runs.absorb(run, other, "collected")
        if others:
            run.message = collected(run.message, run.said)
            run.new = run.unwritten = (run.message,)
        self._tell_dropped(run)

    def _tell_dropped(self, run: Run) -> None:
        """The run hears in short what others said for whom there was no room."""
        if self.inbox.dropped:
            run.new = (overflow(self.inbox.take_dropped(), self.key, self.core.clock.new_id), *run.new)

    # -- what the loop reports

    def change_over(self) -> None:
        """Work with the modules and the terms that are in force now."""
        self.modules = self.parts.setup.modules
        self.loop.steps, self.loop.plan_when_idle = self.parts.setup.steps, self.parts.setup.plan_when_idle

    def opened(self, *, is_stepped: bool = False) -> Cycle:
        core, parts = self.core, self.parts
        if self.modules is not parts.setup.modules or self.loop.steps is not parts.setup.steps:
            self.change_over()
        piece = None if is_stepped or not self.interrupted.number else self._next_interrupted()
        run = self.run
        if piece is not None:  # it has a cycle of its own, which is no part of the run in hand
            run = piece.run
            self.interrupted.take(piece)
            parts.recovery.tries(piece)
        cycle = Cycle(self.key, None if run is None else run.context(), core.clock, piece)
        if piece is not None:
            cycle.items = piece.items
        self.cycle = cycle
        if core.events.wanted[LoopStarted]:
            core.events.publish(LoopStarted(cycle_id=cycle.id, started_at=cycle.started_at, session=self.key))
        return cycle

    async def may_begin(self, run: Run, cycle: Cycle) -> bool:
        """Return whether no hook is against a run that begins; one that is ends it."""
        await self.parts.session_hooks.run_begins(self.key)
        outcome = await self._consult("before_run", cycle, run.message)
        if outcome is not None and outcome.denied:
            self.parts.runs.end(run, End("error", outcome.reason or "refused by a hook"))
            return False
        return True

    async def _say_ended(self, cycle: Cycle, run: Run, end: End) -> None:
        """A run's answer is on disk before anybody is told."""
        crashpoint("run.before_answer")
        if run.status is None:
            self.parts.runs.end(run, await self.parts.outbox.answer(run, end))
        self._ended = None
        if "after_run" in self.core.hooks.used:
            status = await self.parts.runs.wait(run.id, 0)
            await self._consult("after_run", cycle, EndedRun(**asdict(status), messages=self._told), run.id)

    def let_go(self) -> None:
        """Its task has ended, perhaps while people were still being told an answer: it stands as it is on disk."""
        self.cycle = None
        if self.parts.holding.awaited:
            self.parts.holding.left(self)
        if self._ended is not None:
            self.parts.runs.end(*self._ended)
            self._ended = None

    def is_pursuing(self, run: Run) -> bool:
        """Return whether the cycle in hand is this run's, though the run may not have begun yet in this process."""
        cycle = self.cycle
        if cycle is None or cycle.run is None:
            return False
        return self.run is run or (cycle.taken is not None and cycle.taken.run is run)

    def is_answering(self, run: Run) -> bool:
        """Return whether a run is over, or what it is a part of, and people are just being told the answer."""
        return self._ended is not None and self._ended[0] in (run, run.into)

    async def _consult(self, point: str, cycle: Cycle, value: Any, run_id: str | None = None) -> Outcome | None:
        """Return what the hooks at a point say, their faults reported; None where nobody is asked."""
        hooks = self.core.hooks
        if point not in hooks.used:
            return None
        about = run_id or (cycle.run.id if cycle.run else None)
        outcome = await hooks.run(HookContext(point, self.core.name, value, self.key, about, cycle.id))
        self.parts.reports.hooks_failed(cycle.id, outcome, self.key)
        return outcome

    async def ask(self, point: str, cycle: Cycle, value: Any) -> Any:
        """Return what the hooks at a point make of a value. Raises: Skip when one of them is against it."""
        outcome = await self._consult(point, cycle, value)
        if outcome is None:
            return value
        if outcome.stop_run and cycle.run is not None:
            run = self.parts.runs.get(cycle.run.id)
            self.parts.runs.end(run, End("error", outcome.reason or f"stopped by a hook at {point}"))
            self.leave(run)
        if outcome.denied:
            cycle.is_skipped, cycle.is_refused = True, not cycle.has_sensed
            raise Skip
        if point == "before_plan":
            cycle.noticed, cycle.perceptions = tuple(cycle.perceptions), tuple(outcome.value)
            return cycle.perceptions
        if point == "after_plan" and isinstance(outcome.value, Action):
            return answering(outcome.value, cycle.perceptions)
        return outcome.value if point in REWRITABLE else value

    def failed(self, cycle: Cycle, fault: Fault, error: BaseException, policy: str) -> None:
        self.parts.reports.phase_failed(cycle, fault, error, policy)

    def salvage(self, action: Action) -> ActionResult | None:
        """Return what the actor knows of an action that was cut off, if it can tell."""
        module = self.modules["act"]
        try:
            known = module.part.interrupted(action.id) if offers(module.part, TellsInterrupted) else None
            return None if known is None else result_of(known, module.name, action)
        except Exception as error:
            log.warning("actor cannot tell", agent=self.core.name, part=module.name, reason=repr(error))
            return None

    def closed(self, cycle: Cycle) -> None:
        """See to everything that follows from a cycle's end.

        Each consequence is guarded by itself: what one of them runs into is reported, and the others come all the same,
        the end of the run and `LoopCompleted` among them.
        """
        core, parts, guarded = self.core, self.parts, self.parts.reports.guarded
        if self.stop_reason:
            cycle.is_cut = True
        if cycle.is_cut or cycle.faults:
            guarded(cycle, self._broken_off, cycle)
        crashpoint("cycle.closing")
        self.last_completed = now = core.clock.monotonic()
        self.rests_until = self.cycle = None
        self.is_open = True
        outcome, duration = cycle.conclude(), cycle.duration(now)
        parts.account.cycle(outcome, duration)
        if cycle.result is not None and cycle.result.results:
            guarded(cycle, parts.account.calls.add, cycle.result.results)
        parts.session_accounts.cycle(self.key, cycle, duration)
        if cycle.faults or duration > NEVER_SLOW or not parts.health.is_calm:
            guarded(cycle, parts.health.observe, cycle, duration)
        if self.is_resuming:
            self.is_resuming = guarded(cycle, self.phases.resumed) is not None
        if cycle.run is not None or cycle.taken is not None or parts.work.journal is not None:
            self._conclude(cycle, duration, now)
        elif not (outcome == "idle" or cycle.is_refused):
            guarded(cycle, parts.agent_state.remember, cycle, duration)
        if core.events.wanted[LoopCompleted]:
            core.events.publish(LoopCompleted(cycle_id=cycle.id, completed_at=core.clock.now(), duration=duration,
                                               outcome=outcome, session=self.key, calls=cycle.calls,
                                               deferred=cycle.deferred))  # fmt: skip
        if parts.holding.awaited:
            parts.holding.left(self)

    def _conclude(self, cycle: Cycle, duration: float, now: float) -> None:
        """See to what follows for the run and the interrupted work of a cycle, and for what is on disk."""
        parts, guarded = self.parts, self.parts.reports.guarded
        run, end, is_put_back = parts.runs.open_run(cycle.run.id) if cycle.run is not None else None, None, False
        if cycle.taken is not None:
            is_put_back = self._is_put_back(cycle, cycle.taken)
            parts.recovery.tried(cycle.taken, is_put_back=is_put_back)
        if not is_put_back:
            if run is not None and not cycle.is_refused:
                end = guarded(cycle, partial(self._judge, run, cycle, now), otherwise=_UNJUDGED)
            if run is not None or parts.work.journal is not None:
                guarded(cycle, self._write_down, cycle, duration, run, end)
            elif not (cycle.outcome == "idle" or cycle.is_refused):
                guarded(cycle, parts.agent_state.remember, cycle, duration)
        if run is not None and end is not None:
            self._ended = (run, end)
            self._told = run.context().messages if "after_run" in self.core.hooks.used else ()
            self.leave(run)
            # Nothing to wait for, or nobody who would.
            if cycle.is_cut or cycle.is_stepped or not (cycle.is_journalled or parts.outbox.is_guarded):
                guarded(cycle, parts.outbox.answer_at_once, run, end)
                parts.runs.end(run, end)

    def _transcribe(self, run: Run, cycle: Cycle, end: End | None) -> None:
        """Keep in memory what a cycle adds to its session's transcript, where no store does."""
        if entries := self.parts.transcripts.entries_of(run, cycle, end):
            self.parts.transcripts.keep(self.key, entries)

    def _write_down(self, cycle: Cycle, duration: float, run: Run | None, end: End | None) -> None:
        """Keep what a cycle came to that is journalled or a run's."""
        parts = self.parts
        assert run is None or run is self.run or cycle.taken is not None, "a cycle ends in the name of another run"
        if parts.work.journal is not None:
            parts.cycle_log.closed(cycle, duration, run, end, self._is_put_off(cycle))
            return
        if not (cycle.outcome == "idle" or cycle.is_refused):
            parts.reports.guarded(cycle, parts.agent_state.remember, cycle, duration)
        if run is not None:
            self._transcribe(run, cycle, end)

    def _is_put_back(self, cycle: Cycle, piece: Interrupted[Run]) -> bool:
        """Have interrupted work wait as it was if its cycle ended before its plan phase; whether that is so."""
        if cycle.phase != "sense" or (cycle.faults and piece.cycle is None):
            return False
        if cycle.is_cut and self.stop_reason not in ("", "stop"):  # called off
            return False
        if piece.run is None or piece.run.status is None:
            self.interrupted.put_back(piece)
        else:
            self.parts.recovery.cut.give_up(piece)
        return True

    def leave(self, run: Run) -> None:
        """A run has ended: what interrupted work it has is given up, and the next one may begin."""
        for piece in self.interrupted.take_of(run) if self.interrupted.runs else ():
            self.parts.recovery.cut.give_up(piece)
            self.parts.recovery.wake_next()
        self.parts.session_hooks.run_ended(self.key)
        if self.run is run:
            self.run = None
            self.rehouse()
        elif not self.is_busy:
            self.rehouse()

    def _is_put_off(self, cycle: Cycle) -> bool:
        """Return whether a cycle was cut off by a stop, not called off: it goes on at the next start."""
        return cycle.is_cut and self.stop_reason in ("", "stop") and self.runner.is_cancelled

    def _broken_off(self, cycle: Cycle) -> None:
        """Nothing further comes of a plan that is still being written; what was done of the action is not forgotten."""
        if isinstance(cycle.action, OpenPlan):
            cycle.action.close()
        if cycle.is_cut and cycle.result is None and cycle.written_action is not None:
            cycle.result = self.salvage(cycle.written_action)

    def _judge(self, run: Run, cycle: Cycle, now: float) -> End | None:
        """Return whether a run is over after this cycle."""
        runs = self.parts.runs
        if cycle.deferred and cycle.next_look:
            runs.wait_for_provider(run, min(cycle.next_look, LONGEST_DEFERRAL))
        run.touched = now
        end = verdict(run, cycle, elapsed=now - run.started_mono - run.waited, limits=runs.limits)
        if self.stop_reason and cycle.is_cut and self.stop_reason != "stop":
            end = End("error", self.stop_reason)
        return end

    def cut(self, reason: str) -> None:
        """Cancel the phase in hand; its cycle is recorded as interrupted."""
        self.stop_reason = reason
        self.runner.cancel()
