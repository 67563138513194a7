"""States of an agent: the operations allowed in each, the allowed transitions, and their order.

Both are tables. This module starts, stops, pauses and resumes. The sessions run cycles (`spar.session.sessions`), the
lifespan opens and closes modules (`spar.agent.lifespan`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from spar.decisions.pause import Occasion, pause
from spar.errors import LifecycleError, SparError
from spar.events import StateChanged
from spar.facts import AgentPaused
from spar.failpoints import crashpoint
from spar.health.watchdog import Watched
from spar.loop.core import CalledOff, State, StopDeadline
from spar.ports.phases import OptionalActor
from spar.session.parts import SessionParts
from spar.session.sessions import Sessions

R = TypeVar("R")

#: The operations that each state allows. Others raise `LifecycleError` with this row as its hint.
LEGAL: dict[State, tuple[str, ...]] = {
    "created": ("start", "stop", "step", "submit"),
    "running": ("start", "pause", "resume", "stop", "submit"),
    "pausing": ("pause", "resume", "stop", "submit"),
    "paused": ("pause", "resume", "stop", "step", "submit"),
    "stopping": ("start", "stop"),
    "stopped": ("start", "stop", "step"),
    "failed": ("start", "stop"),
}
#: The states that may follow each state.
FOLLOWS: dict[State, tuple[State, ...]] = {
    "created": ("running",),
    "running": ("pausing", "stopping", "failed"),
    "pausing": ("paused", "running", "stopping", "failed"),
    "paused": ("running", "stopping"),
    "stopping": ("stopped",),
    "stopped": ("running",),
    "failed": ("running", "stopping"),
}
#: The operations that a stop cancels, since it would undo them, and the seconds that they have to finish before.
CANCELLED_BY_STOP, CANCELLED_AFTER = ("start", "exchange"), 2.0
#: Time limit (seconds) for async handlers to process the last events, once everything is closed.
HANDLERS_WITHIN = 1.0


class Lifecycle(SessionParts):
    """Agent in its states: what is allowed in each, and its transitions. The state itself is `core.state`, which any
    part may read.

    Attributes: failure: why the agent failed; gave_up_at: when it last failed (Unix time, 0: never); has_stepped:
    whether a step was run since the last stop; ends_pause: whether a stop ends the pause, as that of a program does and
    that of a service does not.
    """

    __slots__ = ("_deadline", "_has_started", "_is_held_over", "_is_paused", "_pause_task", "_stop_task", "ends_pause",
                 "failure", "gave_up_at", "has_stepped", "sessions", "watched")  # fmt: skip

    sessions: Sessions
    watched: Watched
    _deadline: StopDeadline

    def __init__(self) -> None:
        self.failure, self.has_stepped, self.gave_up_at = "", False, 0.0
        self._stop_task: asyncio.Task[None] | None = None
        self._is_paused = False  # as facts say
        #: The task that stores the pause.
        self._pause_task: asyncio.Task[None] | None = None
        self.ends_pause = True
        self._is_held_over = False  # it started paused, and was not resumed yet
        self._has_started = False

    async def open_all(self) -> None:
        """Open all parts and resume unfinished work, or leave everything closed."""
        raise NotImplementedError

    def close_chain(self) -> None:
        """End the chain of steps."""
        raise NotImplementedError

    async def close_all(self) -> None:
        """Close the parts that were opened."""
        raise NotImplementedError

    def demand(self, what: str, action: str | None = None) -> None:
        """Check that an operation is allowed now. Raises: LifecycleError."""
        legal = LEGAL[self.core.state]
        if what not in legal:
            raise LifecycleError(action or what, self.core.state, legal)

    @property
    def has_conversations(self) -> bool:
        """Return whether a message has made the parts that only messages need."""
        return "conversations" in self.__dict__

    def hold_questions(self, *, is_allowed: bool) -> None:
        """Let calls wait in their cycles for the answers of people, or let none wait any more."""
        actors = [self.setup.modules["act"], *(session.modules["act"] for session in self.sessions.by_key.values())]
        for actor in {id(actor): actor for actor in actors}.values():  # a session may have one that was replaced
            self.core.ask(actor, OptionalActor.hold_questions, is_allowed=is_allowed)

    def demand_open(self, what: str) -> None:
        """Check that work or a request can be accepted now. Raises: LifecycleError, NotReadyError."""
        self.demand("submit", what)
        self.recovery.demand_ready(what)

    def enter(self, state: State) -> None:
        """Change the state, start or stop timers and the watchdog accordingly, and publish the change."""
        core, old = self.core, self.core.state
        assert state in FOLLOWS[old], f"{old} -> {state}"
        core.state = state
        core.log.info("state changed", agent=core.name, old=old, new=state)
        if state in ("running", "pausing"):
            self.hold_questions(is_allowed=state == "running")
        if state == "running":
            self.runs.timers.resume()
            self.watched.begin()
        elif state != "pausing":
            self.runs.timers.suspend()
            if state in ("stopped", "failed"):
                self.watched.end()
        core.events.publish(StateChanged(old=old, new=state))
        self.requests.notify()

    def fail(self, why: str) -> None:
        """Enter the state `failed`: no cycle runs until the agent is started or stopped."""
        self.failure, self.gave_up_at = why, self.core.clock.now().timestamp()
        self.enter("failed")

    def bind(self) -> None:
        """Bind the agent to the running event loop. After a stop, or after its old loop has ended, it may be another
        one.

        Raises: RuntimeError if the agent's own loop still runs, in another thread.
        """
        if not self.requests.bind(is_at_rest=self.core.state in ("created", "stopped")):
            return
        self._stop_task = None
        if self.core.state not in ("created", "stopped", "failed"):
            self.sessions.revive()
            self.fail("its event loop ended")

    async def exclusively(self, work: Callable[[], Coroutine[Any, Any, R]], name: str) -> R:
        """Run an operation that must not overlap with another one (a start, a step, a resume).

        Raises: errors of the operation; LifecycleError if a stop cancelled it.
        """
        try:
            return await self.requests.exclusively(work, name)
        except CalledOff:
            raise LifecycleError(name, "stopping", LEGAL["stopping"]) from None

    # -- start

    async def start(self, *, resume: bool = False) -> None:
        """Open the modules, start the loop in the background, and return once it runs.

        With a memory, an agent whose last process ended while it was paused starts paused, and logs that.
        Args: resume: run even then.
        Idempotent while running. Inside a cycle or a handler it is a request and returns at once.
        Raises: LifecycleError when paused, or when a `stop` cancelled the start; errors of opening a module, after
        closing those that were opened: `start` can be called again.
        """
        self.demand("start")
        self.bind()
        if self.core.state != "running":
            work = partial(self._start, resume)
            await self.requests.unless_inside(self.exclusively(work, "start"), "start")

    async def _start(self, is_to_resume: bool) -> None:
        """Open all parts, then run, or start paused if the former process was paused."""
        if self.core.state in ("running", "pausing", "paused"):
            self.demand("start")
            return
        await self.open_all()
        self.failure = ""
        self.close_chain()
        self.sessions.forget_restarts()
        if since := self.agent_state.take_pause():
            self._is_paused = True
        self._decide("start" if is_to_resume or self._has_started else "first start")
        self._has_started = True
        if self._is_paused:
            self._start_paused(since)
        else:
            self._continue()

    def _start_paused(self, since: str) -> None:
        """Start paused, as the former process was, until the agent is resumed."""
        self._is_held_over = True
        reason = "it was paused when its process ended; go on with: spar resume, or spar run --resume"
        self.core.log.warning("still paused", agent=self.core.name, since=since, reason=reason)
        self.enter("running")
        self.enter("pausing")
        self.settle()  # no session runs yet

    async def run(self) -> None:
        """Start, and return when the agent has been stopped. Cancelling it stops the agent.

        Raises: SparError when the agent failed: its loop had to be restarted too often.
        """
        if not (self._is_held_over and self.core.state == "paused"):
            await self.start()
        await self.until_stopped()

    async def until_stopped(self) -> None:
        """Return when the agent has been stopped. Raises: SparError if it gave up."""
        try:
            while self.core.state not in ("stopped", "failed"):
                await self.requests.change()
        except asyncio.CancelledError:
            await asyncio.shield(asyncio.ensure_future(self.stop(self.core.settings.service.drain)))
            raise
        if self.core.state == "failed":
            raise SparError(f"agent {self.core.name!r} gave up: {self.failure}")

    # -- pause, resume

    async def pause(self) -> None:
        """Return when the current cycles have finished; no new one starts. Idempotent while paused.

        Raises: LifecycleError when the agent has not been started or is stopped. Inside a cycle it is a request.
        """
        self.demand("pause")
        self.request_pause()
        requests = self.requests
        if not requests.is_inside:
            while self.core.state == "pausing":
                await requests.change()
            await self._wait_for_stored_pause()

    def request_pause(self, *, outlives_process: bool = True) -> None:
        """Request a pause at the end of the current cycles, without waiting.

        Args: outlives_process: False if it has a reason that the next process sees by itself.
        """
        is_running = self.core.state == "running"
        if is_running:
            self.enter("pausing")
        if outlives_process and self.core.state in ("pausing", "paused"):
            self._decide("pause")
        if is_running:
            self.sessions.wake_all()
            self.settle()

    def _decide(self, occasion: Occasion) -> None:
        """Tell what follows for the pause, and store it in the background."""
        fact = pause(occasion, self.core.clock.now(), is_paused=self._is_paused)
        if fact is None:
            return
        self.core.ledger.tell(fact)
        self._is_paused = type(fact) is AgentPaused
        if self._pause_task is None or self._pause_task.done():
            self._pause_task = self.requests.in_background(self._write_pause(), "pause of")

    async def _write_pause(self) -> None:
        while self.agent_state.has_pause != self._is_paused:
            await self.agent_state.keep_pause(self.core.clock.now().isoformat() if self._is_paused else None)

    async def _wait_for_stored_pause(self) -> None:
        """Wait until the pause is stored as it is."""
        if self._pause_task is not None and not self._pause_task.done():
            await asyncio.wait([self._pause_task])

    async def follow_pause(self) -> None:
        """Pause or resume as another process of this agent has stored it. Raises: errors of the store."""
        state, task = self.agent_state, self._pause_task
        is_paused = await state.stored_pause()
        is_changing = self._pause_task is not task or (task is not None and not task.done())
        if is_changing or is_paused == self._is_paused or self.core.state not in ("running", "pausing", "paused"):
            return
        state.has_pause = self._is_paused = is_paused
        reason = "at another node"
        self.core.log.warning("paused" if is_paused else "resumed", agent=self.core.name, reason=reason)
        if is_paused:
            self.request_pause()
        elif self.core.state != "running":
            await self.resume()

    def settle(self) -> None:
        """Complete a requested pause once no session runs a cycle."""
        if self.core.state == "pausing" and self.sessions.is_quiet:
            self.enter("paused")

    async def resume(self) -> None:
        """Run cycles again. Idempotent while running. Raises: LifecycleError when the agent has not been started or is
        stopped."""
        self.demand("resume")
        if self.core.state == "pausing":
            self._decide("resume")
            self._continue()
        elif self.core.state == "paused":
            await self.requests.unless_inside(self.exclusively(self._resume, "resume"), "resume")
        if not self.requests.is_inside:
            await self._wait_for_stored_pause()

    async def _resume(self) -> None:
        """Resume, after a running step has ended."""
        self.demand("resume")
        if self.core.state == "paused":
            self.close_chain()
            self._decide("resume")
            self._continue()

    def resume_renewed(self) -> None:
        """Resume the agent, because the budget that it was paused for is renewed; any other pause continues."""
        self.requests.in_background(self.requests.exclusively(self._resume_renewed, "resume"), "renewed budget of")

    async def _resume_renewed(self) -> None:
        if not self._is_paused and self.core.state in ("pausing", "paused"):
            self.close_chain()
            self._continue()

    def _continue(self) -> None:
        """Enter the state `running` and start the sessions."""
        self._is_held_over = False
        self.enter("running")
        self.sessions.spawn_all()

    # -- stop

    async def stop(self, deadline: float | None = None) -> None:
        """Finish the current cycle, flush experiences, save state, close all modules at once, then the memory.

        Args: deadline: seconds until work that still runs (a hook, a cycle, the closing of a module) is cancelled;
        after a further grace it is left behind. A cycle cancelled so is recorded as interrupted. None: each step has
        its own limit.
        A second stop with an earlier deadline shortens the first.
        Idempotent. Awaited inside a cycle or a handler it is a request and returns at once.
        Raises: ValueError for a deadline below 0.
        """
        if deadline is not None and not deadline >= 0:
            raise ValueError(f"deadline must be seconds >= 0, found {deadline!r}")
        self.bind()
        if deadline is not None:
            self._deadline.at = min(self._deadline.at, self.core.clock.monotonic() + deadline)
            self.requests.notify()
        stopping = self.request_stop()
        if not self.requests.is_inside:
            await asyncio.shield(stopping)

    def request_stop(self) -> asyncio.Task[None]:
        """Request a stop without waiting; return its task."""
        if self._stop_task is None or self._stop_task.done():
            self._stop_task = self.requests.in_background(self._stop(), "stop")
        return self._stop_task

    async def _stop(self) -> None:
        """Stop in order: end the cycles, call the hooks, save the state, close all parts. Each step is bounded by the
        deadline."""
        requests = self.requests
        try:
            await self._wait_for_exclusive()
            requests.exclusive = asyncio.current_task()
            is_started = self.core.state not in ("created", "stopped")
            if is_started:
                self.enter("stopping")
            elif not self.has_stepped:
                self.core.events.close()
                return
            try:
                self.sessions.wake_all()
                if is_started:
                    await self._deadline.in_time(self.reports.ask("service_stop", self), "hooks at service_stop")
                crashpoint("shutdown.drain")
                await self._drain()
                self.close_chain()
                self.recovery.end()
                self.sessions.end()
                if self.has_conversations:
                    await self._deadline.in_time(self.conversations.hooks.end_all(), "hooks at session_end")
                self._decide("end" if self.ends_pause and self.core.shared is None else "end of a service")
                await self._deadline.in_time(self._wait_for_stored_pause(), "the pause on disk")
                await self._deadline.in_time(self.agent_state.flush(), "the store's flush")
                await self._deadline.in_time(self.agent_state.save(), "saving")
                await self.close_all()
            finally:
                if self.core.state == "stopping":
                    self.enter("stopped")
            self.has_stepped = self._is_held_over = False
            await self._deadline.in_time(self.core.events.drain(), "handlers", HANDLERS_WITHIN)
            self.core.events.close()
        finally:
            self._deadline.at = float("inf")
            if requests.exclusive is asyncio.current_task():
                requests.exclusive = None
            requests.notify()

    async def _wait_for_exclusive(self) -> None:
        """Wait until no start and no step runs. At the deadline of the stop, cancel it.

        A start, or an exchange of modules, is cancelled after a short time, since the stop would undo it.
        """
        requests, clock = self.requests, self.core.clock
        began = clock.monotonic()
        while (task := requests.exclusive) is not None:
            is_undone = task.get_name().partition(" ")[0] in CANCELLED_BY_STOP
            left = min(self._deadline.at, began + CANCELLED_AFTER if is_undone else float("inf")) - clock.monotonic()
            if left <= 0 and not task.cancelling():
                task.cancel()
            await requests.change(left if left > 0 else None)

    async def _drain(self) -> None:
        """Wait for the current cycles, cancel them at the deadline, and leave behind those that ignore that."""
        grace = self._deadline.grace()
        for action, more in ((None, 0.0), ("cut", grace), ("abandon", 2 * grace)):
            for session in list(self.sessions.by_key.values()):
                if session.runner.task is not None and action == "cut":
                    session.cancel_phase(session.stop_reason or "stop")
                elif session.runner.task is not None and action == "abandon":
                    session.runner.abandon()
            while not self.sessions.is_quiet:
                left = self._deadline.at + more - self.core.clock.monotonic()
                if left <= 0:
                    break
                await self.requests.change(left)
