"""The lanes of an agent: one for each session that has something to do, and the standing one.

A lane turns by itself (`spar.session.session`). Here it is made, given its task, begun anew when it broke, and
forgotten when nothing is left to do; and here is done what has its place between two of its cycles.

As many runs are under way as `runs.limit` says, each in a place. Who wants a place waits in one queue, in the order of
the oldest messages: a message costs the same however many sessions wait.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from spar.backoff import Intensity
from spar.events import ErrorOccurred
from spar.health.health import Health
from spar.loop.core import Core
from spar.loop.cycle import STANDING
from spar.loop.phase_runner import PhaseRunner
from spar.loop.tasks import Requests
from spar.loop.wake import Wake
from spar.session.session import Session
from spar.session.session_hooks import SessionHooks
from spar.types import Fault

#: Notes that are kept with a cycle, the last ones.
MOST_NOTES = 10


class Sessions:
    """Who turns. `lanes` holds the lanes by their session's key.

    Args: on_broken: has the agent give up, for the reason given; on_quiet: hears that a lane turns no more; on_retired:
        hears of a lane that is forgotten.
    """

    __slots__ = ("_alive", "_core", "_health", "_hooks", "_make_lane", "_number", "_on_broken", "_on_quiet",
                 "_on_retired", "_places", "_queue", "_requests", "_restarts", "lanes")  # fmt: skip

    def __init__(self, core: Core, requests: Requests, health: Health, hooks: SessionHooks,
                 make_lane: Callable[[str], Session], *, on_broken: Callable[[str], object],
                 on_quiet: Callable[[], object], on_retired: Callable[[Session], object]) -> None:  # fmt: skip
        self._core, self._requests, self._health, self._hooks = core, requests, health, hooks
        self._make_lane, self._on_broken, self._on_quiet = make_lane, on_broken, on_quiet
        self._on_retired = on_retired
        self.lanes: dict[str, Session] = {}
        self._restarts: Intensity | None = None
        self._alive: dict[Session, None] = {}  # those that have a task, in the order in which they began
        self._places = 0  # how many are taken
        #: Who waits for a place, by the time of the oldest message (monotonic seconds); equal ones as they came.
        self._queue: list[tuple[float, int, Session]] = []
        self._number = itertools.count()

    # -- making and forgetting

    def lane(self, session: str) -> Session:
        lane = self.lanes.get(session)
        if lane is None:
            lane = self.lanes[session] = self._make_lane(session)
        return lane

    def is_in_hand(self, cycle_id: str) -> bool:
        """Whether this cycle goes on now."""
        lanes = {*self._alive, self.lanes.get(STANDING)}
        return any(lane is not None and lane.cycle is not None and lane.cycle.id == cycle_id for lane in lanes)

    def note(self, cycle_id: str, what: Callable[[], dict[str, Any]]) -> None:
        """Have what this returns kept on the tape with a cycle, if it goes on; it is asked where there is a tape."""
        for lane in {*self._alive, self.lanes.get(STANDING)}:
            if lane is not None and lane.cycle is not None and lane.cycle.id == cycle_id:
                lane.cycle.notes = (*lane.cycle.notes[-MOST_NOTES + 1 :], (lane.cycle.phase, what))

    def begin_anew(self) -> None:
        """The agent is started: what broke before counts no more."""
        self._restarts = None

    # -- who has its turn

    def spawn_all(self) -> None:
        self.lane(STANDING)
        self.spawn(*list(self.lanes.values()))

    def spawn(self, *lanes: Session) -> None:
        """Have lanes turn that have something to do: at once where there is a place, else when it is their turn."""
        if self._core.state != "running":
            return
        for lane in lanes:
            self._offer(lane, is_alone=len(lanes) == 1)
        if self._queue:
            self._fill()

    @property
    def do_others_wait(self) -> bool:
        """Whether anybody waits for a place."""
        return bool(self._queue)

    def give_back(self, lane: Session) -> None:
        """Take the place of a lane that has no run in hand any more; who is to have it next shows with `offer`."""
        if lane.has_place:
            lane.has_place = False
            self._places -= 1

    def offer(self, lane: Session, rest: float = 0.0) -> None:
        """Have a lane wait for a place if it wants one, like everybody, after so many seconds."""
        self._offer(lane, self._core.clock.monotonic() + rest if rest else 0.0, is_alone=True)
        if self._queue:
            self._fill()

    def _offer(self, lane: Session, until: float = 0.0, *, is_alone: bool = False) -> None:
        """Have a lane wait for a place, from this time on (monotonic seconds) at the earliest.

        Args: is_alone: nobody else is offered one now, so that it may take one at once where nobody waits.
        """
        if lane.resting is not None:
            lane.resting.cancel()
            lane.resting = None
        if lane.is_standing and lane.runner.task is None:
            self._start(lane)
        elif not lane.is_standing and lane.runner.task is not None:
            return
        if lane.run is not None and not lane.has_place:  # it had one when it began
            self._grant(lane)
            return
        if lane.waits_for_place or lane.is_empty:
            return
        clock = self._core.clock
        now = clock.monotonic()
        if (wait := max(until - now, lane.wait_for_turn(now))) > 0:
            lane.resting = clock.call_at(now + wait, partial(self._rested, lane))
        elif lane.wants_place:
            is_free = is_alone and not self._queue and self._places < self._core.settings.runs.limit
            if is_free and not self._is_to_be_passed_over(lane):
                self._grant(lane)
            else:
                self._enqueue(lane)

    def _rested(self, lane: Session) -> None:
        lane.resting = None
        self.spawn(lane)

    def _enqueue(self, lane: Session) -> None:
        lane.waits_for_place = True
        heapq.heappush(self._queue, (lane.since, next(self._number), lane))

    def _fill(self) -> None:
        """Give the places that are free to those whose oldest message is the oldest."""
        limit, passed = self._core.settings.runs.limit, None
        while self._queue and self._places < limit:
            entry = since, _, lane = heapq.heappop(self._queue)
            lane.waits_for_place = False
            if self.lanes.get(lane.session) is not lane or not lane.wants_place:
                continue
            if lane.since > since:  # what was oldest has gone
                self._enqueue(lane)
            elif self._is_to_be_passed_over(lane):
                passed = entry
            else:
                self._grant(lane)
        if passed is not None:
            passed[2].waits_for_place = True
            heapq.heappush(self._queue, passed)

    @staticmethod
    def _is_to_be_passed_over(lane: Session) -> bool:
        """Whether the standing lane is in the middle of a cycle that is no run's, which the others need not wait for;
        one that was passed over before has the next place kept for it."""
        if lane.is_open or (lane.passed_over is not None and lane.passed_over is not lane.cycle):
            return False
        lane.passed_over = lane.cycle
        return True

    def _grant(self, lane: Session) -> None:
        lane.has_place, lane.passed_over = True, None
        self._places += 1
        if lane.is_standing:
            lane.wake.set()
        else:
            self._start(lane)

    def _start(self, lane: Session) -> None:
        lane.stop_reason = ""
        lane.last_completed = self._core.clock.monotonic()  # while it did not turn, no cycle was missed
        lane.wake.clear()  # its first cycle comes at once
        self._alive[lane] = None
        self.begin(lane, lane.live(), partial(self._ended, lane))

    def resume(self, session: str) -> None:
        """The actor has calls of this session to go on with: its next cycle comes at once."""
        lane = self.lane(session)
        lane.is_resuming = True
        lane.wake.set()
        self.spawn(lane)

    def begin(
        self, lane: Session, work: Coroutine[Any, Any, Any], done: Callable[[BaseException | None], object]
    ) -> None:
        """Run work on a lane that does not turn; `done(error)` is called at its end."""
        with self._requests.inside():
            lane.runner.start(work, done)

    def left(self, lane: Session) -> None:
        """A run of this lane was called off: what waited for its end goes on."""
        if lane.is_standing and lane.run is None and lane.cycle is None:
            self.give_back(lane)
        lane.wake.set()
        self.spawn(lane)
        self.retire(lane)

    def retire(self, lane: Session) -> None:
        """Forget a session's lane that has nothing left to do."""
        if lane.is_standing or not lane.is_empty or lane.runner.task is not None:
            return
        if self.lanes.get(lane.session) is not lane:  # it is gone already, and there may be another one
            return
        del self.lanes[lane.session]
        self._on_retired(lane)
        self._health.rests(lane.session)
        if lane.resting is not None:
            lane.resting.cancel()

    async def see_off(self) -> None:
        """Nothing turns any more: ask the hooks about the ends of the sessions."""
        for lane in self.lanes.values():
            if lane.resting is not None:
                lane.resting.cancel()
                lane.resting = None
        await self._hooks.see_off()

    def revive(self) -> None:
        """Free the lanes from a loop that ended in the middle of their work; those with nothing to do are forgotten."""
        self._alive, self._places = {}, 0
        self._queue.clear()
        for lane in list(self.lanes.values()):
            clock = self._core.clock
            lane.runner, lane.wake, lane.cycle = PhaseRunner(lane.runner.name, clock), Wake(clock), None
            lane.loop.runner = lane.runner
            lane.has_place = lane.waits_for_place = False
            lane.is_open, lane.resting = True, None
            if lane.is_empty:
                del self.lanes[lane.session]

    @property
    def is_quiet(self) -> bool:
        return not self._alive

    def wake_all(self) -> None:
        for lane in self._alive:
            lane.wake.set()

    def wake_standing(self) -> None:
        if (lane := self.lanes.get(STANDING)) is not None:
            lane.call()

    # -- their lives

    def _ended(self, lane: Session, error: BaseException | None) -> None:
        core = self._core
        was_cut = bool(lane.stop_reason)
        self._alive.pop(lane, None)
        self.give_back(lane)
        lane.let_go()
        if error is not None and not isinstance(error, asyncio.CancelledError):
            self._broke(lane, error)
        elif error is not None and not was_cut and core.state == "running":
            # Cancelled by nobody we know: the event loop is being shut down under us.
            self._on_broken("its task was cancelled from outside")
        self.retire(lane)
        if core.state == "running" and self.lanes.get(lane.session) is lane:
            self._offer(lane, lane.rests_until or 0.0)
        self.spawn()
        self._on_quiet()

    def _broke(self, lane: Session, error: BaseException) -> None:
        """The loop itself failed, which no module can make it do: restart it, but not for ever."""
        core = self._core
        core.log.error("loop failed", agent=core.name, session=lane.session, reason=repr(error))
        fault = Fault.of(error, part="loop")
        core.events.publish(ErrorOccurred(cycle_id="", phase="loop", error=fault, policy="restart", exception=error))
        if self._restarts is None:
            self._restarts = Intensity(core.settings.health.max_restarts, core.settings.health.within)
        self._health.count_restart("loop")
        if core.state in ("running", "pausing") and not self._restarts.allow(core.clock.monotonic()):
            often = f"more than {self._restarts.limit} times within {self._restarts.within:g} s"
            self._on_broken(f"the loop failed {often}: {fault.message}")
