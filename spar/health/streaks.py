"""Streaks of failures, counted for each session and phase.

A streak begins with the first failure of a phase in a session and ends when that phase succeeds there. Other sessions
neither lengthen nor end it; a success of the phase in another session shows that the module itself works.
"""

from __future__ import annotations

from msgspec import Struct

from spar.types import PHASES, Fault, Phase

#: The most streaks. Beyond it the one whose last failure is oldest is forgotten.
MOST_STREAKS = 1_000


class Streak(Struct):
    """Failures in a row of one phase in one session.

    `fault` is the last one, `rung` how many steps of the ladder were taken, `cycle_id` the cycle that failed last,
    `mark` the successes of the phase in any session when the streak began.
    """

    session: str
    phase: Phase
    fault: Fault
    cycle_id: str
    mark: int
    count: int = 0
    rung: int = 0


class Streaks:
    """Streaks of one agent. Used from the event loop's thread only."""

    __slots__ = ("_of_count", "_order", "_successes", "worst")

    def __init__(self) -> None:
        self._order: dict[tuple[str, Phase], Streak] = {}
        self._of_count: dict[int, int] = {}
        #: How often each phase has succeeded while there was any streak.
        self._successes: dict[Phase, int] = {}
        #: The longest streak of any session and phase; 0 without any.
        self.worst = 0

    def __bool__(self) -> bool:
        return bool(self._order)

    def worst_of(self, session: str) -> int:
        """Return the longest streak of a session; 0 without any."""
        return max((streak.count for phase in PHASES if (streak := self.get(session, phase))), default=0)

    def get(self, session: str, phase: Phase) -> Streak | None:
        """Return the streak of a phase in a session; None if its last attempt did not fail."""
        return self._order.get((session, phase))

    def failed(self, session: str, phase: Phase, fault: Fault, cycle_id: str) -> tuple[Streak, Streak | None]:
        """Count a failure. Return its streak, and the streak that was forgotten for it."""
        key = (session, phase)
        streak = self._order.pop(key, None) or Streak(session, phase, fault, cycle_id, self._successes.get(phase, 0))
        streak.fault, streak.cycle_id, streak.count = fault, cycle_id, streak.count + 1
        self._order[key] = streak
        self._recount(streak.count - 1, streak.count)
        if len(self._order) <= MOST_STREAKS:
            return streak, None
        oldest = next(iter(self._order.values()))
        self._forget(oldest.session, oldest.phase)
        return streak, oldest

    def succeeded(self, session: str, phase: Phase) -> None:
        """Count a success, which ends a streak."""
        if self._order:
            self._successes[phase] = self._successes.get(phase, 0) + 1
            self._forget(session, phase)

    def has_succeeded_elsewhere(self, streak: Streak) -> bool:
        """Return whether the phase has succeeded in another session since the streak began."""
        return self._successes.get(streak.phase, 0) != streak.mark

    def _forget(self, session: str, phase: Phase) -> None:
        if (streak := self._order.pop((session, phase), None)) is not None:
            self._recount(streak.count, 0)

    def _recount(self, before: int, now: int) -> None:
        """Update the length of one streak and the greatest length.

        The search for the greatest length goes downwards, at most as far as it once grew.
        """
        for count, change in ((before, -1), (now, 1)):
            if count:
                self._of_count[count] = self._of_count.get(count, 0) + change
        self.worst = max(self.worst, now)
        while self.worst and not self._of_count.get(self.worst):
            del self._of_count[self.worst]
            self.worst -= 1
