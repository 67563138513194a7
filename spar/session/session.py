"""One session of an agent: its loop of cycles, and the waits between them.

The session `main` is the standing session (`is_standing`): it always exists, and its sense phase polls the sensors. Any
other session begins with its first message and ends when it has no work left. The sessions of one agent share its
modules. Their cycles never wait for one another.

Every run needs a slot, given by `spar.session.sessions`. Without a slot the standing session still runs cycles, but
begins no run; any other session runs no cycle. Another session than `main` also releases its slot after each run if
others wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from spar.decisions.next_step import may_begin_run, next_step
from spar.loop.cycle import LONGEST_DEFERRAL, Cycle
from spar.loop.setup import pause_after
from spar.session.cycles import SessionCycles
from spar.session.parts import SessionParts

#: The longest wait (seconds) after a cycle that a hook denied, while work waits.
LONGEST_REFUSAL = 60.0


class RunSlots(Protocol):
    """Slots of the running runs, as a session releases its own and waits for the next."""

    @property
    def do_others_wait(self) -> bool: ...
    def release_slot(self, session: Session) -> None: ...
    def lend_slot(self, session: Session) -> None: ...
    def take_slot_back(self, session: Session) -> None: ...
    def spawn(self, *sessions: Session, until: float = 0.0) -> None: ...


class Session(SessionCycles):
    """One session: its loop of cycles, and the choice of each wait."""

    __slots__ = ("_polled_at", "_stands_since", "is_in_iteration", "planned_look", "sessions", "stands")

    def __init__(self, parts: SessionParts, sessions: RunSlots, key: str) -> None:
        super().__init__(parts, key)
        self.sessions = sessions
        self._polled_at = self._stands_since = 0.0
        self.stands: tuple[str, ...] = ()  # where it stands still by hand, see `held`; a sentence for each place
        self.planned_look: float | None = None  # seconds until the next cycle, as the last plan proposed them
        self.is_in_iteration = False  # whether its loop is between the start of a cycle and the next wait

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
            cycle = await self.run_cycle()
            is_answered = self.ended is not None and self.ended[0].ended is None
            if (cycle.is_journalled or is_answered) and not (
                await parts.cycle_log.wait_until_safe(is_answered=is_answered)
                and (core.shared is None or core.shared.has(self.key))
            ):
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
            if is_idle and not (self.has_slot and self.is_standing):
                wait = parts.setup.paced(self._wait_by_pace(cycle))
            else:
                wait = self._yield_slot(cycle, did_well=did_well)
            if not self.is_standing and not self.state.run and (wait != 0.0 or self.sessions.do_others_wait):
                self.rests_until = None if not wait else monotonic() + wait
                return
            # A cycle of interrupted work did not poll.
            polls_next = self.is_poll_requested and cycle.interrupted is not None
            del cycle  # frees its memory during the wait
            if wait == 0.0:
                self.wake.is_set = False
                await asyncio.sleep(0)  # others have their turn
                # Waiting work does not advance the next poll.
                self.is_polling = is_idle or self.is_poll_requested or self._is_interval_over()
            else:
                self.rests_until = None if wait is None else monotonic() + wait
                if polls_next:
                    self.wake.set()
                self.is_polling = await self.wake.sleep(wait) or self._is_poll_due()

    async def _wait_until_allowed(self) -> bool:
        """Wait until `not_before`, whatever comes meanwhile; return whether the agent still runs."""
        clock = self.core.clock
        while (left := self.not_before - clock.monotonic()) > 0:
            self.rests_until = self.not_before
            await self.wake.sleep(left)
            if self.core.state != "running":
                return False
        return True

    @contextmanager
    def held(self, where: str) -> Iterator[None]:
        """Let it stand still in its cycle: others use its slot, and no deadline and no limit of its run goes on.

        Args: where: where it stands, as a sentence for people.
        """
        monotonic, cycle, run, go_on = self.core.clock.monotonic, self.cycle, self.run, self.runner.hold()
        if not self.stands:
            self._stands_since = monotonic()
            self.sessions.lend_slot(self)
            if run is not None:
                run.stop_timer()
        self.stands = (*self.stands, where)
        self.parts.requests.notify()
        try:
            yield
        finally:
            go_on()
            at = self.stands.index(where)
            self.stands = (*self.stands[:at], *self.stands[at + 1 :])
            if not self.stands:
                self.sessions.take_slot_back(self)
                seconds = monotonic() - self._stands_since
                if cycle is not None:
                    cycle.held += seconds
                    cycle.started += seconds
                    cycle.phase_began += seconds
                if run is not None and self.run is run:
                    self.parts.runs.timers.let_pass(run, seconds)

    def request_poll(self) -> None:
        """Begin the next cycle at once, and have it poll."""
        self.is_poll_requested = True
        self.wake.set()

    # -- when the next cycle comes

    def _is_poll_due(self) -> bool:
        """Return whether a cycle that nobody requested polls. A current run does not advance the next poll."""
        return not self.state.run or (self.parts.setup.pace.interval != "off" and self._is_interval_over())

    def _is_interval_over(self) -> bool:
        """Return whether the fixed interval has passed since the last poll; True without a fixed interval."""
        interval = self.parts.setup.pace.interval
        return isinstance(interval, str) or self.core.clock.monotonic() >= self._polled_at + interval

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

    def _wait_after(self, cycle: Cycle) -> float | None:
        """Return the seconds until the next cycle; None to wait until something is pushed."""
        if cycle.is_refused:
            return self._wait_refused()
        parts, pace, turn = self.parts, self.parts.setup.pace, self._turn()
        step, is_at_work = next_step(self.state, turn), bool(self.state.run)
        if not cycle.faults:
            if step == "begin":
                return 0.0
            if is_at_work and cycle.deferred and cycle.planned_look is not None:
                least = pace.min_interval if pace.interval != 0 else 0.0
                return min(max(least, cycle.planned_look), LONGEST_DEFERRAL)  # the deferred call decides the time
        is_busy = step == "continue" or is_at_work or (bool(cycle.faults) and step == "begin")
        wait = self._wait_by_pace(cycle, is_busy=is_busy)
        if cycle.faults:
            wait = parts.health.back_off(wait, cycle)
            if patience := cycle.retry_after:
                self.not_before = self.core.clock.monotonic() + patience
                wait = None if wait is None else max(wait, patience)
        if (quiet := turn.quiet) and turn.may_begin and may_begin_run(self.state):
            return quiet if wait is None or not self.is_standing else min(wait, quiet)
        return wait

    def _wait_by_pace(self, cycle: Cycle, *, is_busy: bool = False) -> float | None:
        """Return the seconds until the next cycle from the pace and the last plan; None to wait until something is
        pushed."""
        pace, action = self.parts.setup.pace, cycle.action
        planned_look = self.planned_look = None if is_busy or action is None else action.next_look
        next_look = cycle.next_look if pace.interval == "adaptive" else None  # other paces ignore it
        wait = pause_after(pace, len(cycle.perceptions), busy=is_busy, next_look=next_look, planned_look=planned_look)
        if not (self.is_polling or is_busy or wait is None or pace.interval == "adaptive"):
            wait = max(self._polled_at + wait - self.core.clock.monotonic(), 0.0)  # since the last poll
        return wait

    def _wait_refused(self) -> float | None:
        """Return the wait after a denied cycle. It is not zero, because the work of that cycle still waits."""
        pace = self.parts.setup.pace
        wait = pause_after(pace, 0)
        if self.is_empty():
            return wait
        return min(wait or pace.min_interval, LONGEST_REFUSAL)

    # -- its state, readable from any thread

    @property
    def is_mid_cycle(self) -> bool:
        """Return whether it is in a cycle, or in the work right after a cycle, and its task is alive."""
        return self.is_in_iteration and self.runner.task is not None

    @property
    def deadline(self) -> float:
        """Return when the current phase must end (monotonic seconds); infinite between cycles."""
        return self.runner.deadline

    @property
    def rests_for(self) -> float | None:
        """Return the seconds until its next cycle; None in a cycle, or while it waits for pushed work."""
        until = self.rests_until
        return None if until is None else max(0.0, round(until - self.core.clock.monotonic(), 3))

    @property
    def waits_for_model(self) -> bool:
        """Return whether its run waits until a provider accepts requests again."""
        run = self.run
        return run is not None and run.waits_until > self.core.clock.monotonic()
