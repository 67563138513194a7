"""Suspects: work that may have killed the process, which is tried again one piece at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from spar.loop.cycle import Cycle
from spar.loop.wake import Wake
from spar.ports.store import Journal
from spar.records.journal import Interrupted, Item, Unfinished
from spar.runs.interrupted import InterruptedWork
from spar.runs.run import Run
from spar.types import Perception

#: Perceptions that are remembered as suspects, at most.
MOST_SUSPECTS = 10_000


class RecoverySession(Protocol):
    """A session as work is handed out to it."""

    run: Run | None
    cycle: Cycle | None
    interrupted: InterruptedWork
    wake: Wake

    @property
    def has_suspects_to_try(self) -> bool: ...
    def resume_with(self, piece: Interrupted[Run]) -> object: ...
    def queue(self, run: Run) -> object: ...
    def push(self, perception: Perception) -> object: ...


class OpenSessions(Protocol):
    """The sessions that have something to do: those there are, one by its key, and having some turn."""

    @property
    def by_key(self) -> Mapping[str, RecoverySession]: ...
    def of(self, key: str) -> RecoverySession: ...
    def spawn(self, *sessions: Any) -> None: ...


class Suspects:
    """The suspects of one agent.

    Attributes: polled: how often what will be polled again was in hand when a process died, by its trait.
    """

    __slots__ = ("_line", "_name", "_sessions", "_trial", "polled")

    def __init__(self, name: str, sessions: OpenSessions) -> None:
        self._name, self._sessions = name, sessions
        self.polled: dict[str, int] = {}
        self._line: deque[str] | None = None  # sessions that have some; most processes die of nothing
        self._trial: Interrupted[Run] | None = None

    def count(self, journal: Journal, before: Mapping[str, Any], held: frozenset[str], items: Sequence[Item],
              cycles: Sequence[Unfinished]) -> None:  # fmt: skip
        """Count the attempts at what was in hand and left no other trace: perceptions that will be polled again.

        Args: before: what was counted so far, as loaded under `key`; held: the ids that were in hand.
        """
        known = {item.id for item in items}
        traits = {journal.trait(each) for cycle in cycles for each in cycle.perceptions}
        self.polled = {name: int(before.get(name, 0)) + 1 for name in sorted(held - known - traits)[:MOST_SUSPECTS]}
        if self.polled or before:
            journal.save(self.key, self.polled)

    @property
    def key(self) -> str:
        """Return the key under which the memory keeps the counts."""
        return f"suspects:{self._name}"

    def add(self, session: str) -> None:
        """Note that a session has one that waits for its trial."""
        if self._line is None:
            self._line = deque()
        self._line.append(session)

    def may_try(self, piece: Interrupted[Run]) -> bool:
        """Return whether no other suspect is being tried."""
        return self._trial is None or self._trial is piece

    def tries(self, piece: Interrupted[Run]) -> None:
        """A cycle takes this."""
        if piece.is_suspect:
            self._trial = piece

    def tried(self, piece: Interrupted[Run], *, is_put_back: bool = False) -> None:
        """The cycle that took this has ended; if it was being tried, another one may be.

        Args: is_put_back: its session tries it again by itself, after a rest.
        """
        if self._trial is piece:
            self._trial = None
            self.wake_next(piece.session if is_put_back else "")

    def wake_next(self, but: str = "") -> None:
        """Have the next session go on with a suspect, unless one is being tried; another session than this."""
        line = self._line
        if self._trial is not None or line is None:
            return
        for _ in range(len(line)):
            key = line.popleft()
            session = self._sessions.by_key.get(key)
            if session is None or not session.interrupted.suspects:
                continue
            line.append(key)
            if key != but and session.has_suspects_to_try:
                session.wake.set()
                self._sessions.spawn(session)
                break

    def forget_trial(self) -> None:
        """Know of no trial any more: the agent stops."""
        self._trial = None
