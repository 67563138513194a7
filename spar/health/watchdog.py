"""Watchdog of agents: it notices faults that an agent's loop cannot report because the loop does not run.

The watchdog shares no thread with the work. It reads a few plain attributes of each agent and finds a phase that is
`stuck` past its deadline, a loop that is `stalled` between cycles, and an event loop that is `blocked`, with the stack
that blocks it. It decides and repairs nothing. Alerts are opened in the agent's own thread (`spar.health.health`), as
soon as that answers; a blocking stack is logged and can be read at once (`agent.blocked_by`). Other periodic work that
must not depend on a loop gets a thread of its own (`WATCHDOG.attend`).
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import traceback
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from msgspec import Struct

from spar.clock import Timer
from spar.health.alerts import NEVER_SLOW, Kind, key_of, slow_limit
from spar.health.health import Health
from spar.loop.core import Core, Requests
from spar.loop.cycle import Cycle, WorkingSession
from spar.loop.setup import Setup, expected_interval
from spar.observe.logs import get_logger
from spar.threads import in_loop

log = get_logger("spar.watcher")

#: The most frames of a logged stack, and of a stack in an alert (the innermost), of which each agent has its own.
FRAMES, FRAMES_IN_ALERT = 12, 6
#: The most answer times of an event loop that are kept: about those of a minute.
ANSWERS_KEPT = 240
#: The most agents whose alerts change in one iteration of their event loop, so that a thousand of them do not block it.
CALLS_A_TURN = 32
#: An agent is `stalled` after this many expected intervals without a cycle, and never before so many seconds.
STALL_FACTOR, NEVER_STALLED = 3.0, 5.0
#: Seconds between two examinations by the watchdog.
LOOK_EVERY = 0.25


class Watchdog:
    """Watchdog of all running agents of the process, in one thread.

    Its lock is also taken by the event loops, so under it nothing is examined, read or logged.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._wake = threading.Event()
        self._beats: dict[asyncio.AbstractEventLoop, _Beat] = {}

    def attend(self, act: Callable[[], object], every: float) -> Callable[[], None]:
        """Call `act` every so many seconds while any agent is watched; return a function that ends this.

        It runs in its own thread, so it may block. Its errors are logged.
        """
        is_ended = threading.Event()

        def do() -> None:
            due = 0.0
            while not is_ended.wait(min(max(due - time.monotonic(), 0.0), LOOK_EVERY) or LOOK_EVERY):
                if time.monotonic() < due or not self._beats:
                    continue
                due = time.monotonic() + every
                try:
                    act()
                except Exception as error:
                    log.error("watchdog's chore failed", part=repr(act), reason=repr(error))

        threading.Thread(target=do, name=f"spar chore {act!r:.60}", daemon=True).start()
        return is_ended.set

    def lag(self, loop: asyncio.AbstractEventLoop | None) -> float:
        """Return the longest answer time (seconds) of an event loop within about a minute. May be called from any
        thread."""
        beat = self._beats.get(loop) if loop is not None else None
        return 0.0 if beat is None else beat.lag()

    def add(self, agent: Watched) -> None:
        """Watch an agent. Called from its event loop."""
        with self._lock:
            loop = asyncio.get_running_loop()
            if loop not in self._beats:
                self._beats[loop] = _Beat(loop, threading.get_ident())
            self._beats[loop].agents.add(agent)
            if self._thread is None or not self._thread.is_alive():
                self._wake.clear()
                self._thread = threading.Thread(target=self._watch, name="spar watchdog", daemon=True)
                self._thread.start()

    def remove(self, agent: Watched) -> None:
        """Watch an agent no more. Called from its event loop, which therefore is not blocked."""
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
        if agent.core.state != "failed":  # the reason of the failure stays readable
            agent.health.close()

    def _watch(self) -> None:
        """Examine all agents every `LOOK_EVERY` seconds, until none is watched."""
        while True:
            self._wake.wait(LOOK_EVERY)
            with self._lock:
                self._wake.clear()
                # A loop may have been closed without a stop of its agents, or the agents may have been collected with
                # it.
                self._beats = {loop: beat for loop, beat in self._beats.items() if beat.agents and not loop.is_closed()}
                if not self._beats:
                    self._thread = None
                    return
            self._look_around()

    def _look_around(self) -> None:
        """Examine all agents once. As a method of its own it leaves no reference to an agent while the thread waits."""
        with self._lock:
            watched = [(beat, list(beat.agents)) for beat in self._beats.values()]
        for beat, agents in watched:
            self._check_answer(beat, agents)
            now = time.monotonic()
            for agent in agents:
                for finding in look(agent, now):
                    if key_of(finding.kind, finding.session) not in agent.health.alerts:
                        agent.requests.in_loop(partial(confirm, agent, finding))

    def _check_answer(self, beat: _Beat, agents: list[Watched]) -> None:
        """Check whether the loop has answered. If not, log the stack that blocks it once, and open an alert for each
        agent."""
        late = beat.late()
        limit = min((agent.health.limits.blocked_after for agent in agents), default=float("inf"))
        if late > limit and not beat.is_blocked:
            beat.is_blocked, frames = True, frames_of(beat.thread_id)
            stack, innermost = _text(frames), _text(frames[-FRAMES_IN_ALERT:])
            self._mark(beat, agents, stack, time.monotonic() - late)
            log.error("event loop blocked", agent=_names(agents), seconds=round(late, 2), stack=stack)
            message = f"the event loop has been blocked for {late:.1f} s"
            beat.for_agents(
                lambda agent: agent.health.judge.alert("blocked", message, severity="critical", stack=innermost)
            )
        elif beat.is_blocked and late < limit / 2:
            beat.is_blocked = False
            self._mark(beat, agents, "", None)
            beat.for_agents(lambda agent: agent.health.recovered("blocked"))

    def _mark(self, beat: _Beat, agents: list[Watched], stack: str, since: float | None) -> None:
        """Record on each watched agent the stack that blocks its event loop."""
        with self._lock:
            for agent in agents:
                if agent in beat.agents:
                    agent.blocked_by, agent.blocked_since = stack, since


