"""Sessions that are being forgotten: no message is accepted for one meanwhile, so that none of it can be deleted."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from spar.errors import NotReadyError

#: Seconds after which a message that was refused may be sent again.
_AGAIN_AFTER = 1.0


class Forgetting:
    """The sessions of one agent that are being forgotten, and those that a message is on its way into."""

    __slots__ = ("_changed", "_coming", "_going")

    def __init__(self) -> None:
        self._going: Counter[str] = Counter()
        self._coming: Counter[str] = Counter()
        self._changed: asyncio.Event | None = None  # while somebody waits

    @contextmanager
    def coming(self, key: str) -> Iterator[None]:
        """Have a session stay while a message is on its way into it.

        Raises: NotReadyError while it is being forgotten.
        """
        if key in self._going:
            raise NotReadyError(f"session {key!r:.300} is being forgotten: send the message again",
                                retry_after=_AGAIN_AFTER)  # fmt: skip
        self._coming[key] += 1
        try:
            yield
        finally:
            _less(self._coming, key)
            if self._changed is not None:
                self._changed.set()

    @asynccontextmanager
    async def going(self, key: str) -> AsyncIterator[None]:
        """Have no message accepted for a session, once those on their way have arrived."""
        self._going[key] += 1
        try:
            while key in self._coming:
                self._changed = self._changed or asyncio.Event()
                self._changed.clear()
                await self._changed.wait()
            yield
        finally:
            _less(self._going, key)
            if not self._going:
                self._changed = None


def _less(counter: Counter[str], key: str) -> None:
    counter[key] -= 1
    if not counter[key]:
        del counter[key]
