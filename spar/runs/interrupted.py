"""Interrupted work of one session: cycles and items that an earlier process, or a failed attempt, left unfinished.

Each piece gets a cycle of its own. No new run of the session begins before its interrupted runs have continued.
`spar.journal.suspects` decides which piece may have killed a process, and tries one such piece at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Protocol

from spar.records.journal import Interrupted
from spar.runs.run import Run


class Trials(Protocol):
    """Trials of work that may have killed a process; one at a time."""

    def may_try(self, piece: Interrupted[Run]) -> bool: ...


class InterruptedWork:
    """Interrupted work of one session, in order of arrival; usually empty.

    `number` is the number of waiting pieces, `runs` of those that belong to a run and so block new runs. Both are
    stored because every cycle reads them.

    Args: trials: decides whether a suspect may be tried now.
    """

    __slots__ = ("_trials", "_usual", "number", "runs", "suspects")

    def __init__(self, trials: Trials) -> None:
        self._trials = trials
        self._usual: deque[Interrupted[Run]] | None = None
        self.suspects: deque[Interrupted[Run]] | None = None
        self.number = 0
        self.runs = 0

    def __len__(self) -> int:
        return self.number

    def __iter__(self) -> Iterator[Interrupted[Run]]:
        yield from self._usual or ()
        yield from self.suspects or ()

    def add(self, piece: Interrupted[Run], *, is_first: bool = False) -> None:
        """Queue a piece. Args: is_first: put a returned piece before the others."""
        queue = self._queue_of(piece)
        queue.insert(0 if is_first else len(queue), piece)
        self.number += 1
        self.runs += piece.run is not None

    def next(self, run: Run | None) -> Interrupted[Run] | None:
        """Return the piece that may be taken now; None without one. Args: run: the current run, whose pieces go
        first."""
        for queue in (self._usual, self.suspects):
            if not queue:
                continue
            piece = queue[0]
            if (run is None or piece.run in (None, run)) and (not piece.is_suspect or self._trials.may_try(piece)):
                return piece
        return None

    def take(self, piece: Interrupted[Run]) -> None:
        """Remove a piece that `next` returned."""
        self._queue_of(piece).remove(piece)
        self.number -= 1
        self.runs -= piece.run is not None

    def take_of(self, run: Run) -> list[Interrupted[Run]]:
        """Remove and return the pieces of a run."""
        pieces = [piece for piece in self if piece.run is run]
        for piece in pieces:
            self.take(piece)
        return pieces

    def first_run(self) -> Run | None:
        """Return the run that has waited longest here; None without any."""
        return next((piece.run for piece in self if piece.run is not None), None) if self.runs else None

    def _queue_of(self, piece: Interrupted[Run]) -> deque[Interrupted[Run]]:
        if piece.is_suspect:
            if self.suspects is None:
                self.suspects = deque()
            return self.suspects
        if self._usual is None:
            self._usual = deque()
        return self._usual
