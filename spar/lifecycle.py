"""The states of an agent: what may be asked in which, which may follow which, and how it comes from one to the next.

Both are tables. Starting, stopping, pausing and resuming are here; what they set going is the sessions' business
(`spar.sessions`), what they open and close is the assembly's (`spar.assembly`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from spar.core import State
from spar.crash import crashpoint
from spar.errors import LifecycleError, SparError
from spar.events import StateChanged
from spar.logs import get_logger
from spar.requests import CalledOff
from spar.watcher import LoopWatcher, watcher

if TYPE_CHECKING:
    from spar.agent import Agent

log = get_logger("spar.agent")
R = TypeVar("R")

#: What an agent may be asked in each state. What is not here raises `LifecycleError` with this row as its hint.
LEGAL: dict[State, tuple[str, ...]] = {
    "created": ("start", "stop", "step", "submit"),
    "running": ("start", "pause", "resume", "stop", "submit"),
    "pausing": ("pause", "resume", "stop", "submit"),
    "paused": ("pause", "resume", "stop", "step", "submit"),
    "stopping": ("start", "stop"),
    "stopped": ("start", "stop", "step"),
    "failed": ("start", "stop"),
}
#: Which state may follow which.
FOLLOWS: dict[State, tuple[State, ...]] = {
    "created": ("running",),
    "running": ("pausing", "stopping", "failed"),
    "pausing": ("paused", "running", "stopping", "failed"),
    "paused": ("running", "stopping"),
    "stopping": ("stopped",),
    "stopped": ("running",),
    "failed": ("running", "stopping"),
}
#: What a stop calls off, as it would only be undone again, and the seconds that it has to be done before that.
CALLED_OFF, CALLED_OFF_AFTER = ("start", "exchange"), 2.0
#: Seconds that async handlers have, once everything is closed, to see what was published.
HANDLERS_WITHIN = 1.0


class Lifecycle:
    """The transitions of one agent; its state itself is `agent.state`, which anybody may read."""

    __slots__ = ("_agent", "_is_held_over", "_pause_task", "_pause_wanted", "_stop_task", "_watch",
                 "ends_pause", "stop_by")  # fmt: skip

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        #: When a stop that is being made has to be over (monotonic seconds); another stop may bring it forward.
        self.stop_by = float("inf")
        self._stop_task: asyncio.Task[None] | None = None
        #: Whether the pause on disk should be there, and the task that sees to it.
        self._pause_wanted = False
        self._pause_task: asyncio.Task[None] | None = None
        self.ends_pause = True  # a program that stops its agent ends its pause; that a service is stopped does not
        self._is_held_over = False  # it came back paused, and nobody has resumed it yet
        self._watch: LoopWatcher | None = None

    def demand(self, what: str, action: str | None = None) -> None:
        """Raises: LifecycleError when this cannot be asked now."""
        legal = LEGAL[self._agent.state]
        if what not in legal:
            raise LifecycleError(action or what, self._agent.state, legal)

    def enter(self, state: State) -> None:
        agent, old = self._agent, self._agent.state
        assert state in FOLLOWS[old], f"{old} -> {state}"
        agent.core.state = state
        log.info("state changed", agent=agent.name, old=old, new=state)
        if state == "running":
            agent.runs.resume()
        elif state != "pausing":
            agent.runs.suspend()
        if state == "running":
            self._begin_watch()
        elif state in ("stopped", "failed"):
            self._end_watch()
        agent.events.publish(StateChanged(old=old, new=state))
        agent.requests.notify()

    def fail(self, why: str) -> None:
        """Give up: nothing turns any more until somebody starts or stops the agent."""
        self._agent.failure = why
        self.enter("failed")

    def bind(self) -> None:
        """Belong to the event loop that runs now; after a stop, or when its old one has ended, it may be another.

        Raises: RuntimeError when the agent's own loop still runs, in another thread.
        """
        agent = self._agent
        if not agent.requests.bind(is_at_rest=agent.state in ("created", "stopped")):
            return
        self._stop_task = None
        if agent.state not in ("created", "stopped", "failed"):
            agent.sessions.revive()
            self.fail("its event loop ended")

    async def exclusively(self, work: Callable[[], Coroutine[Any, Any, R]], name: str) -> R:
        """Do what must not overlap with its like (a start, a step, a resume).

        Raises: what the work raises; LifecycleError when a stop called it off.
        """
        try:
            return await self._agent.requests.exclusively(work, name)
        except CalledOff:
            raise LifecycleError(name, "stopping", LEGAL["stopping"]) from None

    # -- start

    async def start(self, *, resume: bool = False) -> None:
        self.demand("start")
        self.bind()
        if self._agent.state != "running":
            work = partial(self._start, resume)
            await self._agent.requests.unless_inside(self.exclusively(work, "start"), "start")

    async def _start(self, is_to_resume: bool) -> None:
        agent = self._agent
        if agent.state in ("running", "pausing", "paused"):
            self.demand("start")
            return
        try:
            await agent.assembly.open()
            await agent.recovery.begin()
            await agent.reports.ask("service_start", agent)
        except BaseException:
            agent.recovery.end()
            await agent.assembly.close()
            raise
        agent.failure = ""
        agent.stepping.close_chain()
        agent.sessions.begin_anew()
        since = agent.keeping.take_pause()
        if since and not is_to_resume:
            self._come_back(since)
        else:
            self._go_on()

    def _come_back(self, since: str) -> None:
        """Be paused as the process before was, until somebody resumes."""
        self._is_held_over = self._pause_wanted = True
        reason = "it was paused when its process ended; go on with: spar resume, or spar run --resume"
        log.warning("still paused", agent=self._agent.name, since=since, reason=reason)
        self.enter("running")
        self.enter("pausing")
        self.settle()  # nothing turns yet

    async def run(self) -> None:
        agent = self._agent
        if not (self._is_held_over and agent.state == "paused"):
            await self.start()
        try:
            while agent.state not in ("stopped", "failed"):
                await agent.requests.change()
        except asyncio.CancelledError:
            await asyncio.shield(asyncio.ensure_future(self.stop(agent.settings.service.drain)))
            raise
        if agent.state == "failed":
            raise SparError(f"agent {agent.name!r} gave up: {agent.failure}")

    # -- pause, resume

    async def pause(self) -> None:
        self.demand("pause")
        self.request_pause()
        requests = self._agent.requests
        if not requests.is_inside:
            while self._agent.state == "pausing":
                await requests.change()
            await self._pause_kept()

    def request_pause(self) -> None:
        """Ask for a pause at the end of the cycles in hand, without waiting."""
        if self._agent.state == "running":
            self.enter("pausing")
            self._keep_pause(is_paused=True)
            self._agent.sessions.wake_all()
            self.settle()

    def _keep_pause(self, *, is_paused: bool) -> None:
        """See to it that the pause is on disk, or is not any more."""
        self._pause_wanted = is_paused
        if (self._pause_task is None or self._pause_task.done()) and self._agent.keeping.has_pause != is_paused:
            self._pause_task = self._agent.requests.in_background(self._write_pause(), "pause of")

    async def _write_pause(self) -> None:
        keeping = self._agent.keeping
        while keeping.has_pause != self._pause_wanted:
            await keeping.keep_pause(self._agent.clock.now().isoformat() if self._pause_wanted else None)

    async def _pause_kept(self) -> None:
        """Wait until the disk says what was asked last."""
        if self._pause_task is not None and not self._pause_task.done():
            await asyncio.wait([self._pause_task])

    def settle(self) -> None:
        """Once no lane turns any more, a pause that was asked for has come."""
        if self._agent.state == "pausing" and self._agent.sessions.is_quiet:
            self.enter("paused")
        self._agent.requests.notify()

    async def resume(self) -> None:
        self.demand("resume")
        if self._agent.state == "pausing":
            self._go_on()
        elif self._agent.state == "paused":
            await self._agent.requests.unless_inside(self.exclusively(self._resume, "resume"), "resume")
        if not self._agent.requests.is_inside:
            await self._pause_kept()

    async def _resume(self) -> None:
        """Once a step that is being made has ended."""
        self.demand("resume")
        if self._agent.state == "paused":
            self._agent.stepping.close_chain()
            self._go_on()

    def _go_on(self) -> None:
        self._is_held_over = False
        self._keep_pause(is_paused=False)
        self.enter("running")
        self._agent.sessions.spawn_all()

    # -- stop

    async def stop(self, deadline: float | None) -> None:
        if deadline is not None and not deadline >= 0:
            raise ValueError(f"deadline must be seconds >= 0, found {deadline!r}")
        self.bind()
        agent = self._agent
        if deadline is not None:
            self.stop_by = min(self.stop_by, agent.clock.monotonic() + deadline)
            agent.requests.notify()
        stopping = self.request_stop()
        if not agent.requests.is_inside:
            await asyncio.shield(stopping)

    def request_stop(self) -> asyncio.Task[None]:
        """Ask for a stop without waiting; the task that makes it."""
        if self._stop_task is None or self._stop_task.done():
            self._stop_task = self._agent.requests.in_background(self._stop(), "stop")
        return self._stop_task

    async def _stop(self) -> None:
        agent, requests = self._agent, self._agent.requests
        try:
            await self._outwait()
            requests.exclusive = asyncio.current_task()
            is_to_be_told = agent.state not in ("created", "stopped")
            if is_to_be_told:
                self.enter("stopping")
            elif not agent.stepping.has_stepped:
                agent.events.close()
                return
            try:
                agent.sessions.wake_all()
                if is_to_be_told:
                    await self.in_time(agent.reports.ask("service_stop", agent), "hooks at service_stop")
                crashpoint("shutdown.drain")
                await self._drain()
                agent.stepping.close_chain()
                agent.recovery.end()
                await self.in_time(agent.sessions.see_off(), "hooks at session_end")
                if self.ends_pause:
                    self._keep_pause(is_paused=False)
                await self.in_time(self._pause_kept(), "the pause on disk")
                await self.in_time(agent.keeping.flush(), "the store's flush")
                await self.in_time(agent.keeping.save(), "saving")
                await agent.assembly.close()
            finally:
                if agent.state == "stopping":
                    self.enter("stopped")
            agent.stepping.has_stepped = self._is_held_over = False
            await self.in_time(agent.events.drain(), "handlers", HANDLERS_WITHIN)
            agent.events.close()
        finally:
            self.stop_by = float("inf")
            if requests.exclusive is asyncio.current_task():
                requests.exclusive = None
            requests.notify()

    async def _outwait(self) -> None:
        """Wait until no start and no step is being made; what is not done by the deadline of a stop is cancelled.

        A start, or an exchange of modules, has a moment to come to its end by itself: then it is called off.
        """
        requests, clock = self._agent.requests, self._agent.clock
        asked = clock.monotonic()
        while (task := requests.exclusive) is not None:
            is_undone = task.get_name().partition(" ")[0] in CALLED_OFF
            left = min(self.stop_by, asked + CALLED_OFF_AFTER if is_undone else float("inf")) - clock.monotonic()
            if left <= 0 and not task.cancelling():
                task.cancel()
            await requests.change(left if left > 0 else None)

    async def _drain(self) -> None:
        """Wait for the cycles in hand, cancel what is not done by the deadline, leave what ignores that."""
        agent, grace = self._agent, self.grace
        for answer, more in ((None, 0.0), ("cut", grace), ("abandon", 2 * grace)):
            for lane in list(agent.lanes.values()):
                if lane.strand.task is not None and answer == "cut":
                    lane.cut(lane.stop_reason or "stop")
                elif lane.strand.task is not None and answer == "abandon":
                    lane.strand.abandon()
            while not agent.sessions.is_quiet:
                left = self.stop_by + more - agent.clock.monotonic()
                if left <= 0:
                    break
                await agent.requests.change(left)

    async def in_time(self, work: Coroutine[Any, Any, object], what: str, within: float = float("inf")) -> None:
        """Do one step of a stop, which has its own bounds, no longer than the stop itself may take.

        What is not done by then is cancelled, and left behind when it ignores that; either is said.
        Args: within: seconds that it may take in any case.
        """
        task = self._agent.requests.in_background(work, f"{what} of")
        late = await self.wait_for([task], within)
        if late:
            log.warning("not done in time for the stop", agent=self._agent.name, part=what,
                        is_left_behind=not task.done())  # fmt: skip

    async def wait_for(self, tasks: Iterable[asyncio.Task[Any]], within: float) -> set[asyncio.Task[Any]]:
        """Wait for tasks as long as a stop allows it, at most `within` seconds; what is late is cancelled.

        A step has a grace from the deadline of the stop on, or from its own beginning where that is later: one half of
        it to be done, the other half to see to its cancellation.
        Returns: the tasks that were cancelled; those of them that are not done are left behind.
        """
        clock, pending = self._agent.clock, [task for task in tasks if not task.done()]
        began = clock.monotonic()
        await self._wait(pending, lambda: min(began + within, max(self.stop_by, began) + self.grace / 2))
        late = {task for task in pending if not task.done()}
        for task in late:
            task.cancel()
        if late:
            end = clock.monotonic() + self.grace / 2
            await self._wait(list(late), lambda: end)
        return late

    async def _wait(self, tasks: Sequence[asyncio.Task[Any]], until: Callable[[], float]) -> None:
        """Wait until tasks are done, at most until a time (monotonic seconds) that may be brought forward meanwhile."""
        requests = self._agent.requests
        for task in tasks:
            task.add_done_callback(lambda _: requests.notify())
        while any(not task.done() for task in tasks):
            left = until() - self._agent.clock.monotonic()
            if left <= 0:
                break
            await requests.change(left)

    @property
    def grace(self) -> float:
        """Seconds from the deadline of a stop until what is not done is left behind."""
        return max(step.grace for step in self._agent.steps.values())

    # -- inside

    def _begin_watch(self) -> None:
        if self._agent.clock.is_virtual:
            self._watch = self._watch or LoopWatcher(self._agent)
        else:
            watcher.add(self._agent)

    def _end_watch(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None
        watcher.remove(self._agent)