class _Beat:
    """Repeated ping to an event loop, with the time since an unanswered one, for the agents of that loop."""

    __slots__ = ("agents", "answers", "asked_at", "is_blocked", "loop", "thread_id")

    def __init__(self, loop: asyncio.AbstractEventLoop, thread_id: int) -> None:
        self.loop, self.thread_id = loop, thread_id
        self.agents: weakref.WeakSet[Watched] = weakref.WeakSet()
        self.asked_at: float | None = None
        self.answers: deque[float] = deque(maxlen=ANSWERS_KEPT)
        self.is_blocked = False

    def lag(self) -> float:
        """Return the longest of the last answer times and the present wait, in seconds."""
        asked_at = self.asked_at
        return max([0.0 if asked_at is None else time.monotonic() - asked_at, *self.answers.copy()])

    def late(self) -> float:
        """Return the seconds since the unanswered ping; send the next one if it was answered."""
        now = time.monotonic()
        if self.asked_at is None:
            self.asked_at = now
            if not in_loop(self.loop, self._answer):
                self.asked_at = None
            return 0.0
        return now - self.asked_at

    def for_agents(self, function: Callable[[Watched], object]) -> None:
        """Have the loop call a function with each of its agents that is still watched, a few in each iteration."""
        waiting: list[Watched] | None = None

        def call_some() -> None:
            nonlocal waiting
            if waiting is None:  # in the thread that also adds and removes agents
                waiting = list(self.agents)
            for agent in waiting[:CALLS_A_TURN]:
                if agent in self.agents:
                    function(agent)
            del waiting[:CALLS_A_TURN]
            if waiting:
                self.loop.call_soon(call_some)

        in_loop(self.loop, call_some)

    def _answer(self) -> None:
        if self.asked_at is not None:
            self.answers.append(time.monotonic() - self.asked_at)
        self.asked_at = None


def frames_of(thread_id: int) -> list[str]:
    """Return the stack of a thread, one text for each frame, innermost last; empty if the thread has ended."""
    frame = sys._current_frames().get(thread_id)
    return traceback.format_stack(frame)[-FRAMES:] if frame is not None else []


def stack_of(thread_id: int) -> str:
    """Return the stack of a thread as one text, innermost last; empty if the thread has ended."""
    return _text(frames_of(thread_id))


def _text(frames: list[str]) -> str:
    return "".join(frames).rstrip()


def _names(agents: list[Watched]) -> str:
    """Return the names of agents in one line: three names, and the number of the others."""
    names = sorted(agent.core.name for agent in agents)
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


#: The watchdog of this process.
WATCHDOG = Watchdog()


# -- one agent as it is examined


class Finding(Struct, frozen=True):
    """Fault that the watchdog found, with its session, cycle and phase where there is one."""

    kind: Kind
    message: str
    cycle_id: str = ""
    session: str = ""
    phase: str = ""


