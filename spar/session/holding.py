"""Sessions between two cycles while modules are exchanged: who is not to begin another one, who has yet to leave."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Literal, Protocol

from spar.loop.core import Core
from spar.loop.cycle import STANDING, Cycle
from spar.loop.tasks import Requests


class HeldSession(Protocol):
    """A session that turns; `is_amid` while it is in the middle of a cycle, or of what has its place right after it."""

    key: str
    cycle: Cycle | None
    is_standing: bool
    is_turning: bool

    @property
    def is_amid(self) -> bool: ...


#: One for all agents, since an empty set takes 216 bytes.
_NOBODY: frozenset[Any] = frozenset()


class Successor(Protocol):
    """The actor in force, as it follows another one."""

    async def take_over(self) -> None:
        """Take up what the one before it has left."""


class Holding:
    """Holds the sessions of one agent between two cycles, and waits until they have left what is replaced.

    `awaited` is not empty while somebody waits for sessions to end their cycles, `is_holding` says that some are not to
    begin another one.

    Args: sessions: the sessions that there are, by their key; successor: the actor in force.
    """

    __slots__ = ("_core", "_held", "_leavers", "_requests", "_sessions", "_successor", "awaited", "is_holding")

    def __init__(self, core: Core, requests: Requests, sessions: Mapping[str, HeldSession],
                 successor: Successor) -> None:  # fmt: skip
        self._core, self._requests, self._sessions, self._successor = core, requests, sessions, successor
        #: The sessions at work that somebody waits for, a set for each who waits.
        self.awaited: tuple[set[Any], ...] = ()
        self._held: Literal["", "standing", "all"] = ""
        #: Sessions whose cycle in hand works with an actor that has been replaced.
        self._leavers = _NOBODY
        self.is_holding = False  # every cycle asks, so that it is kept

    def left(self, session: object) -> None:
        """A session has ended a cycle."""
        for users in self.awaited:
            users.discard(session)
            if not users:
                self._requests.notify()

    def leave(self, sessions: set[Any]) -> None:
        """Have these change over to another actor when their cycle in hand has ended."""
        self._leavers |= sessions
        self._hold(self._held)

    def forget(self, session: HeldSession) -> None:
        """A session has nothing left to do, or has changed over."""
        self._leavers -= {session}
        self._hold(self._held)

    def release(self) -> None:
        """Nobody turns any more: nobody is waited for."""
        for users in self.awaited:
            users.clear()
        self._requests.notify()

    async def hold(self, session: HeldSession) -> None:
        """Keep a session between two cycles while it is not to begin another one, or is changing over."""
        while self._core.state == "running" and (self._held == "all" or (self._held and session.is_standing)):
            session.is_turning = False
            self._requests.notify()
            await self._requests.change()
        if session in self._leavers:
            self.forget(session)
            await self._successor.take_over()

    @asynccontextmanager
    async def between_cycles(self, *, is_needed: bool) -> AsyncIterator[None]:
        """Have the standing session rest between two cycles meanwhile, if that is needed."""
        if is_needed:
            self._hold("standing")
        try:
            while is_needed and (session := self._sessions.get(STANDING)) is not None and session.is_amid:
                await self._requests.change()
            yield
        finally:
            if is_needed:
                self.let_go()

    def keep(self, *, is_sensing: bool) -> None:
        """Have no session begin a cycle, of those that only the sense module concerns just the standing one."""
        self._hold("standing" if is_sensing else "all")

    def let_go(self) -> None:
        """Have the sessions go on."""
        self._hold("")
        self._requests.notify()

    def _hold(self, whom: Literal["", "standing", "all"]) -> None:
        self._held = whom
        self.is_holding = bool(whom or self._leavers)

    def at_work(self, *, is_sensing: bool = False) -> set[Any]:
        """Return the sessions in the middle of a cycle; only the standing one works with what senses."""
        at_work = [session for session in list(self._sessions.values()) if session.cycle is not None]
        return {session for session in at_work if session.is_standing or not is_sensing}

    async def gone(self, users: set[Any], until: float) -> bool:
        """Wait until these have ended their cycles, at most until a time (monotonic seconds); whether they have."""
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
