"""The file and the journal of a memory while it is open: what each kind of what is kept works on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from memory.journal.journal import Journal
from memory.sqlite.session import DatabaseSession
from spar.clock import Clock, SystemClock
from spar.errors import SparError

if TYPE_CHECKING:
    from apsw import Connection

R = TypeVar("R")

MOST_ROWS = 10_000  # of one answer: more is an export


class OpenMemory:
    """Base of the stores of a memory, which are open together."""

    def __init__(self) -> None:
        self._clock: Clock = SystemClock()
        self._opened: DatabaseSession | None = None
        self._journal: Journal | None = None
        self._unreadable = 0  # parts of rows that could not be read

    @property
    def journal(self) -> Journal:
        """The journal of an agent's work, so that the next process goes on with it. Raises: SparError when the memory
        is not open, or read-only."""
        if self._journal is None:
            raise SparError("the journal is there while the memory is open, and can be written")
        return self._journal

    @property
    def _file(self) -> DatabaseSession:
        if self._opened is None:
            raise SparError("the memory is not open; use 'async with Memory.open(url) as memory'")
        return self._opened

    async def _read(self, work: Callable[[Connection], R]) -> R:
        """Do the work on the file with all rows told before, and return its result."""
        if self._journal is not None:
            self._journal.hand_over()
        return await self._file.read(work)
