"""The sessions of an agent: those that have something to do, and the standing one.

A session turns by itself (`spar.session.session`). Here it is made, given its task, begun anew when it broke, and
forgotten when nothing is left to do; and here is done what has its place between two of its cycles.

As many runs are under way as `runs.limit` says, each in a place. Who wants a place waits in one queue, in the order of
the oldest messages: a message costs the same however many sessions wait.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from spar.backoff import Intensity
from spar.events import ErrorOccurred
from spar.health.health import Health
from spar.loop.core import Core
from spar.loop.cycle import STANDING, Cycle
from spar.loop.phase_runner import PhaseRunner
from spar.loop.wake import Wake
from spar.session.holding import Holding
from spar.session.session import Session
from spar.types import Fault

#: Notes that are kept with a cycle, the last ones.
MOST_NOTES = 10


class Owner(Protocol):
    """The agent that its sessions belong to."""

    def make_session(self, key: str) -> Session: ...
    def fail(self, why: str) -> None: ...
    def settle(self) -> None: ...


class Sessions:
    """The sessions of one agent that have something to do, `by_key`, and the places of their runs.

    Args: by_key: empty; other parts that know the sessions hold the same dictionary.
    """

    __slots__ = ("_alive", "_core", "_health", "_holding", "_is_called", "_number", "_owner", "_places", "_queue",
                 "_restarts", "by_key")  # fmt: skip

    def __init__(self, core: Core, health: Health, holding: Holding, by_key: dict[str, Session], owner: Owner) -> None:
        self._core, self._health, self._holding, self._owner = core, health, holding, owner
        self._is_called = False  # somebody asked for a cycle before there were sessions
        self.by_key = by_key
        self._restarts: Intensity | None = None
        self._alive: dict[Session, None] = {}  # those that have a task, in the order in which they began
        self._places = 0  # how many are taken
        #: Who waits for a place, by the time of the oldest message (monotonic seconds); equal ones as they came.
        self._queue: list[tuple[float, int, Session]] = []
        self._number = itertools.count()

    # -- making and forgetting

    def of(self, key: str) -> Session:
        session = self.by_key.get(key)
        if session is None:
            session = self.by_key[key] = self._owner.make_session(key)
        return session

    def is_in_hand(self, cycle_id: str) -> bool:
        """Return whether this cycle goes on now."""
        return any(cycle.id == cycle_id for cycle in self._cycles())

    @property
    def is_at_work(self) -> bool:
        """Return whether a cycle goes on."""
        return bool(self._cycles())

    def note(self, cycle_id: str, what: Callable[[], dict[str, Any]]) -> None:
        """Have what this returns kept on the tape with a cycle, if it goes on; it is asked where there is a tape."""
        for cycle in self._cycles():
            if cycle.id == cycle_id:
                cycle.notes = (*cycle.notes[-MOST_NOTES + 1 :], (cycle.phase, what))

    def _cycles(self) -> list[Cycle]:
        """Return the cycles in hand; a step by hand is one of the standing session, which does not turn then."""
        sessions = {*self._alive, self.by_key.get(STANDING)}
        return [session.cycle for session in sessions if session is not None and session.cycle is not None]

    def begin_anew(self) -> None:
        """The agent is started: what broke before counts no more."""
        self._restarts = None

    # -- who has its turn

    def spawn_all(self) -> None:
        standing = self.of(STANDING)
        self.spawn(*list(self.by_key.values()))
        if self._is_called:
            self._is_called = False
            standing.call()

    def spawn(self, *sessions: Session, until: float = 0.0) -> None:
        """Have sessions turn that have something to do: at once where there is a place, else when it is their turn.

        Args: until: when they may at the earliest (monotonic seconds).
        """
        if self._core.state != "running":
            return
        for session in sessions:
            self._offer(session, until, is_alone=len(sessions) == 1)
        if self._queue:
            self._fill()

    @property
    def do_others_wait(self) -> bool:
        """Return whether anybody waits for a place."""
        return bool(self._queue)

    def give_back(self, session: Session) -> None:
        """Take the place of a session that has no run in hand any more; who is to have it next shows with `spawn`."""
        if session.has_place:
            session.has_place = False
            self._places -= 1

    def _offer(self, session: Session, until: float, *, is_alone: bool) -> None:
        """Have a session wait for a place if it wants one.

        Args: is_alone: nobody else is offered one now, so that it may take one at once where nobody waits.
        """
        if session.resting is not None:
            session.resting.cancel()
            session.resting = None
        if session.is_standing and session.runner.task is None:
            self._start(session)
        elif not session.is_standing and session.runner.task is not None:
            return
        if session.run is not None and not session.has_place:  # it had one when it began
            self._grant(session)
            return
        if session.waits_for_place or session.is_empty():
            return
        clock = self._core.clock
        now = clock.monotonic()
        if (wait := max(until - now, session.wait_for_turn(now))) > 0:
            session.resting = clock.call_at(now + wait, partial(self._rested, session))
        elif session.wants_place:
            is_free = is_alone and not self._queue and self._places < self._core.settings.runs.limit
            if is_free and not self._is_to_be_passed_over(session):
                self._grant(session)
            else:
                self._enqueue(session)

    def _rested(self, session: Session) -> None:
        session.resting = None
        self.spawn(session)

    def _enqueue(self, session: Session) -> None:
        session.waits_for_place = True
        heapq.heappush(self._queue, (session.since, next(self._number), session))

    def _fill(self) -> None:
        """Give the places that are free to those whose oldest message is the oldest."""
        limit, passed = self._core.settings.runs.limit, None
        while self._queue and self._places < limit:
            entry = since, _, session = heapq.heappop(self._queue)
            session.waits_for_place = False
            if self.by_key.get(session.key) is not session or not session.wants_place:
                continue
            if session.since > since:  # what was oldest has gone
                self._enqueue(session)
            elif self._is_to_be_passed_over(session):
                passed = entry
            else:
                self._grant(session)
        if passed is not None:
            passed[2].waits_for_place = True
            heapq.heappush(self._queue, passed)

    @staticmethod
    def _is_to_be_passed_over(session: Session) -> bool:
        """Return whether the standing session is amid a cycle that is no run's, which the others need not wait for;
        one that was passed over before has the next place kept for it."""
        if session.is_open or (session.passed_over is not None and session.passed_over is not session.cycle):
            return False
        session.passed_over = session.cycle
        return True

    def _grant(self, session: Session) -> None:
        session.has_place, session.passed_over = True, None
        self._places += 1
        if session.is_standing:
            session.wake.set()
        else:
            self._start(session)

    def _start(self, session: Session) -> None:
        session.stop_reason = ""
        session.last_completed = self._core.clock.monotonic()  # while it did not turn, no cycle was missed
        session.wake.clear()  # its first cycle comes at once
        self._alive[session] = None
        session.begin(session.live(), session.has_ended)

    def resume(self, key: str) -> None:
        """The actor has calls of this session to go on with: its next cycle comes at once."""
        session = self.of(key)
        session.is_resuming = True
        session.wake.set()
        self.spawn(session)

    def left(self, session: Session) -> None:
        """A run of this session was called off: what waited for its end goes on."""
        if session.is_standing and session.run is None and session.cycle is None:
            self.give_back(session)
        session.wake.set()
        self.spawn(session)
        self.retire(session)

    def retire(self, session: Session) -> None:
        """Forget a session that has nothing left to do, unless it is the standing one."""
        if session.is_standing or not session.is_empty() or session.runner.task is not None:
            return
        if self.by_key.get(session.key) is not session:  # it is gone already, and there may be another one
            return
        del self.by_key[session.key]
        if self._holding.is_holding:
            self._holding.forget(session)
        self._health.rests(session.key)
        if session.resting is not None:
            session.resting.cancel()

    def end(self) -> None:
        """Nothing turns any more until the next start."""
        for session in self.by_key.values():
            if session.resting is not None:
                session.resting.cancel()
                session.resting = None

    def revive(self) -> None:
        """Free the sessions from a loop that ended amid their work; those with nothing to do are forgotten."""
        self._alive, self._places = {}, 0
        self._queue.clear()
        for session in list(self.by_key.values()):
            clock = self._core.clock
            session.runner, session.wake, session.cycle = PhaseRunner(session.runner.name, clock), Wake(clock), None
            session.loop.runner = session.runner
            session.has_place = session.waits_for_place = False
            session.is_open, session.resting = True, None
            if session.is_empty():
                del self.by_key[session.key]

    @property
    def is_quiet(self) -> bool:
        return not self._alive

    def wake_all(self) -> None:
        for session in self._alive:
            session.wake.set()

    def wake_standing(self) -> None:
        if (session := self.by_key.get(STANDING)) is not None:
            session.call()
        else:  # what senses is opened before there are sessions
            self._is_called = True

    # -- their lives

    def ended(self, session: Session, error: BaseException | None) -> None:
        """The task of a session has ended: see who turns next."""
        core = self._core
        was_cut = bool(session.stop_reason)
        self._alive.pop(session, None)
        self.give_back(session)
        session.let_go()
        if error is not None and not isinstance(error, asyncio.CancelledError):
            self._broke(session, error)
        elif error is not None and not was_cut and core.state == "running":
            # Cancelled by nobody we know: the event loop is being shut down under us.
            self._owner.fail("its task was cancelled from outside")
        self.retire(session)
        if self.by_key.get(session.key) is session:
            self.spawn(session, until=session.rests_until or 0.0)
        elif self._queue:
            self.spawn()
        self._owner.settle()

    def _broke(self, session: Session, error: BaseException) -> None:
        """The loop itself failed, which no module can make it do: restart it, but not for ever."""
        core = self._core
        core.log.error("loop failed", agent=core.name, session=session.key, reason=repr(error))
        fault = Fault.of(error, part="loop")
        core.events.publish(ErrorOccurred(cycle_id="", phase="loop", error=fault, policy="restart", exception=error))
        if self._restarts is None:
            self._restarts = Intensity(core.settings.health.max_restarts, core.settings.health.within)
        self._health.count_restart("loop")
        if core.state in ("running", "pausing") and not self._restarts.allow(core.clock.monotonic()):
            often = f"more than {self._restarts.limit} times within {self._restarts.within:g} s"
            self._owner.fail(f"the loop failed {often}: {fault.message}")
