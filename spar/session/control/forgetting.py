"""Sessions that are being deleted: each refuses messages meanwhile, so that no accepted message is deleted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from spar.errors import NotReadyError

#: Seconds after which a refused message may be sent again.
_AGAIN_AFTER = 1.0


class Forgetting:
    """The sessions of one agent that are being deleted, and those that are accepting a message."""

    __slots__ = ("_accepting", "_changed", "_refusing")

    def __init__(self) -> None:
        self._refusing: dict[str, int] = {}
        self._accepting: dict[str, int] = {}
        #: Set when a message has been accepted; None while no deletion waits.
        self._changed: asyncio.Event | None = None

    def begin_accepting(self, key: str) -> None:
        """Keep a session from being deleted until `end_accepting`, since a message to it is accepted.

        Raises: NotReadyError while the session is being deleted.
        """
        if key in self._refusing:
            raise NotReadyError(f"session {key!r:.300} is being forgotten: send the message again",
                                retry_after=_AGAIN_AFTER)  # fmt: skip
        self._accepting[key] = self._accepting.get(key, 0) + 1

    def end_accepting(self, key: str) -> None:
        """Note that a message was accepted, or refused."""
        _decrement(self._accepting, key)
        if self._changed is not None:
            self._changed.set()

    @asynccontextmanager
    async def refusing(self, key: str) -> AsyncIterator[None]:
        """Refuse new messages to a session while the context is open. First wait for the messages that are being
        accepted."""
        self._refusing[key] = self._refusing.get(key, 0) + 1
        try:
            while key in self._accepting:
                self._changed = self._changed or asyncio.Event()
                self._changed.clear()
                await self._changed.wait()
            yield
        finally:
            _decrement(self._refusing, key)
            if not self._refusing:
                self._changed = None


def _decrement(counter: dict[str, int], key: str) -> None:
    """Decrease a count by one, and drop it at zero."""
    counter[key] -= 1
    if not counter[key]:
        del counter[key]
