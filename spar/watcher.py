"""Sees of an agent what its loop cannot tell, because it does not run.

The watcher shares no thread with the work: it reads a few plain attributes of each agent and finds a phase `stuck`
past its deadline, a loop `stalled` between cycles, an event loop that is `blocked` and the stack that blocks it. It
decides nothing and repairs nothing: alerts are opened in the agent's own thread (`spar.health`), as soon as that
answers; what blocks it is logged and can be read at once (`agent.blocked_by`).
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct

from spar.clock import Timer
from spar.logs import get_logger
from spar.pacing import expected_interval

if TYPE_CHECKING:
    from spar.agent import Agent
    from spar.health import Kind

log = get_logger("spar.watcher")

#: `stalled` is no cycle for this many expected intervals, and never less than so many seconds.
STALL_FACTOR, NEVER_STALLED = 3.0, 5.0
#: How often the watcher looks (seconds).
LOOK_EVERY = 0.25


class Finding(Struct, frozen=True):
    """Something the watcher saw."""

    kind: Kind
    message: str
    cycle_id: str = ""


def look(agent: Agent, now: float) -> list[Finding]:
    """What is wrong with an agent at `now` (monotonic), from the outside; reads only, from any thread."""
    found: list[Finding] = []
    if agent.state not in ("running", "pausing", "stopping"):
        return found
    interval = expected_interval(agent.pace)
    limit = agent.health.limits.stalled_after
    for lane in list(agent.lanes.values()):
        cycle, deadline = lane.cycle, lane.strand.deadline
        if cycle is not None and now > deadline + agent.steps[cycle.phase].grace + LOOK_EVERY:
            found.append(Finding("stuck", f"{cycle.phase} is {now - deadline:.1f} s past its deadline", cycle.id))
        elif agent.state == "running" and lane.is_standing and interval is not None:
            if limit == "auto":
                # A cycle in hand has its phases' deadlines; how long it may take is theirs to say.
                longest = float("inf") if cycle is not None else max(NEVER_STALLED, STALL_FACTOR * interval)
            else:
                longest = float(limit)
            if now - max(lane.last_completed, lane.rests_until or 0.0) > longest:
                late = f"no cycle completed for {now - lane.last_completed:.1f} s, expected every {interval:.3g} s"
                found.append(Finding("stalled", late))
    return found


def confirm(agent: Agent, finding: Finding) -> None:
    """Open the alert for what was seen from outside, if it is still so once the loop can tell."""
    seen = [(now.kind, now.cycle_id) for now in look(agent, agent.clock.monotonic())]
    if (finding.kind, finding.cycle_id) in seen:
        agent.health.alert(finding.kind, finding.message, cycle_id=finding.cycle_id)


class Watcher:
    """Looks at every running agent of the process from a thread of its own; one thread for all of them."""

    def __init__(self) -> None:
        self._agents: weakref.WeakSet[Agent] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._wake = threading.Event()
        self._beats: dict[asyncio.AbstractEventLoop, _Beat] = {}

    def add(self, agent: Agent) -> None:
        with self._lock:
            self._agents.add(agent)
            loop = asyncio.get_running_loop()
            if loop not in self._beats:
                self._beats[loop] = _Beat(loop, threading.get_ident())
            if self._thread is None or not self._thread.is_alive():
                self._wake.clear()
                self._thread = threading.Thread(target=self._watch, name="spar watcher", daemon=True)
                self._thread.start()

    def remove(self, agent: Agent) -> None:
        """Watch an agent no more; called from its own loop, which evidently is not blocked."""
        with self._lock:
            self._agents.discard(agent)
            self._forget_unused()
            agent.blocked_by, agent.blocked_since = "", None
            if not self._agents:
                self._wake.set()
        agent.health.recovered("blocked")

    def _forget_unused(self) -> None:
        for agent in [agent for agent in self._agents if agent.event_loop is None or agent.event_loop.is_closed()]:
            self._agents.discard(agent)  # its loop ended without stopping it
        used = {agent.event_loop for agent in self._agents}
        self._beats = {loop: beat for loop, beat in self._beats.items() if loop in used}

    def _watch(self) -> None:
        while True:
            self._wake.wait(LOOK_EVERY)
            with self._lock:
                self._wake.clear()
                self._forget_unused()
                if not self._agents:
                    self._thread = None
                    return
                self._look_around()

    def _look_around(self) -> None:
        """One look at everybody. In a method of its own: while it waits, the thread holds no agent."""
        agents = list(self._agents)
        for beat in self._beats.values():
            self._listen(beat, [agent for agent in agents if agent.event_loop is beat.loop])
        now = time.monotonic()
        for agent in agents:
            for finding in look(agent, now):
                if finding.kind not in agent.health.alerts:
                    _call(agent, partial(confirm, agent, finding))

    def _listen(self, beat: _Beat, agents: list[Agent]) -> None:
        """Has the loop answered? If not, its thread's stack is what blocks it."""
        late = beat.late()
        limit = min((agent.health.limits.blocked_after for agent in agents), default=float("inf"))
        if late > limit and not beat.is_blocked:
            beat.is_blocked, stack = True, stack_of(beat.thread_id)
            message = f"the event loop has been blocked for {late:.1f} s by:\n{stack}"
            for agent in agents:
                agent.blocked_by, agent.blocked_since = stack, time.monotonic() - late
                log.error("event loop blocked", agent=agent.name, seconds=round(late, 2), stack=stack)
                _call(agent, partial(agent.health.alert, "blocked", message, severity="critical"))
        elif beat.is_blocked and late < limit / 2:
            beat.is_blocked = False
            for agent in agents:
                agent.blocked_by, agent.blocked_since = "", None
                _call(agent, partial(agent.health.recovered, "blocked"))


class _Beat:
    """A question put to an event loop again and again; how long it has gone unanswered."""

    __slots__ = ("asked", "is_blocked", "loop", "thread_id")

    def __init__(self, loop: asyncio.AbstractEventLoop, thread_id: int) -> None:
        self.loop, self.thread_id = loop, thread_id
        self.asked: float | None = None
        self.is_blocked = False

    def late(self) -> float:
        """Seconds since the unanswered question was put; asks again when it was answered."""
        now = time.monotonic()
        if self.asked is None:
            self.asked = now
            try:
                self.loop.call_soon_threadsafe(self._answer)
            except RuntimeError:  # the loop is closed: nothing to watch
                self.asked = None
            return 0.0
        return now - self.asked

    def _answer(self) -> None:
        self.asked = None


class LoopWatcher:
    """The same look on a virtual clock, where no thread can tell the time: called back by the loop itself."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._timer: Timer | None = None
        self._arm()

    def _arm(self) -> None:
        clock = self._agent.clock
        self._timer = clock.call_at(clock.monotonic() + LOOK_EVERY * 4, self._look)

    def _look(self) -> None:
        for finding in look(self._agent, self._agent.clock.monotonic()):
            self._agent.health.alert(finding.kind, finding.message, cycle_id=finding.cycle_id)
        self._arm()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


def stack_of(thread_id: int) -> str:
    """The stack of a thread as text, innermost last; empty if it is gone."""
    frame = sys._current_frames().get(thread_id)
    return "".join(traceback.format_stack(frame)[-12:]).rstrip() if frame is not None else ""


def _call(agent: Agent, function: Callable[[], object]) -> None:
    loop = agent.event_loop
    if loop is not None:
        try:
            loop.call_soon_threadsafe(function)
        except RuntimeError:
            pass  # closed meanwhile


watcher = Watcher()
