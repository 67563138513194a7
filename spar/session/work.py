"""The work of one session: the run in hand, what waits, and which of it comes next."""

from __future__ import annotations

from spar.clock import Timer
from spar.loop.cycle import STANDING, Cycle
from spar.loop.phase_runner import PhaseRunner
from spar.loop.wake import Wake
from spar.records.journal import Interrupted
from spar.runs.inbox import PLACES, Inbox, Place, collected, overflow
from spar.runs.interrupted import InterruptedWork
from spar.runs.run import Run
from spar.session.parts import SessionParts
from spar.session.phases import SessionPhases
from spar.types import Perception, QueueMode


class SessionWork:
    """A session as work is given to it. A run needs a place, which `spar.session.sessions` gives."""

    __slots__ = ("core", "cycle", "has_place", "inbox", "interrupted", "is_called", "is_open", "is_polling",
                 "is_resuming", "is_standing", "key", "not_before", "parts", "passed_over", "phases", "resting", "run",
                 "runner", "waits_for_place", "wake")  # fmt: skip

    phases: SessionPhases

    def __init__(self, parts: SessionParts, key: str) -> None:
        core = parts.core
        self.parts, self.core = parts, core
        self.key, self.is_standing = key, key == STANDING
        self.runner = PhaseRunner(f"{core.name}/{key}", core.clock)
        self.wake = Wake(core.clock)
        self.inbox = Inbox()
        self.interrupted = InterruptedWork(parts.recovery.suspects)
        self.run: Run | None = None
        self.cycle: Cycle | None = None
        self.is_resuming = False  # the actor said that it has calls of earlier cycles to go on with
        self.not_before = 0.0  # what failed asked to be left alone until then (monotonic seconds)
        self.is_polling = True
        self.is_called = False  # somebody asked for a cycle that polls, and none has begun to
        #: Of its place among the runs under way: whether it has one, or waits for one; whether one that it is given now
        #: is used at once; the cycle in whose middle it was passed over; the timer that has it wait again after a rest.
        self.has_place = self.waits_for_place = False
        self.is_open = True
        self.passed_over: Cycle | None = None
        self.resting: Timer | None = None

    # -- which comes next

    def is_empty(self) -> bool:
        """Return whether nothing is left that it would be kept for."""
        return self.run is None and not (self.inbox.waiting or self.is_resuming or self.interrupted.number)

    @property
    def is_busy(self) -> bool:
        """Return whether it has a run, under way or about to be."""
        return self.run is not None or bool(self.inbox.runs or self.interrupted.runs)

    @property
    def has_work(self) -> bool:
        """Return whether a cycle would have something to do, though perhaps not at once."""
        return (
            self.run is not None
            or bool(self.inbox.pushed)
            or self.is_resuming
            or self.can_begin
            or self.next_interrupted() is not None
        )

    @property
    def can_begin(self) -> bool:
        """Return whether a run waits and may begin once nobody says more: none is in hand, none was interrupted."""
        return self._has_next_run and (
            self.has_place or not self.is_standing or (self.cycle is not None and self.cycle.is_stepped)
        )

    @property
    def _has_next_run(self) -> bool:
        return self.run is None and bool(self.inbox.runs) and not self.interrupted.runs

    @property
    def has_run_to_begin(self) -> bool:
        """Return whether a run may begin, or go on that was interrupted, as soon as it has a place."""
        if self._has_next_run:
            return not self.quiet
        piece = self.interrupted.next(None) if self.interrupted.number and self.run is None else None
        return piece is not None and piece.run is not None

    @property
    def wants_place(self) -> bool:
        """Return whether it has a run to begin, or to go on with, and no place for that."""
        if self.has_place:
            return False
        return self.run is not None or self.has_run_to_begin if self.is_standing else self.has_work

    @property
    def quiet(self) -> float:
        """Seconds for which collected messages still wait, because somebody may say more."""
        inbox = self.inbox
        return inbox.wait(self.core.clock.monotonic()) if inbox.quiet_until and self.run is None else 0.0

    def wait_for_turn(self, now: float) -> float:
        """Seconds for which it would have nothing to do though something waits: people still speak, or what failed asks
        to be left alone."""
        has_more = not self.is_standing and (self.inbox.pushed or self.run is not None or self.is_resuming)
        quiet = self.quiet if not has_more and self._has_next_run else 0.0
        return max(self.not_before - now, quiet, 0.0)

    def next_interrupted(self) -> Interrupted[Run] | None:
        """The interrupted work that its next cycle takes; that of a run needs a place."""
        if not self.interrupted.number:
            return None
        piece = self.interrupted.next(self.run)
        if piece is None or piece.run in (None, self.run) or self.has_place or not self.is_standing:
            return piece
        return None

    @property
    def has_suspects_to_try(self) -> bool:
        """Return whether it has work that may have killed the process, which waits for nothing of its own session."""
        return bool(self.interrupted.suspects) and self.interrupted.next(self.run) is not None

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

    # -- what comes in

    def push(self, perception: Perception) -> None:
        self.inbox.push(perception, self.core.clock.monotonic())
        self.wake.set()

    def queue(self, run: Run, mode: QueueMode = "followup") -> Place:
        """Have a message wait for its turn, or for the run in hand; returns where it waits."""
        place = PLACES[mode, self.is_busy]
        self.inbox.add(run, place, self.core.clock.monotonic(), self.core.settings.runs.quiet,
                       is_interrupting=mode == "interrupt")  # fmt: skip
        if place == "steer" and self.run is not None and self.cycle is not None and self.cycle.phase == "act":
            self.phases.steer(self.run.id)
        self.wake.set()
        return place

    def resume_with(self, piece: Interrupted[Run]) -> None:
        """Have interrupted work wait for a cycle of its own."""
        self.interrupted.add(piece)
        self.wake.set()

    def rehouse(self) -> None:
        """Have what was to be heard in a run that is gone become a run of its own."""
        if self.inbox.steers:
            self.inbox.put_back(self.inbox.take_steers())
            self.wake.set()

    # -- what a cycle takes

    def take(self, cycle: Cycle) -> list[Perception]:
        """Return what was pushed since and said in the run in hand, or in the one that begins, that no plan has
        been made for yet."""
        inbox = self.inbox
        pushed = inbox.take_pushed() if inbox.pushed else []
        cycle.items = tuple([perception.id for perception in pushed])
        if self.can_begin:
            self._begin_run()
        self.is_open = False
        run = self.run
        if run is not None:
            if inbox.steers:
                for other in inbox.take_steers():
                    self.parts.runs.absorb(run, other, "steered")
                self._tell_dropped(run)
            cycle.run = run.context()
            cycle.new_messages = run.new
            cycle.items = (run.id, *cycle.items)
            pushed = [*run.new, *pushed]
        return pushed

    def _begin_run(self) -> None:
        """The next run begins, unless people are still saying what it is about."""
        if (found := self.inbox.next_run(self.core.clock.monotonic())) is None:
            return
        run, others = found
        self.run = run
        self.parts.runs.start(run)
        if others:
            for other in others:
                self.parts.runs.absorb(run, other, "collected")
            run.message = collected(run.message, run.said)
            run.new = run.unwritten = (run.message,)
        self._tell_dropped(run)

    def _tell_dropped(self, run: Run) -> None:
        """The run hears in short what others said for whom there was no room."""
        if self.inbox.dropped:
            run.new = (overflow(self.inbox.take_dropped(), self.key, self.core.clock.new_id), *run.new)
