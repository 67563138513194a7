"""The parts of an agent that its sessions, its lifecycle and its submission share; and the gate that stops its sessions
between two cycles while modules are replaced."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, cast

from spar.errors import ConflictError
from spar.health.error_reporting import ErrorReporter
from spar.health.health import Health
from spar.journal.recovery import Recovery
from spar.journal.state.agent_state import AgentState
from spar.loop.core import Core, Requests
from spar.loop.cycle import STANDING, WorkingSession
from spar.loop.setup import Setup
from spar.observe.stats import SessionStats, Stats
from spar.runs.runs import Runs

if TYPE_CHECKING:
    from spar.journal.cycle_log import CycleLog
    from spar.journal.state.stored_state import StoredState
    from spar.protocols import Home
    from spar.runs.outbox import RunMessages
    from spar.runs.transcripts import SessionTranscripts
    from spar.session.session_hooks import SessionHooks
    from spar.session.session_records import SessionRecords


#: One for all agents, since an empty set takes 216 bytes.
_NOBODY: frozenset[Any] = frozenset()


class Holding:
    """Gate that stops sessions between two cycles, and waits until they no longer use a replaced module.

    `awaited` is not empty while a caller waits for sessions to end their cycles. `is_holding` says that some session
    must not begin a cycle, or must change to another actor first.

    Args: sessions: the existing sessions by key; take_over: has the actor in force take over the open calls of the one
    before it.
    """

    __slots__ = ("_core", "_held", "_leavers", "_requests", "_sessions", "_take_over", "awaited", "is_holding")

    def __init__(self, core: Core, requests: Requests, sessions: Mapping[str, WorkingSession],
                 take_over: Callable[[], Awaitable[None]]) -> None:  # fmt: skip
        self._core, self._requests, self._sessions, self._take_over = core, requests, sessions, take_over
        #: For each waiting caller, the set of sessions whose current cycle has not ended.
        self.awaited: tuple[set[Any], ...] = ()
        self._held: Literal["", "standing", "all"] = ""
        #: Sessions whose current cycle uses a replaced actor.
        self._leavers = _NOBODY
        self.is_holding = False  # read before every cycle, therefore stored

    def note_cycle_ended(self, session: object) -> None:
        """Note that a session has ended a cycle, and wake the callers that waited for it."""
        for users in self.awaited:
            users.discard(session)
            if not users:
                self._requests.notify()

    def require_change(self, sessions: set[Any]) -> None:
        """Have these sessions change to the new actor after their current cycle."""
        self._leavers |= sessions
        self._hold(self._held)

    def forget(self, session: WorkingSession) -> None:
        """Forget a session that has changed to the new actor, or has no work left."""
        self._leavers -= {session}
        self._hold(self._held)

    def wake_waiters(self) -> None:
        """Wake all waiting callers, because no session runs any more."""
        for users in self.awaited:
            users.clear()
        self._requests.notify()

    async def hold(self, session: WorkingSession) -> None:
        """Wait while the session must not begin a cycle. Then let it change to the new actor, if that is due."""
        while self._core.state == "running" and (self._held == "all" or (self._held and session.is_standing)):
            session.is_in_iteration = False
            self._requests.notify()
            await self._requests.change()
        if session in self._leavers:
            self.forget(session)
            await self._take_over()

    @asynccontextmanager
    async def between_cycles(self, *, is_needed: bool) -> AsyncIterator[None]:
        """Keep the standing session between two cycles while the context is open, if `is_needed`.

        Raises: ConflictError if it stands still by hand: then only a person knows when its cycle ends.
        """
        if is_needed:
            self._hold("standing")
        try:
            while is_needed and (session := self._sessions.get(STANDING)) is not None and session.is_mid_cycle:
                if session.stands:
                    sentence = f"session {session.key!r} stands at {session.stands[-1]}"
                    raise ConflictError(f"{sentence}; the sense module stays as it is until it goes on: then try again")
                await self._requests.change()
            yield
        finally:
            if is_needed:
                self.resume_cycles()

    def stop_cycles(self, *, is_sensing: bool) -> None:
        """Stop sessions from beginning a cycle: all, or only the standing one if only the sense module is replaced."""
        self._hold("standing" if is_sensing else "all")

    def resume_cycles(self) -> None:
        """Let all sessions begin cycles again."""
        self._hold("")
        self._requests.notify()

    def _hold(self, whom: Literal["", "standing", "all"]) -> None:
        self._held = whom
        self.is_holding = bool(whom or self._leavers)

    def at_work(self, *, is_sensing: bool = False) -> set[Any]:
        """Return the sessions in a cycle. With `is_sensing` only the standing session counts, because only it polls
        sensors."""
        at_work = [session for session in list(self._sessions.values()) if session.cycle is not None]
        return {session for session in at_work if session.is_standing or not is_sensing}

    async def wait_until_unused(self, users: set[Any], until: float) -> bool:
        """Wait until these sessions have ended their cycles, until `until` (monotonic seconds); return whether they
        have."""
        self.awaited = (*self.awaited, users)
        try:
            while users:
                left = until - self._core.clock.monotonic()
                if left <= 0:
                    return False
                await self._requests.change(left)
            return True
        finally:
            self.awaited = tuple(other for other in self.awaited if other is not users)


class Conversing:
    """Conversations of an agent, as far as its sessions use them."""

    __slots__ = ("hooks", "outbox", "records", "transcripts")

    hooks: SessionHooks
    outbox: RunMessages
    records: SessionRecords
    transcripts: SessionTranscripts


class SessionParts:
    """Parts that every session of one agent uses: modules, journal, runs, reports, health and statistics.

    `attached(name)` and `installed(name)` return the part of a built-in attachment, attached now at the latest;
    where it is not installed, `attached` raises a ConfigError and `installed` returns None. `learning` is one of them.
    """

    __slots__ = ("__dict__", "__weakref__", "account", "agent_state", "core", "health", "holding", "home", "recovery",
                 "reports", "requests", "runs", "session_accounts", "setup")  # fmt: skip

    core: Core
    setup: Setup
    requests: Requests
    holding: Holding
    home: Home | None
    runs: Runs
    recovery: Recovery
    agent_state: AgentState
    reports: ErrorReporter
    health: Health
    account: Stats
    session_accounts: SessionStats
    attached: Callable[[str], Any]
    installed: Callable[[str], Any]
    learning: Any

    def demand_open(self, what: str) -> None:
        """Check that work or a request can be accepted now. Raises: LifecycleError, NotReadyError."""
        raise NotImplementedError

    @property
    def conversations(self) -> Conversing:
        """Return the parts that only messages need, which the first one makes."""
        raise NotImplementedError

    @cached_property
    def cycle_log(self) -> CycleLog | AgentState:
        """Log of its cycles; that of an agent whose memory keeps no journal has nothing to write."""
        if not self.agent_state.has_journal:
            return self.agent_state
        from spar.journal.cycle_log import CycleLog

        return CycleLog(self.core, self.setup, self.recovery, cast("StoredState", self.agent_state), self.reports)
