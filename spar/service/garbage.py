"""Timing of the garbage collector: a full collection stops every thread, so it waits for a quiet moment.

Reference counts free nearly all objects at once; the collector frees cycles of references. Collections of young
objects, which take less than a millisecond, and of the middle generation stay automatic. A full collection takes time
in proportion to the number of objects: 60 ms for a hundred thousand, at any moment. See gc.freeze and gc.set_threshold.
"""

from __future__ import annotations

import gc
from collections.abc import Callable

from spar.agent.parts import AgentParts

#: New objects after which the young ones are collected: the interpreter's default threshold.
YOUNG = 700
#: Collections of young objects after which the middle generation is due. With the interpreter's default of 10, three
#: times as many objects gather: 58,000 with thousands of sessions, which take 50 ms.
MIDDLE = 2
#: Seconds between two checks for a quiet moment.
EVERY = 1.0
#: Collections of the middle generation after which a full one is due: as many new objects as by default.
DUE = 30
#: The same for a process that is never quiet: about 2,100,000 new objects since the last full collection.
OVERDUE = 750
#: Full collections after which the frozen objects are collected again, too.
FROZEN_FOR = 50


def work_of(agent: AgentParts) -> int | None:
    """Return the number of cycles that had work so far, None while one is running. Idle cycles do not count."""
    return None if agent.sessions.is_at_work else agent.account.worked


class Collections:
    """Full collections of the process. Each freezes the surviving objects, so that the next checks only newer ones.

    Args: work: returns a number that grows with each piece of work, None while some is running.
    """

    def __init__(self, work: Callable[[], int | None]) -> None:
        self._work, self._usual = work, gc.get_threshold()
        self._done: int | None = None
        self._count = 0

    def begin(self) -> None:
        """Freeze the objects that exist after the start, and stop automatic full collections until `end`."""
        gc.set_threshold(YOUNG, MIDDLE, OVERDUE)
        gc.freeze()  # what is garbage by now is little, and a full collection here would take 70 ms

    def look(self) -> bool:
        """Collect the young objects, those of the middle generation if that is due, and all if that is due and no work
        was done since the last call.

        Return whether all were collected.
        """
        # Automatic only once more objects were made than freed: where old ones go, young ones gather.
        gc.collect(1 if gc.get_count()[1] > MIDDLE else 0)
        before, self._done = self._done, self._work()
        if gc.get_count()[2] < DUE or self._done is None or self._done != before:
            return False
        self._count += 1
        if self._count % FROZEN_FOR == 0:
            gc.unfreeze()
        self._collect()
        return True

    def end(self) -> None:
        """Let the interpreter collect as before. Frozen objects stay frozen, since the process ends."""
        gc.set_threshold(*self._usual)

    @staticmethod
    def _collect() -> None:
        gc.collect()
        gc.freeze()
