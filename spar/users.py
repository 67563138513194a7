"""Users of a part that several may enter at once, such as a program and the agent that it gives the part to."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


class Users:
    """Counter of the entries of one part: the first entry opens the part, the last exit closes it.

    An entry that fails or is cancelled does not count. Entries of an event loop that is closed do not count any more.
    """

    __slots__ = ("_lock", "_loop", "count")

    def __init__(self) -> None:
        self.count = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = asyncio.Lock()

    async def enter(
        self, open: Callable[[], Awaitable[object]], again: Callable[[], Awaitable[object]] | None = None
    ) -> None:
        """Count an entry. `open` is called for the first one, `again` for each other one. Raises: their errors."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._lock, self.count = loop, asyncio.Lock(), 0
        async with self._lock:
            if not self.count:
                await open()
            elif again is not None:
                await again()
            self.count += 1

    async def leave(self, close: Callable[[], Awaitable[object]]) -> None:
        """Count an exit; `close` is called for the last one."""
        self.count = max(0, self.count - 1)
        async with self._lock:
            if not self.count:
                await close()
