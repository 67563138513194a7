"""The work of one session: its current run, its queues, and the choice of the next work."""

from __future__ import annotations

from spar import facts
from spar.clock import Timer
from spar.decisions.place import PLACES
from spar.decisions.take import Turn, take
from spar.facts.messages import MessagePlace
from spar.loop.cycle import STANDING, Cycle
from spar.loop.phase_runner import PhaseRunner
from spar.loop.wake import Wake
from spar.records.journal import Interrupted
from spar.runs.inbox import Inbox, collected, overflow
from spar.runs.interrupted import InterruptedWork
from spar.runs.run import Run
from spar.session.parts import SessionParts
from spar.session.phases import SessionPhases
from spar.types import Perception, QueueMode


class SessionWork:
    """Session as work is given to it. A run also needs a slot from `spar.session.sessions`."""

    __slots__ = ("core", "cycle", "has_slot", "inbox", "interrupted", "is_open", "is_poll_requested", "is_polling",
                 "is_resuming", "is_standing", "key", "not_before", "parts", "passed_over", "phases", "resting", "run",
                 "runner", "waits_for_slot", "wake")  # fmt: skip

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
        self.is_resuming = False  # the actor can resume calls of earlier cycles
        self.not_before = 0.0  # the earliest next cycle after a failure with `retry_after` (monotonic seconds)
        self.is_polling = True
        self.is_poll_requested = False  # a polling cycle was requested and has not begun
        #: The slot among the running runs: whether it has one, whether it waits for one; whether it could use one at
        #: once (no cycle is between taking its work and its end); the cycle during which it was passed over; the timer
        #: that offers it a slot after a wait.
        self.has_slot = self.waits_for_slot = False
        self.is_open = True
        self.passed_over: Cycle | None = None
        self.resting: Timer | None = None

    # -- the next work

    def is_empty(self) -> bool:
        """Return whether it has no run and no waiting work."""
        return self.run is None and not (self.inbox.waiting or self.is_resuming or self.interrupted.number)

    @property
    def is_busy(self) -> bool:
        """Return whether it has a current run, or one that waits."""
        return self.run is not None or bool(self.inbox.runs or self.interrupted.runs)

    @property
    def has_work(self) -> bool:
        """Return whether a cycle would have work, perhaps only after a wait."""
        return (
            self.run is not None
            or bool(self.inbox.pushed)
            or self.is_resuming
            or self.can_begin
            or self.next_interrupted() is not None
        )

    @property
    def can_begin(self) -> bool:
        """Return whether the next waiting run may begin after its quiet time: no run is current, and none was
        interrupted."""
        return self._has_next_run and (
            self.has_slot or not self.is_standing or (self.cycle is not None and self.cycle.is_stepped)
        )

    @property
    def _has_next_run(self) -> bool:
        return self.run is None and bool(self.inbox.runs) and not self.interrupted.runs

    @property
    def has_run_to_begin(self) -> bool:
        """Return whether a run may begin, or an interrupted one may continue, as soon as the session has a slot."""
        if self._has_next_run:
            return not self.quiet
        piece = self.interrupted.next(None) if self.interrupted.number and self.run is None else None
        return piece is not None and piece.run is not None

    @property
    def wants_slot(self) -> bool:
        """Return whether it has a run to begin or to continue, and no slot for it."""
        if self.has_slot:
            return False
        return self.run is not None or self.has_run_to_begin if self.is_standing else self.has_work

    @property
    def quiet(self) -> float:
        """Return the seconds until collected messages may begin a run, since their sender may add more; 0 for none."""
        inbox = self.inbox
        return inbox.wait(self.core.clock.monotonic()) if inbox.quiet_until and self.run is None else 0.0

    def wait_for_turn(self, now: float) -> float:
        """Return the seconds for which its work must still wait: for the quiet time of messages, or for
        `not_before`."""
        has_more = not self.is_standing and (self.inbox.pushed or self.run is not None or self.is_resuming)
        quiet = self.quiet if not has_more and self._has_next_run else 0.0
        return max(self.not_before - now, quiet, 0.0)

    def next_interrupted(self) -> Interrupted[Run] | None:
        """Return the interrupted work that the next cycle takes. Interrupted work of a run needs a slot."""
        if not self.interrupted.number:
            return None
        piece = self.interrupted.next(self.run)
        if piece is None or piece.run in (None, self.run) or self.has_slot or not self.is_standing:
            return piece
        return None

    @property
    def has_suspects_to_try(self) -> bool:
        """Return whether it has work that may have killed the process and does not wait for other work of this
        session."""
        return bool(self.interrupted.suspects) and self.interrupted.next(self.run) is not None

    @property
    def since(self) -> float:
        """Return when its oldest waiting work came (monotonic seconds); 0 for resumable calls, which go first."""
        if self.is_resuming:
            return 0.0
        piece = self.interrupted.next(self.run) if self.interrupted.number else None
        oldest = self.inbox.oldest if self.inbox.waiting else None
        if piece is None:
            return oldest or 0.0
        return piece.since if oldest is None else min(oldest, piece.since)

    # -- new work

    def push(self, perception: Perception) -> None:
        """Queue a perception for the next cycle."""
        self.inbox.push(perception, self.core.clock.monotonic())
        if (ledger := self.core.facts) is not None:
            ledger.tell(facts.PerceptionAccepted(session=self.key, perception=perception))
        self.wake.set()

    def queue(self, run: Run, mode: QueueMode = "followup") -> MessagePlace:
        """Queue a message for its own run, or for the current run; return the queue it waits in."""
        place = PLACES[mode, self.is_busy]
        self.inbox.add(run, place, self.core.clock.monotonic(), self.core.settings.runs.quiet,
                       is_interrupting=mode == "interrupt")  # fmt: skip
        if (ledger := self.core.facts) is not None:
            ledger.tell(facts.MessagePlaced(session=self.key, run=run.id, place=place,
                                            is_interrupting=mode == "interrupt"))  # fmt: skip
        if place == "steer" and self.run is not None and self.cycle is not None and self.cycle.phase == "act":
            self.phases.steer(self.run.id)
        self.wake.set()
        return place

    def resume_with(self, piece: Interrupted[Run]) -> None:
        """Queue interrupted work for a cycle of its own."""
        self.interrupted.add(piece)
        if (ledger := self.core.facts) is not None:
            run_id = "" if piece.run is None else piece.run.id
            ledger.tell(facts.WorkHandedOut(session=self.key, work=piece.id, run=run_id,
                                            is_cycle=piece.cycle is not None,
                                            is_suspect=piece.is_suspect))  # fmt: skip
        self.wake.set()

    def requeue_steers(self) -> None:
        """Give messages that were meant for a run that has ended a run of their own."""
        if self.inbox.steers:
            steers = self.inbox.take_steers()
            self.inbox.put_back(steers)
            if (ledger := self.core.facts) is not None:
                for run in steers:
                    ledger.tell(facts.MessagePlaced(session=self.key, run=run.id, place="queue"))
            self.wake.set()

    # -- the work of a cycle

    def take(self, cycle: Cycle) -> list[Perception]:
        """Return the perceptions of a new cycle: those pushed, and the messages of its run that no plan has answered
        yet.

        Begin the next waiting run first, if it may begin.
        """
        inbox = self.inbox
        if (ledger := self.core.facts) is not None:
            turn = Turn(self.has_slot or not self.is_standing, not self.quiet, cycle.is_stepped)
            ledger.decided(take(ledger.state_of(self.key), cycle.id, turn))
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
                self._add_dropped(run)
            cycle.run = run.context()
            cycle.new_messages = run.new
            cycle.items = (run.id, *cycle.items)
            pushed = [*run.new, *pushed]
        if cycle.items and (ledger := self.core.facts) is not None:
            ledger.tell(facts.WorkTaken(session=self.key, cycle=cycle.id, run="" if run is None else run.id,
                                        items=cycle.items, is_stepped=cycle.is_stepped))  # fmt: skip
        return pushed

    def _begin_run(self) -> None:
        """Begin the next waiting run, unless its sender may still add messages."""
        if (next_run := self.inbox.next_run(self.core.clock.monotonic())) is None:
            return
        run, others = next_run
        self.run = run
        self.parts.runs.start(run)
        if others:
            for other in others:
                self.parts.runs.absorb(run, other, "collected")
            run.message = collected(run.message, run.later_messages)
            run.new = run.unwritten = (run.message,)
        self._add_dropped(run)

    def _add_dropped(self, run: Run) -> None:
        """Add a short summary of messages that were dropped for lack of room."""
        if self.inbox.dropped:
            message = overflow(self.inbox.take_dropped(), self.key, self.core.clock.new_id)
            run.new = (message, *run.new)
            if (ledger := self.core.facts) is not None:
                ledger.tell(facts.DroppedTold(session=self.key, run=run.id, message=message))
