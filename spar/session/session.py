"""One session of an agent: a loop of its own, what was pushed to it, the run it pursues, and when it turns again.

`main` is the standing session, whose sense polls the sensors. Every other session is made when its first message comes
and ends when nothing is left to do. Sessions of one agent share its modules; their cycles never wait for one another.
A run needs a place, which `spar.session.sessions` gives: `main` turns without one and begins no run, any other session
does not turn, and leaves it after each run when others wait.
"""

from __future__ import annotations

from typing import Protocol

from spar.loop.cycle import Cycle
from spar.loop.pacing import pause_after
from spar.session.cycles import LONGEST_DEFERRAL, SessionCycles
from spar.session.parts import SessionParts
from spar.threads import OTHERS_TURN

#: Seconds after which a cycle that a hook denied is tried again at the latest, while something waits for it.
LONGEST_REFUSAL = 60.0


class Places(Protocol):
    """The places of the runs under way, as a session gives its own back and waits for the next one."""

    @property
    def do_others_wait(self) -> bool: ...
    def give_back(self, session: Session) -> None: ...
    def ended(self, session: Session, error: BaseException | None) -> None: ...
    def spawn(self, *sessions: Session, until: float = 0.0) -> None: ...


class Session(SessionCycles):
    """One session: its life, cycle after cycle, and when the next one comes."""

    __slots__ = ("_polled_at", "is_turning", "planned_look", "sessions")

    def __init__(self, parts: SessionParts, sessions: Places, key: str) -> None:
        super().__init__(parts, key)
        self.sessions = sessions
        self._polled_at = 0.0
        self.planned_look: float | None = None  # seconds that the last plan proposed in the place of the interval
        self.is_turning = False  # between the beginning of a cycle and its wait

    async def live(self) -> None:
        """Turn after turn, while the agent runs; another one than `main` also ends when it has nothing to do now, and
        after a run when others wait for its place."""
        core, parts, monotonic = self.core, self.parts, self.loop.monotonic
        self.is_turning = False  # the life before this one may have ended in the middle of a turn
        if self.is_standing and parts.setup.pace.interval == "off" and not self.has_work:
            await self.wake.sleep(None)  # only what is pushed begins a cycle
        while core.state == "running" and (not self.not_before or await self._is_left_alone()):
            if parts.holding.is_holding:
                await parts.holding.hold(self)
                if core.state != "running":
                    return
            if not (self.is_standing or self.has_work):
                return  # it was called off, or somebody else's has to come first
            self.is_turning = True
            cycle = await self.loop.cycle()
            is_answered = self.ended is not None
            if (cycle.is_journalled or is_answered) and not await parts.cycle_log.kept(is_answered=is_answered):
                self.ended = None  # who has taken the run over says how it ends
            if cycle.faults or (cycle.perceptions and parts.setup.settled is not None):
                await self.phases.settle(cycle)
            if self.ended is not None:
                await self.say_ended(cycle, *self.ended)
            if core.state != "running":
                return
            self.is_turning = False
            if parts.holding.is_holding:
                parts.requests.notify()
            if self.is_polling and cycle.has_sensed:
                self._polled_at = monotonic()
            did_well = not (cycle.faults or cycle.is_refused)
            is_idle = did_well and self.is_empty()  # so are most cycles, and then nothing else need be asked
            if is_idle and not (self.has_place and self.is_standing):
                wait = parts.budgets.paced(self._wait_by_pace(cycle), parts.setup.pace.max_interval)
            else:
                wait = self._make_way(cycle, did_well=did_well)
            if not self.is_standing and self.run is None and (wait != 0.0 or self.sessions.do_others_wait):
                self.rests_until = None if not wait else monotonic() + wait
                return
            is_called_still = (
                self.is_called and cycle.interrupted is not None
            )  # it took up what was cut off, and did not poll
            del cycle  # a session that rests holds none
            if wait == 0.0:
                self.wake.clear()
                await OTHERS_TURN
                # What waits does not bring the next poll forward.
                self.is_polling = is_idle or self.is_called or self._is_interval_over()
            else:
                self.rests_until = None if wait is None else monotonic() + wait
                if is_called_still:
                    self.wake.set()
                self.is_polling = await self.wake.sleep(wait) or self._is_poll_due()

    def has_ended(self, error: BaseException | None) -> None:
        """Give way to others: its task has ended."""
        self.sessions.ended(self, error)

    async def _is_left_alone(self) -> bool:
        """Wait as long as what failed asked for, whatever comes meanwhile; whether the agent still runs then."""
        clock = self.core.clock
        while (left := self.not_before - clock.monotonic()) > 0:
            self.rests_until = self.not_before
            await self.wake.sleep(left)
            if self.core.state != "running":
                return False
        return True

    def call(self) -> None:
        """Begin the next cycle at once, and have it poll."""
        self.is_called = True
        self.wake.set()

    # -- when the next cycle comes

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
        keeps_place = did_well and cycle.run is None and self.has_run_to_begin
        if is_done := self.is_standing and self.has_place and self.run is None and not keeps_place:
            self.sessions.give_back(self)
        wait = parts.budgets.paced(self._wait_after(cycle), parts.setup.pace.max_interval)
        if is_done or (self.is_standing and not self.is_empty()):
            self.sessions.spawn(self, until=0.0 if did_well or not wait else self.core.clock.monotonic() + wait)
            if did_well and self.has_place and self.has_run_to_begin:
                wait = 0.0  # nobody else wants the place: the next run begins at once
        return wait

    def _wait_after(self, cycle: Cycle) -> float | None:
        """Seconds until the next cycle, None for: until something is pushed."""
        parts, pace, run = self.parts, self.parts.setup.pace, self.run
        if cycle.is_refused:
            return self._wait_refused()
        if not cycle.faults:
            if self.inbox.pushed or self.next_interrupted() is not None or (self.can_begin and not self.quiet):
                return 0.0
            if run is not None and cycle.deferred and cycle.planned_look is not None:
                least = pace.min_interval if pace.interval != 0 else 0.0
                return min(max(least, cycle.planned_look), LONGEST_DEFERRAL)  # somebody else sets the pace
        has_failed_work = bool(cycle.faults) and self.has_work and not self.quiet
        wait = self._wait_by_pace(cycle, is_busy=run is not None or self.is_resuming or has_failed_work)
        if cycle.faults:
            wait = parts.health.back_off(wait, cycle)
            if patience := cycle.retry_after:
                self.not_before = self.core.clock.monotonic() + patience
                wait = None if wait is None else max(wait, patience)
        if (quiet := self.quiet) and self.can_begin:
            return quiet if wait is None or not self.is_standing else min(wait, quiet)
        return wait

    def _wait_by_pace(self, cycle: Cycle, *, is_busy: bool = False) -> float | None:
        """Seconds until the next cycle by the pace and what the last one proposed; None for: until something comes."""
        pace, action = self.parts.setup.pace, cycle.action
        planned_look = self.planned_look = None if is_busy or action is None else action.next_look
        next_look = cycle.next_look if pace.interval == "adaptive" else None  # no other pace heeds it
        wait = pause_after(pace, len(cycle.perceptions), busy=is_busy, next_look=next_look, planned_look=planned_look)
        if not (self.is_polling or is_busy or wait is None or pace.interval == "adaptive"):
            wait = max(self._polled_at + wait - self.core.clock.monotonic(), 0.0)  # the interval is that of polling
        return wait

    def _wait_refused(self) -> float | None:
        """The usual wait, though what the cycle was to deal with still waits: never none."""
        pace = self.parts.setup.pace
        wait = pause_after(pace, 0)
        if self.is_empty():
            return wait
        return min(wait or pace.min_interval, LONGEST_REFUSAL)

    # -- what it says of itself, to any thread

    @property
    def is_amid(self) -> bool:
        """Return whether it is in the middle of a cycle, or of what has its place right after one."""
        return self.is_turning and self.runner.task is not None

    @property
    def deadline(self) -> float:
        """Return when the phase in hand must have ended (monotonic seconds); infinite between cycles."""
        return self.runner.deadline

    @property
    def rests_for(self) -> float | None:
        """Seconds until its next cycle, None while it turns or waits for what is pushed."""
        until = self.rests_until
        return None if until is None else max(0.0, round(until - self.core.clock.monotonic(), 3))

    @property
    def waits_for_model(self) -> bool:
        """Return whether its run waits until a provider can be asked again."""
        run = self.run
        return run is not None and run.waits_until > self.core.clock.monotonic()
