"""Examination of an agent from outside: a phase past its deadline, no cycle for too long, a slow cycle.

It reads a few plain attributes of the agent, from any thread. It changes only alerts, and those in the agent's thread.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Protocol

from msgspec import Struct

from spar.health.alerts import Kind
from spar.health.health import Health
from spar.loop.core import Core
from spar.loop.cycle import Cycle
from spar.loop.setup import Setup, expected_interval
from spar.loop.tasks import Requests

#: An agent is `stalled` after this many expected intervals without a cycle, and never before so many seconds.
STALL_FACTOR, NEVER_STALLED = 3.0, 5.0
#: A current cycle is not slow before so many seconds, so that a shorter one need not be measured.
NEVER_SLOW = 1.0
#: Seconds between two examinations by the watchdog.
LOOK_EVERY = 0.25


class WatchedSession(Protocol):
    """Session as it is examined from outside. Times are monotonic seconds; `deadline` is that of the current phase.
    `stands` says where it stands still by hand; empty if it does not."""

    key: str
    is_standing: bool
    last_completed: float
    rests_until: float | None
    cycle: Cycle | None
    stands: tuple[str, ...]

    @property
    def deadline(self) -> float: ...


class Watched:
    """One agent as it is examined from outside, and the watchdog's note of what blocks its event loop.

    Attributes: blocked_by: the stack that blocks the event loop; blocked_since: since when (monotonic seconds).
    """

    __slots__ = ("__weakref__", "blocked_by", "blocked_since", "core", "health", "requests", "sessions", "setup")

    def __init__(self, core: Core, setup: Setup, health: Health, requests: Requests,
                 sessions: Mapping[str, WatchedSession]) -> None:  # fmt: skip
        self.core, self.setup, self.health, self.requests, self.sessions = core, setup, health, requests, sessions
        self.blocked_by = ""
        self.blocked_since: float | None = None

    def blocked_for(self) -> float:
        """Return the seconds for which the event loop has not answered, as far as the watchdog knows."""
        since = self.blocked_since
        return 0.0 if since is None else time.monotonic() - since


class Finding(Struct, frozen=True):
    """Fault that the watchdog found, with its session, cycle and phase where there is one."""

    kind: Kind
    message: str
    cycle_id: str = ""
    session: str = ""
    phase: str = ""


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


def _idle_or_slow(agent: Watched, session: WatchedSession, cycle: Cycle | None, now: float) -> Iterator[Finding]:
    """Yield a fault if a session has completed no cycle for too long, and if its current cycle is slow."""
    last, interval = session.last_completed, expected_interval(agent.setup.pace) if session.is_standing else None
    if cycle is not None:
        last = max(last, cycle.started) if not session.is_standing else last
        duration = now - cycle.started
        if duration > NEVER_SLOW and duration > (limit := agent.health.slow_limit(cycle)):
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
    for now in look(agent, agent.core.clock.monotonic()):
        if (now.kind, now.session, now.cycle_id) == (finding.kind, finding.session, finding.cycle_id):
            agent.health.alert(finding.kind, finding.message, cycle_id=finding.cycle_id, session=finding.session,
                               phase=finding.phase)  # fmt: skip
            return
