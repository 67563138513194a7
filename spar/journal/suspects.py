"""Suspects: work that may have killed the process. It is tried again one piece at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, Protocol

from spar.facts import Fact, WorkHandedOut
from spar.loop.wake import Wake
from spar.state.work import InterruptedState, SessionState
from spar.types import Perception


class RecoverySession(Protocol):
    """Session, as recovery gives work to it."""

    state: SessionState
    wake: Wake

    @property
    def has_suspects_to_try(self) -> bool: ...
    def resume_with(self, fact: WorkHandedOut) -> object: ...
    def tell(self, *following: Fact) -> object: ...
    def push(self, perception: Perception) -> object: ...


class OpenSessions(Protocol):
    """Sessions that have work: find them, create one, start them."""

    @property
    def by_key(self) -> Mapping[str, RecoverySession]: ...
    def of(self, key: str) -> RecoverySession: ...
    def spawn(self, *sessions: Any) -> None: ...


class Suspects:
    """The suspects of one agent."""

    __slots__ = ("_queue", "_sessions", "_trial")

    def __init__(self, sessions: OpenSessions) -> None:
        self._sessions = sessions
        self._queue = deque[str]()  # sessions with suspects
        self._trial = ""  # the id of the suspect that is tried now

    def add(self, session: str) -> None:
        """Note that a session has a suspect that waits for its trial."""
        self._queue.append(session)

    def may_try(self, work: str) -> bool:
        """Return whether no other suspect than this one is being tried."""
        return self._trial in ("", work)

    def begin_trial(self, piece: InterruptedState) -> None:
        """Note that a cycle begins to try this piece."""
        if piece.is_suspect:
            self._trial = piece.work

    def end_trial(self, session: str, piece: InterruptedState, *, is_put_back: bool = False) -> None:
        """Note that the cycle of this piece has ended, and let the next suspect be tried.

        Args: session: its session; is_put_back: that will try it again by itself, after a wait.
        """
        if self._trial == piece.work:
            self._trial = ""
            self.wake_next(session if is_put_back else "")

    def wake_next(self, but: str = "") -> None:
        """Start the next session with a suspect, unless a trial goes on. Args: but: a session to skip."""
        queue = self._queue
        if self._trial:
            return
        for _ in range(len(queue)):
            key = queue.popleft()
            session = self._sessions.by_key.get(key)
            if session is None or not session.state.suspects:
                continue
            queue.append(key)
            if key != but and session.has_suspects_to_try:
                session.wake.set()
                self._sessions.spawn(session)
                break

    def forget_trial(self) -> None:
        """Forget the current trial, because the agent stops."""
        self._trial = ""
