"""Timing of the garbage collector: a full collection stops every thread, so it waits for a quiet moment.

Reference counts free nearly all objects at once; the collector frees cycles of references. Collections of young
objects, which take less than a millisecond, stay automatic. A full collection takes time in proportion to the number
of objects: 60 ms for a hundred thousand, at any moment. See gc.freeze and gc.set_threshold.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Protocol

from spar.observe.stats import Stats
from spar.session.sessions import Sessions

#: New objects after which the young ones are collected: the interpreter's default threshold.
YOUNG = 700
#: Seconds between two checks for a quiet moment.
EVERY = 1.0
#: Collections of the middle generation after which a full one is due: the interpreter's default threshold.
DUE = 10
#: The same for a process that is never quiet: at most 1,750,000 new objects since the last full collection.
OVERDUE = 250
#: Full collections after which the frozen objects are collected again, too.
FROZEN_FOR = 50


class Works(Protocol):
    """Agent whose cycles are counted."""

    @property
    def account(self) -> Stats: ...
    @property
    def sessions(self) -> Sessions: ...


def work_of(agent: Works) -> int | None:
    """Return the number of cycles that had work so far, None while one is running. Idle cycles do not count."""
    return None if agent.sessions.is_at_work else agent.account.worked


class Collections:
    """Full collections of the process. Each freezes the surviving objects, so that the next checks only newer ones.

    Args: work: returns a number that grows with each piece of work, None while some is running.
    """

    def __init__(self, work: Callable[[], int | None]) -> None:
        self._work = work
        self._done: int | None = None
        self._count = 0

    def begin(self) -> None:
        """Freeze the objects that exist after the start, and stop automatic full collections until `end`."""
        _, middle_aged, _ = gc.get_threshold()
        gc.set_threshold(YOUNG, middle_aged, OVERDUE)
        self._collect()

    def look(self) -> bool:
        """Collect the young objects, and all if that is due and no work was done since the last call.

        Return whether all were collected.
        """
        gc.collect(0)  # automatic only once more objects were made than freed: where old ones go, young ones gather
        before, self._done = self._done, self._work()
        if gc.get_count()[2] < DUE or self._done is None or self._done != before:
            return False
        self._count += 1
        if self._count % FROZEN_FOR == 0:
            gc.unfreeze()
        self._collect()
        return True

    @staticmethod
    def end() -> None:
        """Let the interpreter collect as usual. Frozen objects stay frozen, since the process ends."""
        young, middle_aged, _ = gc.get_threshold()
        gc.set_threshold(young, middle_aged, DUE)

    @staticmethod
    def _collect() -> None:
        gc.collect()
        gc.freeze()
