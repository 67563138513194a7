"""Timing of the garbage collector: a look at all objects holds every thread up, so it waits for a quiet moment.

Reference counts free nearly everything at once; the collector is there for cycles of references. It keeps looking at
young objects whenever it likes, which takes less than a millisecond. A look at all of them takes as long as there are
objects: 60 ms for a hundred thousand, in the middle of whatever goes on. See gc.freeze and gc.set_threshold.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Protocol

from spar.observe.stats import Stats
from spar.session.sessions import Sessions

#: Objects made and kept until young ones are looked at: the interpreter's own threshold.
YOUNG = 700
#: Seconds between two looks for a quiet moment.
EVERY = 1.0
#: Collections of middle-aged objects after which a look at all is due: the interpreter's own threshold.
DUE = 10
#: The same in a process that is never quiet: 1,750,000 objects made and kept since the last look, at the most.
OVERDUE = 250
#: Looks at a quiet moment, after which what was set apart is looked at again.
FROZEN_FOR = 50


class Works(Protocol):
    """An agent whose cycles are counted."""

    @property
    def account(self) -> Stats: ...
    @property
    def sessions(self) -> Sessions: ...


def work_of(agent: Works) -> int | None:
    """Return how many cycles had something to do so far; None while one goes on. An idle cycle disturbs nothing."""
    return None if agent.sessions.is_at_work else agent.account.worked


class Collections:
    """Looks at all objects: each sets those that live on apart, so that the next one has only newer ones to look at."""

    def __init__(self, work: Callable[[], int | None]) -> None:
        """Args: work: returns how much was done so far, None while something is under way."""
        self._work = work
        self._done: int | None = None
        self._count = 0

    def begin(self) -> None:
        """Set apart what the start has made, and collect at quiet moments from now on, until `end`."""
        _, middle_aged, _ = gc.get_threshold()
        gc.set_threshold(YOUNG, middle_aged, OVERDUE)
        self._collect()

    def look(self) -> bool:
        """Collect if that is due and nothing was done since the last look; return whether it was collected."""
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
        """Let the interpreter collect as usual; what was set apart stays so, for the process ends."""
        young, middle_aged, _ = gc.get_threshold()
        gc.set_threshold(young, middle_aged, DUE)

    @staticmethod
    def _collect() -> None:
        gc.collect()
        gc.freeze()
