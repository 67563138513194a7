"""The sessions of one agent, each with its loop of cycles: the standing session, and the others that have work.

The session `main` is the standing session (`is_standing`): it always exists, and its sense phase polls the sensors. Any
other session begins with its first message and ends when it has no work left. The sessions of one agent share its
modules. Their cycles never wait for one another. `Sessions` creates a session, starts its task, restarts it after a
failure of the loop, and removes it when it has no work left.

Without a slot the standing session still runs cycles, but begins no run; any other session runs no cycle. Another
session than `main` also releases its slot after each run if others wait.

At most `runs.limit` runs are running; each has a slot (`spar.decisions.next_step`). The cost of a message does not
depend on the number of sessions that wait for one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from functools import partial
from types import coroutine
from typing import Any

from spar.backoff import Intensity
from spar.clock import Wake
from spar.decisions.next_step import Claim, Slots, ask, enqueue, fill
from spar.errors import FencedError, SparError
from spar.events import ErrorOccurred
from spar.facts import MessagePlaced
from spar.loop.cycle import STANDING, Cycle
from spar.loop.phase_runner import PhaseRunner
from spar.ports.phases import OptionalActor
from spar.session.cycles import SessionCycles
from spar.session.parts import SessionParts
from spar.types import Fault

#: The most notes of one cycle; the last ones are kept.
MOST_NOTES = 10


@coroutine
def _others_turn() -> Generator[None, None, None]:
    """Let every other task run once. `asyncio.sleep(0)` takes two more frames, a twentieth of a quiet cycle."""
    yield


class Session(SessionCycles):
    """One session: its loop of cycles, and its place among the others."""

    __slots__ = ("sessions",)

    def __init__(self, parts: SessionParts, sessions: Sessions, key: str) -> None:
        super().__init__(parts, key)
        self.sessions = sessions

    async def run_cycles(self) -> None:
        """Run cycles while the agent runs.

        A session other than `main` also returns when it has no work now, and after a run when others wait for its slot.
        """
        core, parts, monotonic = self.core, self.parts, self.monotonic
        self.is_in_iteration = False  # the task before this one may have ended in a cycle
        if self.is_standing and parts.setup.pace.interval == "off" and not (self.has_work or self.is_poll_requested):
            await self.wake.sleep(None)  # only pushed work and wake-ups begin a cycle
        while core.state == "running" and (not self.not_before or await self._wait_until_allowed()):
            if parts.holding.is_holding:
                await parts.holding.hold(self)
                if core.state != "running":
                    return
            if core.shared is not None and not core.owns(self.key):
                return  # another process goes on with it
            if not (self.is_standing or self.has_work):
                return  # its work was aborted, or another session's work comes first
            self.is_in_iteration = True
            try:
                cycle = await self.run_cycle()
            except asyncio.CancelledError:
                await self._end_cut_off()
                raise
            is_answered = self.ended is not None and self.ended[0].ended is None
            if (cycle.is_journalled or is_answered) and not await self._is_kept(is_answered=is_answered):
                self.ended = None  # the process that has taken over the journal or the session ends the run
            if cycle.faults or (cycle.perceptions and parts.setup.settled is not None):
                await self.settle(cycle)
            if self.ended is not None:
                await self.publish_end(cycle, *self.ended)
            if core.state != "running":
                return
            self.is_in_iteration = False
            if parts.holding.is_holding:
                parts.requests.notify()
            if self.is_polling and cycle.has_sensed:
                self._polled_at = monotonic()
            did_well = not (cycle.faults or cycle.is_refused)
            is_idle = did_well and self.is_empty()  # the usual case, which needs no further checks
            wait: float | None = None
            if is_idle and self.is_standing and not self.has_slot:
                wait = parts.setup.paced(self._wait_by_pace(cycle))
            elif self.is_standing or not is_idle:
                wait = self._yield_slot(cycle, did_well=did_well)
            if not self.is_standing and not self.state.run and (wait != 0.0 or self.sessions.do_others_wait):
                self.rests_until = None if not wait else monotonic() + wait
                return
            # A cycle of interrupted work did not poll.
            polls_next = self.is_poll_requested and cycle.interrupted is not None
            del cycle  # frees its memory during the wait
            if wait == 0.0:
                self.wake.is_set = False
                await _others_turn()
                # Waiting work does not advance the next poll.
                self.is_polling = is_idle or self.is_poll_requested or self._is_interval_over()
            else:
                self.rests_until = None if wait is None else monotonic() + wait
                if polls_next:
                    self.wake.set()
                self.is_polling = await self.wake.sleep(wait) or self._is_poll_due()

    async def _end_cut_off(self) -> None:
        """Tell of the end of the run whose cycle was cut off, once it is on disk; there is no time to ask hooks."""
        if self.ended is None or self.ended[0].ended is not None:
            return
        if not await self._is_kept(is_answered=True):
            self.ended = None
        elif self.ended is not None:
            (run, end), self.ended = self.ended, None
            try:
                self.parts.conversations.outbox.answer_at_once(run, end)
            finally:
                self.parts.runs.end(run, end)

    async def _is_kept(self, *, is_answered: bool) -> bool:
        """Wait until the end of the last cycle is on disk, if an answer is sent next or the journal must survive a
        power cut. Return False if another process has taken over the memory or the session."""
        core, journal = self.core, self.core.ledger.journal
        try:
            if is_answered or self.parts.cycle_log.is_strict or journal.is_behind:
                await journal.safe()
        except FencedError:
            return False
        except SparError as error:  # the journal is being closed, or another node goes on with the session
            tell = core.log.warning if core.shared is None else core.log.info
            tell("cycle not known to be kept", agent=core.name, reason=str(error))
        return core.shared is None or core.shared.has(self.key)

    async def _wait_until_allowed(self) -> bool:
        """Wait until `not_before`, whatever comes meanwhile; return whether the agent still runs."""
        clock = self.core.clock
        while (left := self.not_before - clock.monotonic()) > 0:
            self.rests_until = self.not_before
            await self.wake.sleep(left)
            if self.core.state != "running":
                return False
        return True

    def stop_resting(self) -> None:
        """Cancel the timer that would offer it a slot."""
        if self.resting is not None:
            self.resting.cancel()
            self.resting = None

    def request_poll(self) -> None:
        """Begin the next cycle at once, and have it poll."""
        self.is_poll_requested = True
        self.wake.set()

    def _yield_slot(self, cycle: Cycle, *, did_well: bool) -> float | None:
        """Release the slot if it is no longer needed; return the seconds until the next cycle, None for no limit."""
        parts = self.parts
        keeps_slot = did_well and cycle.run is None and self.has_run_to_begin
        if is_done := self.is_standing and self.has_slot and not self.state.run and not keeps_slot:
            self.sessions.release_slot(self)
        wait = parts.setup.paced(self._wait_after(cycle))
        if is_done or (self.is_standing and not self.is_empty()):
            self.sessions.spawn(self, until=0.0 if did_well or not wait else self.core.clock.monotonic() + wait)
            if did_well and self.has_slot and self.has_run_to_begin:
                wait = 0.0  # the slot is still free: the next run begins at once
        return wait

    # -- its state, readable from any thread

    @property
    def is_mid_cycle(self) -> bool:
        """Return whether it is in a cycle, or in the work right after a cycle, and its task is alive."""
        return self.is_in_iteration and self.runner.task is not None

    @property
    def deadline(self) -> float:
        """Return when the current phase must end (monotonic seconds); infinite between cycles."""
        return self.runner.deadline


class Sessions:
    """The sessions of one agent, `by_key`, and the slots of their runs.

    `fail` (with the reason) and `settle` of the lifecycle are set before the first session is made. Args: by_key: an
    empty dictionary, shared with other parts that read the sessions.
    """

    __slots__ = ("_alive", "_core", "_is_poll_requested", "_lent", "_parts", "_restarts", "_slots", "by_key", "fail",
                 "settle")  # fmt: skip

    fail: Callable[[str], None]
    settle: Callable[[], None]

    def __init__(self, parts: SessionParts, by_key: dict[str, Session]) -> None:
        self._parts, self._core = parts, parts.core
        self._is_poll_requested = False  # a cycle was requested before the standing session existed
        self.by_key = by_key
        self._restarts: Intensity | None = None
        self._alive: dict[Session, None] = {}  # sessions with a task, in order of their start
        self._slots = Slots()
        self._lent: set[Session] = set()  # sessions whose slot others may use, since they stand still
        self._core.ledger.following[MessagePlaced] = self._placed

    # -- sessions and their cycles

    def of(self, key: str) -> Session:
        """Return the session of a key; create it if there is none."""
        session = self.by_key.get(key)
        if session is None:
            session = self.by_key[key] = Session(self._parts, self, key)
        return session

    def _placed(self, fact: MessagePlaced) -> None:
        """Publish what becomes of a message. Have its session wait for more that become one with it, or tell the actor
        of one for the current run."""
        if fact.outcome:
            self._parts.runs.tell_outcome(fact)
        if (session := self.by_key.get(fact.session)) is None:
            return
        if fact.place == "collect":
            session.quiet_until = self._core.clock.monotonic() + self._core.settings.runs.quiet
        elif fact.place == "steer" and (run := session.state.run) and session.cycle and session.cycle.phase == "act":
            self._core.ask(session.actor, OptionalActor.steer, run)
        if session.runner.task is not None:
            session.wake.set()

    def has_work_of(self, key: str) -> bool:
        """Return whether a session exists and has work."""
        return key in self.by_key and not self.by_key[key].is_empty()

    def cycle(self, cycle_id: str) -> Cycle | None:
        """Return a current cycle; None for another."""
        return next((cycle for cycle in self._cycles() if cycle.id == cycle_id), None)

    @property
    def is_at_work(self) -> bool:
        """Return whether any cycle is current."""
        return bool(self._cycles())

    def note(self, cycle_id: str, what: Callable[[], dict[str, Any]]) -> None:
        """Add a note to a current cycle. `what` is called when the cycle is recorded, and only if cycles are
        recorded."""
        if (cycle := self.cycle(cycle_id)) is not None:
            cycle.notes = (*cycle.notes[-MOST_NOTES + 1 :], (cycle.phase, what))

    def _cycles(self) -> list[Cycle]:
        """Return the current cycles. A step by hand counts as a cycle of the standing session, whose loop is paused
        then."""
        sessions = {*self._alive, self.by_key.get(STANDING)}
        return [session.cycle for session in sessions if session is not None and session.cycle is not None]

    def forget_restarts(self) -> None:
        """Forget former restarts of the loop, because the agent was started."""
        self._restarts = None

    # -- the slots of running runs

    def spawn_all(self) -> None:
        """Start the standing session, and all others that have work."""
        standing = self.of(STANDING) if self._core.owns(STANDING) else None
        self.spawn(*list(self.by_key.values()))
        if self._is_poll_requested and standing is not None:
            self._is_poll_requested = False
            standing.request_poll()

    def spawn(self, *sessions: Session, until: float = 0.0) -> None:
        """Start sessions that have work: now if a slot is free, otherwise in the order of their oldest messages.

        Args: until: the earliest start (monotonic seconds).
        """
        if self._core.state != "running":
            return
        for session in sessions:
            self._offer(session, until, is_alone=len(sessions) == 1)
        if self._slots.queue:
            for key in fill(self._slots, self._core.settings.runs.limit, self._claim):
                self._begin(self.by_key[key])

    @property
    def do_others_wait(self) -> bool:
        """Return whether a session waits for a slot."""
        return bool(self._slots.queue)

    def release_slot(self, session: Session) -> None:
        """Release the slot of a session without a current run. `spawn` gives it to the next session."""
        if session.has_slot:
            session.has_slot = False
            self._slots.used -= session not in self._lent
            self._lent.discard(session)

    def lend_slot(self, session: Session) -> None:
        """Let others use the slot of a session that stands still."""
        if session.has_slot:
            self._slots.used -= 1
            self._lent.add(session)
            self.spawn()

    def take_slot_back(self, session: Session) -> None:
        """Let a session go on with its run, at once, though others may have all slots: these are more for a while."""
        self._slots.used += session in self._lent
        self._lent.discard(session)

    def _offer(self, session: Session, until: float, *, is_alone: bool) -> None:
        """Start a session, or queue it for a slot if it wants one.

        Args: is_alone: no other session is offered a slot now, so this one may take a free slot at once if none waits.
        """
        session.stop_resting()
        is_removed = self.by_key.get(session.key) is not session  # a new one may work with its state
        if is_removed or (self._core.shared is not None and not self._core.is_ready(session.key)):
            return
        if session.is_standing and session.runner.task is None:
            self._start(session)
        elif not session.is_standing and session.runner.task is not None:
            return
        slots = self._slots
        if session.state.run and not session.has_slot:  # it had one when it began
            slots.used += 1
            self._begin(session)
            return
        if session.key in slots.waiting or session.is_empty():
            return
        clock, busy_with = self._core.clock, session.busy_with
        now = clock.monotonic()
        if (wait := max(until - now, session.wait_for_turn(now))) > 0:
            session.resting = clock.call_at(now + wait, partial(self.spawn, session))
        elif session.wants_slot:
            free = self._core.settings.runs.limit - slots.used if is_alone else 0
            if ask(slots, session.key, busy_with, free):
                self._begin(session)
            else:
                enqueue(slots, session.key, session.since)

    def _claim(self, key: str) -> Claim | None:
        """Return the present claim of a session to a slot; None if it needs none, or may not begin now."""
        session = self.by_key.get(key)
        if session is None or not session.wants_slot or not self._core.is_ready(key):
            return None
        return Claim(session.since, session.busy_with)

    def _begin(self, session: Session) -> None:
        """Begin to work in a session that was given a slot."""
        session.has_slot = True
        if session.is_standing:
            session.wake.set()
        else:
            self._start(session)

    def _start(self, session: Session) -> None:
        session.stop_reason = ""
        session.last_completed = self._core.clock.monotonic()  # no cycle was due while it had no task
        session.wake.is_set = False  # its first cycle begins at once
        self._alive[session] = None
        session.runner.start(session.run_cycles(), partial(self._ended, session), self._parts.requests.own_context)

    def resume(self, key: str) -> None:
        """Begin a cycle of this session now, because the actor can resume calls in it."""
        session = self.of(key)
        session.is_resuming = True
        session.wake.set()
        self.spawn(session)

    def left(self, session: Session) -> None:
        """Continue a session after one of its runs was aborted."""
        if session.is_standing and not session.state.run and session.cycle is None:
            self.release_slot(session)
        session.wake.set()
        self.spawn(session)
        self.retire(session)

    def retire(self, session: Session) -> None:
        """Remove a session without work, unless it is the standing session."""
        if session.is_standing or not session.is_empty() or session.runner.task is not None:
            return
        if self.by_key.get(session.key) is session:  # else it was removed, and a new one may have its key
            self._core.ledger.release(session.key)
            self._remove(session)

    def drop(self, session: Session) -> None:
        """Remove a session that another process goes on with, and all that waits in it. It has no task any more."""
        self._core.ledger.drop(session.key)
        self._remove(session)

    def _remove(self, session: Session) -> None:
        if self.by_key.get(session.key) is session:
            del self.by_key[session.key]
        if self._parts.holding.is_holding:
            self._parts.holding.forget(session)
        if self._parts.health.alerts:
            self._parts.health.recovered("slow", session=session.key)
        session.stop_resting()

    def end(self) -> None:
        """Cancel the timers of all sessions until the next start."""
        for session in self.by_key.values():
            session.stop_resting()

    def revive(self) -> None:
        """Reset the sessions after an event loop that ended in the middle of their work. Those without work are
        removed."""
        self._alive, self._slots, self._lent = {}, Slots(), set()
        for session in list(self.by_key.values()):
            clock = self._core.clock
            session.runner, session.wake, session.cycle = PhaseRunner(session.runner.name, clock), Wake(clock), None
            session.has_slot, session.is_open, session.resting = False, True, None
            if session.is_empty():
                del self.by_key[session.key]
                self._core.ledger.release(session.key)

    @property
    def is_quiet(self) -> bool:
        """Return whether no session has a task."""
        return not self._alive

    def wake_all(self) -> None:
        for session in self._alive:
            session.wake.set()

    def wake_standing(self) -> None:
        """Request a cycle of the standing session that polls."""
        if (session := self.by_key.get(STANDING)) is not None:
            session.request_poll()
        else:  # the sense module opens before sessions exist
            self._is_poll_requested = True

    # -- the tasks of sessions

    def _ended(self, session: Session, error: BaseException | None) -> None:
        """Release what the session held after its task has ended, and start the next sessions."""
        core = self._core
        was_cut = bool(session.stop_reason)
        self._alive.pop(session, None)
        self.release_slot(session)
        session.cycle = None
        if self._parts.holding.awaited:
            self._parts.holding.note_cycle_ended(session)
        if session.ended is not None:  # a stop cut off the wait for the disk, or the sending of its answer
            run, end = session.ended
            if not run.is_told and core.has(session.key):
                self._parts.conversations.outbox.answer_at_once(run, end)
            self._parts.runs.end(run, end)
            session.ended = None
        if error is not None and not isinstance(error, asyncio.CancelledError):
            self._loop_failed(session, error)
        elif error is not None and not was_cut and core.state == "running":
            # No part of the agent cancelled the task: the event loop is being closed.
            self.fail("its task was cancelled from outside")
        self.retire(session)
        if self.by_key.get(session.key) is session:
            self.spawn(session, until=session.rests_until or 0.0)
        elif self._slots.queue:
            self.spawn()
        if core.state == "pausing":
            self.settle()
        self._parts.requests.notify()

    def _loop_failed(self, session: Session, error: BaseException) -> None:
        """Report a failure of the loop itself, which no module can cause; stop the agent after too many."""
        core = self._core
        core.log.error("loop failed", agent=core.name, session=session.key, reason=repr(error))
        fault = Fault.of(error, part="loop")
        core.events.publish(ErrorOccurred(cycle_id="", phase="loop", error=fault, policy="restart", exception=error))
        if self._restarts is None:
            self._restarts = Intensity(core.settings.health.max_restarts, core.settings.health.within)
        self._parts.health.judge.ladder.count_restart("loop")
        if core.state in ("running", "pausing") and not self._restarts.allow(core.clock.monotonic()):
            often = f"more than {self._restarts.limit} times within {self._restarts.within:g} s"
            self.fail(f"the loop failed {often}: {fault.message}")
