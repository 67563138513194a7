"""The lanes of an agent: one for each session that has something to do, and the standing one.

A lane turns by itself (`spar.lane`). Here it is made, given its task, begun anew when it broke, and forgotten when
nothing is left to do; and here is done what has its place between two of its cycles.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

from spar.cycle import STANDING, Cycle
from spar.endings import ENDS_PROCESS, is_closing
from spar.errors import SparError
from spar.events import ErrorOccurred
from spar.hooks import HookContext
from spar.lane import Lane
from spar.logs import get_logger
from spar.policies import Intensity
from spar.strand import WAITING, Strand
from spar.types import Fault
from spar.wake import Wake

if TYPE_CHECKING:
    from spar.agent import Agent

log = get_logger("spar.agent")

#: Seconds that the sense module may take to hear between two cycles that what it handed over is seen through.
SETTLE_WITHIN = 30.0
#: Notes that are kept with a cycle, the last ones.
MOST_NOTES = 10


class Sessions:
    """Who turns. `lanes` holds the lanes by their session's key."""

    __slots__ = ("_agent", "_endings", "_restarts", "_told", "lanes")

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self.lanes: dict[str, Lane] = {}
        self._restarts: Intensity | None = None
        #: Sessions whose beginning the hooks were asked about, and the asking about ends that goes on.
        self._told: set[str] | None = None
        self._endings: tuple[asyncio.Task[None], ...] = ()

    # -- making and forgetting

    def lane(self, session: str) -> Lane:
        lane = self.lanes.get(session)
        if lane is None:
            lane = self.lanes[session] = Lane(self._agent, session)
        return lane

    def is_in_hand(self, cycle_id: str) -> bool:
        """Whether this cycle goes on now."""
        return any(lane.cycle is not None and lane.cycle.id == cycle_id for lane in self.lanes.values())

    def note(self, cycle_id: str, what: Callable[[], dict[str, Any]]) -> None:
        """Have what this returns kept on the tape with a cycle, if it goes on; it is asked where there is a tape."""
        for lane in self.lanes.values():
            if lane.cycle is not None and lane.cycle.id == cycle_id:
                lane.cycle.notes = (*lane.cycle.notes[-MOST_NOTES + 1 :], (lane.cycle.phase, what))

    def begin_anew(self) -> None:
        """The agent is started: what broke before counts no more."""
        self._restarts = None

    def spawn_all(self) -> None:
        self.lane(STANDING)
        self.spawn(*list(self.lanes.values()))

    def spawn(self, *lanes: Lane) -> None:
        """Give lanes their task that have none and something to do, as far as the limit of sessions allows it."""
        agent = self._agent
        if agent.state != "running":
            return
        idle = [lane for lane in lanes if lane.strand.task is None and (lane.is_standing or lane.has_work)]
        if not idle:
            return
        alive = sum(other.strand.task is not None and not other.is_standing for other in self.lanes.values())
        for lane in idle:
            if not lane.is_standing:
                if alive >= agent.settings.runs.limit:
                    continue
                alive += 1
            lane.stop_reason = ""
            lane.last_completed = agent.clock.monotonic()  # while it did not turn, no cycle was missed
            lane.wake.clear()  # its first cycle comes at once
            self.begin(lane, self._life(lane), partial(self._ended, lane))

    def resume(self, session: str) -> None:
        """The actor has calls of this session to go on with: its next cycle comes at once."""
        lane = self.lane(session)
        lane.is_resuming = True
        lane.wake.set()
        self.spawn(lane)

    def begin(self, lane: Lane, work: Coroutine[Any, Any, Any], done: Callable[[BaseException | None], object]) -> None:
        """Run work on a lane that does not turn; `done(error)` is called at its end."""
        with self._agent.requests.inside():
            lane.strand.start(work, done)

    def retire(self, lane: Lane) -> None:
        """Forget a session's lane that has nothing left to do."""
        if lane.is_standing or lane.has_work or lane.strand.task is not None:
            return
        if self.lanes.get(lane.session) is not lane:  # it is gone already, and there may be another one
            return
        del self.lanes[lane.session]
        self._agent.assembly.forget(lane)
        self._agent.health.rests(lane.session)
        if self._told and lane.session in self._told:
            self._told.discard(lane.session)
            ending = self._agent.requests.in_background(self._asked("session_end", lane.session), "end of a session of")
            self._endings = (*(other for other in self._endings if not other.done()), ending)

    async def see_off(self) -> None:
        """Wait for the hooks that are being told of sessions' ends."""
        try:
            while any(not ending.done() for ending in self._endings):
                await self._agent.requests.change()
        finally:
            self._endings = ()

    def revive(self) -> None:
        """Free the lanes from a loop that ended in the middle of their work; those with nothing to do are forgotten."""
        self._endings = ()
        for lane in list(self.lanes.values()):
            clock = self._agent.clock
            lane.strand, lane.wake, lane.cycle = Strand(lane.strand.name, clock), Wake(clock), None
            lane.loop.strand = lane.strand
            if not lane.has_work:
                del self.lanes[lane.session]

    @property
    def is_quiet(self) -> bool:
        return all(lane.strand.task is None for lane in self.lanes.values())

    def wake_all(self) -> None:
        for lane in self.lanes.values():
            lane.wake.set()

    def wake_standing(self) -> None:
        if (lane := self.lanes.get(STANDING)) is not None:
            lane.wake.set()

    # -- their lives

    def _life(self, lane: Lane) -> Coroutine[Any, Any, None]:
        """What a lane's task does; a session begins with the hooks being told, which nobody else waits for."""
        if lane.is_standing or not (self._agent.hooks.at("session_start") or self._agent.hooks.at("session_end")):
            return lane.live()
        if self._told is None:
            self._told = set()
        if lane.session in self._told:
            return lane.live()
        self._told.add(lane.session)
        return self._begun(lane)

    async def _begun(self, lane: Lane) -> None:
        await self._asked("session_start", lane.session)
        if self._agent.is_running and lane.has_work:  # time has passed
            await lane.live()

    async def _asked(self, point: str, session: str) -> None:
        try:
            if self._agent.hooks.at(point):
                await self._agent.reports.asked(HookContext(point, self._agent.name, session, session))
        finally:
            self._agent.requests.notify()  # a stop waits for it

    async def settle(self, cycle: Cycle) -> None:
        """Between two cycles: what has been seen through is told to the sense module; a failing module is restarted."""
        agent = self._agent
        if cycle.faults:
            await agent.health.mend(cycle.session)
        # Only the standing lane polls, so only its cycles have seen through what the sensors handed over.
        if agent.settled is None or cycle.session != STANDING or not cycle.perceptions or cycle.faults:
            return
        strand, grace = self.lane(STANDING).strand, agent.steps["sense"].grace
        try:
            if strand.begin(_awaited(agent.settled), agent.clock.monotonic() + SETTLE_WITHIN) is WAITING:
                await strand.rest(SETTLE_WITHIN, grace)
        except asyncio.CancelledError:
            if strand.is_cancelled:
                raise
            error: BaseException = SparError("it cancelled itself")
        except ENDS_PROCESS:
            raise
        except BaseException as caught:
            if is_closing(caught, strand.task):
                raise
            error = caught
        else:
            return
        agent.report(cycle, Fault.of(error, part=agent.modules["sense"].name, phase="sense"), error, "continue")

    def _ended(self, lane: Lane, error: BaseException | None) -> None:
        agent = self._agent
        was_cut = bool(lane.stop_reason)
        lane.let_go()
        if error is not None and not isinstance(error, asyncio.CancelledError):
            self._broke(lane, error)
        elif error is not None and not was_cut and agent.state == "running":
            # Cancelled by nobody we know: the event loop is being shut down under us.
            agent.lifecycle.fail("its task was cancelled from outside")
        self.retire(lane)
        self.spawn(*list(self.lanes.values()))
        agent.lifecycle.settle()

    def _broke(self, lane: Lane, error: BaseException) -> None:
        """The loop itself failed, which no module can make it do: restart it, but not for ever."""
        agent = self._agent
        log.error("loop failed", agent=agent.name, session=lane.session, reason=repr(error))
        fault = Fault.of(error, part="loop")
        agent.events.publish(ErrorOccurred(cycle_id="", phase="loop", error=fault, policy="restart", exception=error))
        if self._restarts is None:
            self._restarts = Intensity(agent.settings.health.max_restarts, agent.settings.health.within)
        agent.health.count_restart("loop")
        if agent.state in ("running", "pausing") and not self._restarts.allow(agent.clock.monotonic()):
            often = f"more than {self._restarts.limit} times within {self._restarts.within:g} s"
            agent.lifecycle.fail(f"the loop failed {often}: {fault.message}")


async def _awaited(function: Callable[[], Awaitable[object]]) -> None:
    await function()
