"""Sees of an agent what its loop cannot tell, because it does not run.

The watcher shares no thread with the work: it reads a few plain attributes of each agent and finds a phase `stuck`
past its deadline, a loop `stalled` between cycles, an event loop that is `blocked` and the stack that blocks it. It
decides nothing and repairs nothing: alerts are opened in the agent's own thread (`spar.health`), as soon as that
answers; what blocks it is logged and can be read at once (`agent.blocked_by`). What else has to be seen to while a loop
is blocked may be done by its thread, too (`watcher.attend`).
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import traceback
import weakref
from collections import deque
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
#: How many frames of a stack are shown and logged; an alert, of which each agent has its own, carries the innermost.
FRAMES, FRAMES_TOLD = 12, 6
#: How many answers of an event loop are remembered: about a minute's.
ANSWERS_KEPT = 240
#: How many agents are told in one turn of their event loop: telling a thousand must not block it again.
TOLD_A_TURN = 32


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
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._wake = threading.Event()
        self._beats: dict[asyncio.AbstractEventLoop, _Beat] = {}
        self._chores: tuple[_Chore, ...] = ()

    def attend(self, act: Callable[[], object], every: float) -> Callable[[], None]:
        """Do something every so many seconds in the watcher's thread, while any agent is watched; returns what ends it.

        It must not block: whatever is watched waits for it. What it raises is logged.
        """
        chore = _Chore(act, every)
        self._chores = (*self._chores, chore)

        def end() -> None:
            self._chores = tuple(other for other in self._chores if other is not chore)

        return end

    def lag(self, loop: asyncio.AbstractEventLoop | None) -> float:
        """Seconds that an event loop took to answer, the longest within about a minute; from any thread."""
        beat = self._beats.get(loop) if loop is not None else None
        return 0.0 if beat is None else beat.lag()

    def add(self, agent: Agent) -> None:
        """Watch an agent; called from the event loop that it runs in."""
        with self._lock:
            loop = asyncio.get_running_loop()
            if loop not in self._beats:
                self._beats[loop] = _Beat(loop, threading.get_ident())
            self._beats[loop].agents.add(agent)
            if self._thread is None or not self._thread.is_alive():
                self._wake.clear()
                self._thread = threading.Thread(target=self._watch, name="spar watcher", daemon=True)
                self._thread.start()

    def remove(self, agent: Agent) -> None:
        """Watch an agent no more; called from its own loop, which evidently is not blocked."""
        with self._lock:
            loop = asyncio.get_running_loop()
            if (beat := self._beats.get(loop)) is not None:
                beat.agents.discard(agent)
                if not beat.agents:
                    del self._beats[loop]
            agent.blocked_by, agent.blocked_since = "", None
            if not self._beats:
                self._wake.set()
        agent.health.recovered("blocked")
        if agent.state != "failed":  # why it failed stays to be read
            agent.health.close()

    def _watch(self) -> None:
        while True:
            self._wake.wait(LOOK_EVERY)
            with self._lock:
                self._wake.clear()
                # A loop may have ended without stopping its agents, or agents may have been forgotten with it.
                self._beats = {loop: beat for loop, beat in self._beats.items() if beat.agents and not loop.is_closed()}
                if not self._beats:
                    self._thread = None
                    return
                self._look_around()

    def _look_around(self) -> None:
        """One look at everybody. In a method of its own: while it waits, the thread holds no agent."""
        for chore in self._chores:
            chore.do(time.monotonic())
        for beat in self._beats.values():
            agents = list(beat.agents)
            self._listen(beat, agents)
            now = time.monotonic()
            for agent in agents:
                for finding in look(agent, now):
                    if finding.kind not in agent.health.alerts:
                        _call(agent, partial(confirm, agent, finding))

    def _listen(self, beat: _Beat, agents: list[Agent]) -> None:
        """Has the loop answered? If not, its thread's stack is what blocks it: logged once, told to each agent."""
        late = beat.late()
        limit = min((agent.health.limits.blocked_after for agent in agents), default=float("inf"))
        if late > limit and not beat.is_blocked:
            beat.is_blocked, frames = True, frames_of(beat.thread_id)
            stack, innermost = _text(frames), _text(frames[-FRAMES_TOLD:])
            for agent in agents:
                agent.blocked_by, agent.blocked_since = stack, time.monotonic() - late
            log.error("event loop blocked", agent=_names(agents), seconds=round(late, 2), stack=stack)
            message = f"the event loop has been blocked for {late:.1f} s"
            beat.tell(lambda agent: agent.health.alert("blocked", message, severity="critical", stack=innermost))
        elif beat.is_blocked and late < limit / 2:
            beat.is_blocked = False
            for agent in agents:
                agent.blocked_by, agent.blocked_since = "", None
            beat.tell(lambda agent: agent.health.recovered("blocked"))


class _Chore:
    """Something that the watcher's thread does every so often."""

    __slots__ = ("_act", "_due", "_every")

    def __init__(self, act: Callable[[], object], every: float) -> None:
        self._act, self._every, self._due = act, every, 0.0

    def do(self, now: float) -> None:
        if now < self._due:
            return
        self._due = now + self._every
        try:
            self._act()
        except Exception as error:
            log.error("watcher's chore failed", part=repr(self._act), reason=repr(error))


class _Beat:
    """A question put to the event loop of some agents again and again; how long it has gone unanswered."""

    __slots__ = ("agents", "answers", "asked", "is_blocked", "loop", "thread_id")

    def __init__(self, loop: asyncio.AbstractEventLoop, thread_id: int) -> None:
        self.loop, self.thread_id = loop, thread_id
        self.agents: weakref.WeakSet[Agent] = weakref.WeakSet()
        self.asked: float | None = None
        self.answers: deque[float] = deque(maxlen=ANSWERS_KEPT)
        self.is_blocked = False

    def lag(self) -> float:
        asked = self.asked
        return max([0.0 if asked is None else time.monotonic() - asked, *self.answers.copy()])

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

    def tell(self, function: Callable[[Agent], object]) -> None:
        """Have the loop tell each of its agents that is still watched then, a few a turn."""
        waiting = list(self.agents)

        def tell_some() -> None:
            for agent in waiting[:TOLD_A_TURN]:
                if agent in self.agents:
                    function(agent)
            del waiting[:TOLD_A_TURN]
            if waiting:
                self.loop.call_soon(tell_some)

        try:
            self.loop.call_soon_threadsafe(tell_some)
        except RuntimeError:
            pass  # closed meanwhile

    def _answer(self) -> None:
        if self.asked is not None:
            self.answers.append(time.monotonic() - self.asked)
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


def frames_of(thread_id: int) -> list[str]:
    """What a thread does, a text for each frame, innermost last; empty if it is gone."""
    frame = sys._current_frames().get(thread_id)
    return traceback.format_stack(frame)[-FRAMES:] if frame is not None else []


def stack_of(thread_id: int) -> str:
    """The stack of a thread as one text, innermost last; empty if it is gone."""
    return _text(frames_of(thread_id))


def _text(frames: list[str]) -> str:
    return "".join(frames).rstrip()


def _names(agents: list[Agent]) -> str:
    """Who is concerned, in one line, however many."""
    names = sorted(agent.name for agent in agents)
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def _call(agent: Agent, function: Callable[[], object]) -> None:
    loop = agent.event_loop
    if loop is not None:
        try:
            loop.call_soon_threadsafe(function)
        except RuntimeError:
            pass  # closed meanwhile


watcher = Watcher()
