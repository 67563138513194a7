"""Base of the stores: the file and the journal of an open memory."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from spar.clock import Clock, SystemClock
from spar.errors import SparError

if TYPE_CHECKING:
    from memory.engine.connection import Connection
    from memory.engine.session import DatabaseSession
    from memory.journal.journal import Journal

R = TypeVar("R")

MOST_ROWS = 10_000  # most rows of one answer; to read more, export


class OpenMemory:
    """Base class of the stores of a memory, which share one open file."""

    def __init__(self) -> None:
        self._clock: Clock = SystemClock()
        self._opened: DatabaseSession | None = None
        self._journal: Journal | None = None
        self._unreadable = 0  # parts of rows that could not be read

    @cached_property  # each change of an agent asks for it; `_forget_file` forgets it
    def journal(self) -> Journal:
        """Journal of an agent's work, from which the next process continues the work.

        Raises: SparError when the memory is not open, or is read-only.
        """
        if self._journal is None:
            raise SparError("the journal is there while the memory is open, and can be written")
        return self._journal

    @property
    def _file(self) -> DatabaseSession:
        if self._opened is None:
            raise SparError("the memory is not open; use 'async with Memory.open(url) as memory'")
        return self._opened

    def _read(self, work: Callable[[Connection], R]) -> Coroutine[Any, Any, R]:
        """Run the work on the file after all rows that were accepted before. Return its result."""
        if self._journal is not None:
            self._journal.hand_over()
        return self._file.read(work)
