"""Interrupted work of one session: what an earlier process, or an earlier attempt, had in hand.

Each piece gets a cycle of its own, and no other run of the session begins before its runs have gone on. Which piece may
have killed a process, and is therefore tried while no other such one is, `spar.journal.suspects` says.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Protocol

from spar.records.journal import Interrupted
from spar.runs.run import Run


class Trials(Protocol):
    """The trials of work that may have killed a process, of which there is one at a time."""

    def may_try(self, piece: Interrupted[Run]) -> bool: ...


class InterruptedWork:
    """The interrupted work of one session, in the order in which it came; most sessions never have any.

    `number` says how many pieces wait, `runs` how many of them belong to a run, before which no other one begins: every
    cycle asks, so that it is kept and not counted.

    Args: trials: whether a suspect piece may be tried now.
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
        """Have a piece wait. Args: is_first: before the others, as it was taken and comes back."""
        queue = self._queue_of(piece)
        queue.insert(0 if is_first else len(queue), piece)
        self.number += 1
        self.runs += piece.run is not None

    def next(self, run: Run | None) -> Interrupted[Run] | None:
        """The piece that may be taken now. Args: run: the one in hand, which goes before any other."""
        for queue in (self._usual, self.suspects):
            if not queue:
                continue
            piece = queue[0]
            if (run is None or piece.run in (None, run)) and (not piece.is_suspect or self._trials.may_try(piece)):
                return piece
        return None

    def take(self, piece: Interrupted[Run]) -> None:
        """Take out what `next` told."""
        self._queue_of(piece).remove(piece)
        self.number -= 1
        self.runs -= piece.run is not None

    def take_of(self, run: Run) -> list[Interrupted[Run]]:
        """Take out what belongs to a run."""
        found = [piece for piece in self if piece.run is run]
        for piece in found:
            self.take(piece)
        return found

    def first_run(self) -> Run | None:
        """The run that waits here for longest."""
        return next((piece.run for piece in self if piece.run is not None), None) if self.runs else None

    def _queue_of(self, piece: Interrupted[Run]) -> deque[Interrupted[Run]]:
        if piece.is_suspect:
            if self.suspects is None:
                self.suspects = deque()
            return self.suspects
        if self._usual is None:
            self._usual = deque()
        return self._usual
