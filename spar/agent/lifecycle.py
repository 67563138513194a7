"""The states of an agent: what may be asked in which, which may follow which, and how it comes from one to the next.

Both are tables. Starting, stopping, pausing and resuming are here; what they set going is the sessions' business
(`spar.session.sessions`), what they open and close is the lifespan's (`spar.agent.lifespan`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Protocol, TypeVar

from spar.agent.stop_deadline import StopDeadline
from spar.errors import LifecycleError, SparError
from spar.events import StateChanged
from spar.failpoints import crashpoint
from spar.health.watchdog import AgentWatch
from spar.loop.core import State
from spar.loop.tasks import CalledOff
from spar.session.parts import SessionParts
from spar.session.sessions import Sessions

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


class Actions(Protocol):
    """The work of an agent that its transitions set going."""

    async def open_all(self) -> None:
        """Open what an agent is put together from and take up what is there, or leave all as it was."""

    async def ask_hooks(self, point: str) -> None:
        """Ask the hooks at a point that is about the agent itself."""

    def close_chain(self) -> None:
        """End the chain of steps."""

    def hand_out_no_more(self) -> None:
        """Hand out no more of the work that the journal keeps."""

    async def close_all(self) -> None:
        """Close what was opened."""


class Lifecycle:
    """The transitions of one agent; its state itself is `core.state`, which anybody may read.

    Attributes: failure: why it gave up; gave_up_at: when it last did (Unix time, 0: never); has_stepped: whether a step
    was made since the last stop.
    """

    __slots__ = ("_actions", "_agent_state", "_core", "_deadline", "_is_held_over", "_pause_task",
                 "_pause_wanted", "_requests", "_run_timers", "_session_hooks", "_sessions", "_stop_task", "_watch",
                 "ends_pause", "failure", "gave_up_at", "has_stepped")  # fmt: skip

    def __init__(self, parts: SessionParts, deadline: StopDeadline, sessions: Sessions, watch: AgentWatch,
                 actions: Actions) -> None:  # fmt: skip
        self._core, self._requests, self._run_timers = parts.core, parts.requests, parts.runs.timers
        self._agent_state, self._session_hooks = parts.agent_state, parts.session_hooks
        self._sessions, self._watch = sessions, watch
        self._deadline, self._actions = deadline, actions
        self.failure, self.has_stepped, self.gave_up_at = "", False, 0.0
        self._stop_task: asyncio.Task[None] | None = None
        #: Whether the pause on disk should be there, and the task that sees to it.
        self._pause_wanted = False
        self._pause_task: asyncio.Task[None] | None = None
        self.ends_pause = True  # a program that stops its agent ends its pause; that a service is stopped does not
        self._is_held_over = False  # it came back paused, and nobody has resumed it yet

    def demand(self, what: str, action: str | None = None) -> None:
        """Raises: LifecycleError when this cannot be asked now."""
        legal = LEGAL[self._core.state]
        if what not in legal:
            raise LifecycleError(action or what, self._core.state, legal)

    def enter(self, state: State) -> None:
        core, old = self._core, self._core.state
        assert state in FOLLOWS[old], f"{old} -> {state}"
        core.state = state
        self._core.log.info("state changed", agent=self._core.name, old=old, new=state)
        if state == "running":
            self._run_timers.resume()
            self._watch.begin()
        elif state != "pausing":
            self._run_timers.suspend()
            if state in ("stopped", "failed"):
                self._watch.end()
        self._core.events.publish(StateChanged(old=old, new=state))
        self._requests.notify()

    def fail(self, why: str) -> None:
        """Give up: nothing turns any more until somebody starts or stops the agent."""
        self.failure, self.gave_up_at = why, self._core.clock.now().timestamp()
        self.enter("failed")

    def bind(self) -> None:
        """Belong to the event loop that runs now; after a stop, or when its old one has ended, it may be another.

        Raises: RuntimeError when the agent's own loop still runs, in another thread.
        """
        if not self._requests.bind(is_at_rest=self._core.state in ("created", "stopped")):
            return
        self._stop_task = None
        if self._core.state not in ("created", "stopped", "failed"):
            self._sessions.revive()
            self.fail("its event loop ended")

    async def exclusively(self, work: Callable[[], Coroutine[Any, Any, R]], name: str) -> R:
        """Do what must not overlap with its like (a start, a step, a resume).

        Raises: what the work raises; LifecycleError when a stop called it off.
        """
        try:
            return await self._requests.exclusively(work, name)
        except CalledOff:
            raise LifecycleError(name, "stopping", LEGAL["stopping"]) from None

    # -- start

    async def start(self, *, resume: bool = False) -> None:
        self.demand("start")
        self.bind()
        if self._core.state != "running":
            work = partial(self._start, resume)
            await self._requests.unless_inside(self.exclusively(work, "start"), "start")

    async def _start(self, is_to_resume: bool) -> None:
        if self._core.state in ("running", "pausing", "paused"):
            self.demand("start")
            return
        await self._actions.open_all()
        self.failure = ""
        self._actions.close_chain()
        self._sessions.begin_anew()
        since = self._agent_state.take_pause()
        if since and not is_to_resume:
            self._come_back(since)
        else:
            self._go_on()

    def _come_back(self, since: str) -> None:
        """Be paused as the process before was, until somebody resumes."""
        self._is_held_over = self._pause_wanted = True
        reason = "it was paused when its process ended; go on with: spar resume, or spar run --resume"
        self._core.log.warning("still paused", agent=self._core.name, since=since, reason=reason)
        self.enter("running")
        self.enter("pausing")
        self.settle()  # nothing turns yet

    async def run(self) -> None:
        if not (self._is_held_over and self._core.state == "paused"):
            await self.start()
        try:
            while self._core.state not in ("stopped", "failed"):
                await self._requests.change()
        except asyncio.CancelledError:
            await asyncio.shield(asyncio.ensure_future(self.stop(self._core.settings.service.drain)))
            raise
        if self._core.state == "failed":
            raise SparError(f"agent {self._core.name!r} gave up: {self.failure}")

    # -- pause, resume

    async def pause(self) -> None:
        self.demand("pause")
        self.request_pause()
        requests = self._requests
        if not requests.is_inside:
            while self._core.state == "pausing":
                await requests.change()
            await self._pause_kept()

    def request_pause(self) -> None:
        """Ask for a pause at the end of the cycles in hand, without waiting."""
        if self._core.state == "running":
            self.enter("pausing")
            self._keep_pause(is_paused=True)
            self._sessions.wake_all()
            self.settle()

    def _keep_pause(self, *, is_paused: bool) -> None:
        """See to it that the pause is on disk, or is not any more."""
        self._pause_wanted = is_paused
        if (self._pause_task is None or self._pause_task.done()) and self._agent_state.has_pause != is_paused:
            self._pause_task = self._requests.in_background(self._write_pause(), "pause of")

    async def _write_pause(self) -> None:
        agent_state = self._agent_state
        while agent_state.has_pause != self._pause_wanted:
            await agent_state.keep_pause(self._core.clock.now().isoformat() if self._pause_wanted else None)

    async def _pause_kept(self) -> None:
        """Wait until the disk says what was asked last."""
        if self._pause_task is not None and not self._pause_task.done():
            await asyncio.wait([self._pause_task])

    def settle(self) -> None:
        """Once no session turns any more, a pause that was asked for has come."""
        if self._core.state == "pausing" and self._sessions.is_quiet:
            self.enter("paused")
        self._requests.notify()

    async def resume(self) -> None:
        self.demand("resume")
        if self._core.state == "pausing":
            self._go_on()
        elif self._core.state == "paused":
            await self._requests.unless_inside(self.exclusively(self._resume, "resume"), "resume")
        if not self._requests.is_inside:
            await self._pause_kept()

    async def _resume(self) -> None:
        """Once a step that is being made has ended."""
        self.demand("resume")
        if self._core.state == "paused":
            self._actions.close_chain()
            self._go_on()

    def _go_on(self) -> None:
        self._is_held_over = False
        self._keep_pause(is_paused=False)
        self.enter("running")
        self._sessions.spawn_all()

    # -- stop

    async def stop(self, deadline: float | None) -> None:
        if deadline is not None and not deadline >= 0:
            raise ValueError(f"deadline must be seconds >= 0, found {deadline!r}")
        self.bind()
        if deadline is not None:
            self._deadline.at = min(self._deadline.at, self._core.clock.monotonic() + deadline)
            self._requests.notify()
        stopping = self.request_stop()
        if not self._requests.is_inside:
            await asyncio.shield(stopping)

    def request_stop(self) -> asyncio.Task[None]:
        """Ask for a stop without waiting; the task that makes it."""
        if self._stop_task is None or self._stop_task.done():
            self._stop_task = self._requests.in_background(self._stop(), "stop")
        return self._stop_task

    async def _stop(self) -> None:
        requests = self._requests
        try:
            await self._outwait()
            requests.exclusive = asyncio.current_task()
            is_to_be_told = self._core.state not in ("created", "stopped")
            if is_to_be_told:
                self.enter("stopping")
            elif not self.has_stepped:
                self._core.events.close()
                return
            try:
                self._sessions.wake_all()
                if is_to_be_told:
                    await self._deadline.in_time(self._actions.ask_hooks("service_stop"), "hooks at service_stop")
                crashpoint("shutdown.drain")
                await self._drain()
                self._actions.close_chain()
                self._actions.hand_out_no_more()
                self._sessions.end()
                await self._deadline.in_time(self._session_hooks.see_off(), "hooks at session_end")
                if self.ends_pause:
                    self._keep_pause(is_paused=False)
                await self._deadline.in_time(self._pause_kept(), "the pause on disk")
                await self._deadline.in_time(self._agent_state.flush(), "the store's flush")
                await self._deadline.in_time(self._agent_state.save(), "saving")
                await self._actions.close_all()
            finally:
                if self._core.state == "stopping":
                    self.enter("stopped")
            self.has_stepped = self._is_held_over = False
            await self._deadline.in_time(self._core.events.drain(), "handlers", HANDLERS_WITHIN)
            self._core.events.close()
        finally:
            self._deadline.at = float("inf")
            if requests.exclusive is asyncio.current_task():
                requests.exclusive = None
            requests.notify()

    async def _outwait(self) -> None:
        """Wait until no start and no step is being made; what is not done by the deadline of a stop is cancelled.

        A start, or an exchange of modules, has a moment to come to its end by itself: then it is called off.
        """
        requests, clock = self._requests, self._core.clock
        asked = clock.monotonic()
        while (task := requests.exclusive) is not None:
            is_undone = task.get_name().partition(" ")[0] in CALLED_OFF
            left = min(self._deadline.at, asked + CALLED_OFF_AFTER if is_undone else float("inf")) - clock.monotonic()
            if left <= 0 and not task.cancelling():
                task.cancel()
            await requests.change(left if left > 0 else None)

    async def _drain(self) -> None:
        """Wait for the cycles in hand, cancel what is not done by the deadline, leave what ignores that."""
        grace = self._deadline.grace
        for answer, more in ((None, 0.0), ("cut", grace), ("abandon", 2 * grace)):
            for session in list(self._sessions.by_key.values()):
                if session.runner.task is not None and answer == "cut":
                    session.cut(session.stop_reason or "stop")
                elif session.runner.task is not None and answer == "abandon":
                    session.runner.abandon()
            while not self._sessions.is_quiet:
                left = self._deadline.at + more - self._core.clock.monotonic()
                if left <= 0:
                    break
                await self._requests.change(left)
