"""Retries: failed work that waits for its next attempt, and suspects: work that may have killed the process, which is
tried again one piece at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any, Protocol

from spar.clock import Timer
from spar.decisions.consequence import BACKOFF, retry
from spar.facts import Fact, PutAside, RetryPlanned, WorkHandedOut, WorkLeft
from spar.journal.in_doubt import DeadLetters
from spar.journal.work import Work
from spar.loop.core import Core
from spar.loop.tasks import Requests, Wake
from spar.records.journal import Item
from spar.state.work import InterruptedState, SessionState
from spar.types import Fault, Perception, replace

#: The most failed work that waits. Beyond it failed perceptions of sensors are not tried again.
MOST_WAITING = 10_000


class Retries:
    """The failed work of one agent that waits for its next attempt. `len` is its number, `shed` counts work that was
    dropped.

    Args: hand_out: gives an item to its session, once it is due.
    """

    __slots__ = ("_core", "_hand_out", "_letters", "_requests", "_timers", "_work", "shed")

    def __init__(self, core: Core, requests: Requests, work: Work, letters: DeadLetters,
                 hand_out: Callable[[Item], Awaitable[object]]) -> None:  # fmt: skip
        self._core, self._requests, self._work = core, requests, work
        self._letters, self._hand_out = letters, hand_out
        self._timers: dict[str, Timer] = {}
        self.shed = 0

    def __len__(self) -> int:
        return len(self._timers)

    def failed(
        self, perceptions: Iterable[Perception], session: str, fault: Fault, *, is_sensed: bool
    ) -> tuple[Item, ...]:
        """Count a failed attempt at each perception, and journal it; return the items that will be tried again. Others
        are put aside."""
        failed: list[Item] = []
        for perception in perceptions:
            item = self._work.items(session).get(perception.id)
            if item is None and len(self._timers) >= MOST_WAITING:
                self.shed += 1
                continue
            item = item or Item(perception.id, perception, session=session)
            item = replace(item, perception=perception, is_sensed=is_sensed, attempts=item.attempts + 1, fault=fault)
            fact = retry(item, self._core.clock.now())
            if isinstance(fact, PutAside):
                self._letters.add(fact)
            else:
                self._core.ledger.tell(fact)
                self._wait(fact.item)
                failed.append(fact.item)
        return tuple(failed)

    def later(self, fact: RetryPlanned) -> None:
        """Try an item again at its time, which the journal has."""
        self._core.ledger.add(fact)
        self._wait(fact.item)

    def _wait(self, item: Item) -> None:
        """Wait for the time of an item, instead of a time that was planned before."""
        assert item.due_at is not None
        clock = self._core.clock
        if (waiting := self._timers.get(item.id)) is not None:
            waiting.cancel()
        wait = (item.due_at - clock.now()).total_seconds()
        # A longer wait is that of a clock that was set back.
        self._timers[item.id] = clock.call_at(clock.monotonic() + min(wait, BACKOFF.cap), partial(self._due, item))

    def _due(self, item: Item) -> None:
        if self._core.state not in ("stopping", "stopped"):  # the next start finds it in the journal
            self._requests.in_background(self._try_again(item), "recovery of")

    async def _try_again(self, item: Item) -> None:
        try:
            await self._hand_out(replace(item, due_at=None))
        finally:
            self._timers.pop(item.id, None)

    def end(self) -> None:
        """Cancel all timers. The next start finds the items in the journal."""
        for timer in self._timers.values():
            timer.cancel()
        ledger = self._core.ledger
        for state in [state for state in ledger.states.values() if state.retries]:
            ledger.add(WorkLeft(session=state.key, items=tuple(state.retries)))
        self._timers.clear()


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