class Watched:
    """One agent as it is examined from outside, from its start to its stop, and the watchdog's note of what blocks its
    event loop.

    The watchdog of the process keeps it. Where the agent's clock is virtual, no thread can follow its time, and the
    event loop examines it instead.

    Attributes: blocked_by: the stack that blocks the event loop; blocked_since: since when (monotonic seconds).
    """

    __slots__ = ("__weakref__", "blocked_by", "blocked_since", "core", "health", "requests", "sessions", "setup",
                 "timer")  # fmt: skip

    def __init__(self, core: Core, setup: Setup, health: Health, requests: Requests,
                 sessions: Mapping[str, WorkingSession]) -> None:  # fmt: skip
        self.core, self.setup, self.health, self.requests, self.sessions = core, setup, health, requests, sessions
        self.blocked_by = ""
        self.blocked_since: float | None = None
        self.timer: Timer | None = None

    def begin(self) -> None:
        """Watch the agent from now on; called from its event loop. Idempotent."""
        if not self.core.clock.is_virtual:
            WATCHDOG.add(self)
        elif self.timer is None:
            self._look_again()

    def end(self) -> None:
        """Watch it no more; called from its event loop."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        WATCHDOG.remove(self)

    def _look_again(self) -> None:
        clock = self.core.clock
        for finding in look(self, clock.monotonic()) if self.timer is not None else ():
            self.alert(finding)
        self.timer = clock.call_at(clock.monotonic() + LOOK_EVERY * 4, self._look_again)

    def blocked_for(self) -> float:
        """Return the seconds for which the event loop has not answered, as far as the watchdog knows."""
        since = self.blocked_since
        return 0.0 if since is None else time.monotonic() - since

    def alert(self, finding: Finding) -> None:
        """Open the alert of a finding. Called in the agent's event loop."""
        self.health.judge.alert(finding.kind, finding.message, cycle_id=finding.cycle_id, session=finding.session,
                                phase=finding.phase)  # fmt: skip


def look(agent: Watched, now: float) -> list[Finding]:
    """Return the faults of an agent at `now` (monotonic seconds). Reads only; may be called from any thread."""
    if agent.core.state not in ("running", "pausing", "stopping"):
        return []
    findings: list[Finding] = []
    for session in list(agent.sessions.values()):
        cycle, deadline = session.cycle, session.deadline
        if session.stands and deadline == float("inf"):
            continue
        if cycle is not None and now > deadline + agent.setup.steps[cycle.phase].grace + LOOK_EVERY:
            message = f"{cycle.phase} is {now - deadline:.1f} s past its deadline"
            findings.append(Finding("stuck", message, cycle.id, session.key, cycle.phase))
        elif agent.core.state == "running":
            findings += _idle_or_slow(agent, session, cycle, now)
    return findings


def _idle_or_slow(agent: Watched, session: WorkingSession, cycle: Cycle | None, now: float) -> Iterator[Finding]:
    """Yield a fault if a session has completed no cycle for too long, and if its current cycle is slow."""
    last, interval = session.last_completed, expected_interval(agent.setup.pace) if session.is_standing else None
    if cycle is not None:
        last = max(last, cycle.started) if not session.is_standing else last
        duration = now - cycle.started
        if duration > NEVER_SLOW and duration > (limit := slow_limit(agent.health.limits, agent.health.stats, cycle)):
            message = f"{cycle.phase} goes on in a cycle that has taken {duration:.0f} s, more than {limit:.3g} s"
            yield Finding("slow", message, cycle.id, session.key, cycle.phase)
    elif interval is None:
        return  # the session waits for pushed work
    since = max(last, session.rests_until or 0.0)
    if now - since > _stall_limit(agent, cycle, interval):
        due = "" if interval is None else f", expected every {interval:.3g} s"
        yield Finding("stalled", f"no cycle completed for {now - last:.1f} s{due}", session=session.key)


def _stall_limit(agent: Watched, cycle: Cycle | None, interval: float | None) -> float:
    """Return the greatest allowed number of seconds without a completed cycle.

    There is no such limit in a phase with a deadline, because the deadline applies.
    """
    limit = agent.health.limits.stalled_after
    if limit != "auto":
        return float(limit)
    if cycle is not None and agent.setup.steps[cycle.phase].timeout < float("inf"):
        return float("inf")
    return max(NEVER_STALLED, STALL_FACTOR * (interval or 0.0))


def confirm(agent: Watched, finding: Finding) -> None:
    """Open the alert of a finding, if the fault still exists when the event loop examines the agent again."""
    about = finding.kind, finding.session, finding.cycle_id
    if about in [(now.kind, now.session, now.cycle_id) for now in look(agent, agent.core.clock.monotonic())]:
        agent.alert(finding)
