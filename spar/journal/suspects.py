"""Suspects: work that may have killed the process. It is tried again one piece at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from spar.facts import ValueSaved
from spar.loop.cycle import Cycle
from spar.loop.wake import Wake
from spar.records.journal import Item, Unfinished, trait
from spar.runs.run import Run
from spar.state.work import InterruptedState, SessionState
from spar.types import Perception, QueueMode

if TYPE_CHECKING:
    from spar.ports.store import Journal

#: The most perceptions that are remembered as suspects.
MOST_SUSPECTS = 10_000


class RecoverySession(Protocol):
    """Session, as recovery gives work to it."""

    state: SessionState
    cycle: Cycle | None
    wake: Wake

    @property
    def run(self) -> Run | None: ...
    @property
    def has_suspects_to_try(self) -> bool: ...
    def resume_with(self, work: Unfinished | Item, run: Run | None, *, is_suspect: bool) -> object: ...
    def queue(self, run: Run, mode: QueueMode) -> object: ...
    def push(self, perception: Perception) -> object: ...


class OpenSessions(Protocol):
    """Sessions that have work: find them, create one, start them."""

    @property
    def by_key(self) -> Mapping[str, RecoverySession]: ...
    def of(self, key: str) -> RecoverySession: ...
    def spawn(self, *sessions: Any) -> None: ...


class Suspects:
    """The suspects of one agent.

    Attributes: polled: for each trait (hash) of a perception that will be polled again: how often it was current when a
    process died.
    """

    __slots__ = ("_name", "_queue", "_sessions", "_trial", "polled")

    def __init__(self, name: str, sessions: OpenSessions) -> None:
        self._name, self._sessions = name, sessions
        self.polled: dict[str, int] = {}
        self._queue: deque[str] | None = None  # sessions with suspects; None in the usual case without any
        self._trial = ""  # the id of the suspect that is tried now

    def count(self, journal: Journal, before: Mapping[str, Any], held: frozenset[str], items: Sequence[Item],
              cycles: Sequence[Unfinished]) -> None:  # fmt: skip
        """Count an attempt at each perception that was current in a dead process, has no journal row, and will be
        polled again.

        Args: before: the former counts, as loaded under `key`; held: the ids that were current.
        """
        known = {item.id for item in items}
        traits = {trait(perception) for cycle in cycles for perception in cycle.perceptions}
        self.polled = {name: int(before.get(name, 0)) + 1 for name in sorted(held - known - traits)[:MOST_SUSPECTS]}
        if self.polled or before:
            journal.append(ValueSaved(key=self.key, value=self.polled))

    @property
    def key(self) -> str:
        """Return the memory's key of the counts."""
        return f"suspects:{self._name}"

    def add(self, session: str) -> None:
        """Note that a session has a suspect that waits for its trial."""
        if self._queue is None:
            self._queue = deque()
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
        if self._trial or queue is None:
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
