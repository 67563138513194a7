"""Failures in a row, counted for each session and phase.

A streak begins with the first failure of a phase in a session and ends when that phase has succeeded there. What other
sessions do neither counts nor ends it; that a phase succeeded elsewhere meanwhile says that its module is well.
"""

from __future__ import annotations

from msgspec import Struct

from spar.types import Fault, Phase

#: Streaks that are remembered; of more, those that failed longest ago are forgotten.
MOST_STREAKS = 1_000


class Streak(Struct):
    """The failures in a row of one phase in one session.

    `fault` is the last one, `rung` how many steps of the ladder were taken, `cycle_id` the cycle that failed last.
    """

    session: str
    phase: Phase
    fault: Fault
    cycle_id: str
    mark: int
    count: int = 0
    rung: int = 0


class Streaks:
    """The streaks of one agent. Used from the event loop's thread."""

    __slots__ = ("_of_count", "_of_session", "_order", "_successes", "worst")

    def __init__(self) -> None:
        self._order: dict[tuple[str, Phase], Streak] = {}
        self._of_session: dict[str, dict[Phase, Streak]] = {}
        self._of_count: dict[int, int] = {}
        #: By phase, how often it has succeeded while there was any streak.
        self._successes: dict[Phase, int] = {}
        #: The longest streak of any session and phase; 0 without any.
        self.worst = 0

    def __bool__(self) -> bool:
        return bool(self._order)

    def worst_of(self, session: str) -> int:
        """The longest streak of a session; 0 without any."""
        return max((streak.count for streak in self._of_session.get(session, {}).values()), default=0)

    def get(self, session: str, phase: Phase) -> Streak | None:
        """The streak of a phase in a session, None when it did not fail last."""
        return self._of_session.get(session, {}).get(phase)

    def failed(self, session: str, phase: Phase, fault: Fault, cycle_id: str) -> tuple[Streak, Streak | None]:
        """Count a failure. Returns its streak, and the one that was forgotten for it."""
        key = (session, phase)
        streak = self._order.pop(key, None) or Streak(session, phase, fault, cycle_id, self._successes.get(phase, 0))
        streak.fault, streak.cycle_id, streak.count = fault, cycle_id, streak.count + 1
        self._order[key] = streak
        self._recount(streak.count - 1, streak.count)
        self._of_session.setdefault(session, {})[phase] = streak
        if len(self._order) <= MOST_STREAKS:
            return streak, None
        oldest = next(iter(self._order.values()))
        self._forget(oldest.session, oldest.phase)
        return streak, oldest

    def succeeded(self, session: str, phase: Phase) -> Streak | None:
        """Count a success. Returns the streak that it ends, if there was one."""
        if not self._order:
            return None
        self._successes[phase] = self._successes.get(phase, 0) + 1
        return self._forget(session, phase)

    def has_succeeded_elsewhere(self, streak: Streak) -> bool:
        """Return whether the phase has succeeded in another session since the streak began."""
        return self._successes.get(streak.phase, 0) != streak.mark

    def _forget(self, session: str, phase: Phase) -> Streak | None:
        streak = self._order.pop((session, phase), None)
        if streak is not None:
            self._recount(streak.count, 0)
            of_session = self._of_session[session]
            del of_session[phase]
            if not of_session:
                del self._of_session[session]
        return streak

    def _recount(self, before: int, now: int) -> None:
        """A streak is now so long; the longest is searched for downwards, at most as far as it once grew."""
        for count, change in ((before, -1), (now, 1)):
            if count:
                self._of_count[count] = self._of_count.get(count, 0) + change
        self.worst = max(self.worst, now)
        while self.worst and not self._of_count.get(self.worst):
            del self._of_count[self.worst]
            self.worst -= 1
