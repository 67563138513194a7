"""Missed ticks of one trigger: counts by reason for as long as its service exists, and a list of the latest.

They are one small row of the store, written together with the sensor's cursor. A tick that is reported twice, because
the process crashed in between, is counted once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from perception.supervision.unconfirmed import MISSED, Unconfirmed
from spar.records.journal import RowChange

#: Latest missed ticks in the list.
KEPT = 100
#: Latest missed ticks in a status.
SHOWN = 5
#: Reasons for a missed tick, which are the first word of the sensor's text; other words count as "other".
REASONS = ("late", "overlap", "refused", "many", "other")


class MissedTicks:
    """Account of one trigger. Args: unconfirmed: is given each new state, to be saved with the next cycle."""

    __slots__ = ("_latest", "_unconfirmed", "counts")

    def __init__(self, unconfirmed: Unconfirmed) -> None:
        self._unconfirmed = unconfirmed
        self.counts: dict[str, int] = {}
        self._latest: deque[tuple[str, str]] = deque(maxlen=KEPT)

    def add(self, due_at: datetime, reason: str) -> None:
        """Count a missed tick, once."""
        entry = (due_at.astimezone(UTC).isoformat(), reason)
        word = _word(reason)
        if any(at == entry[0] and _word(why) == word for at, why in self._latest):
            return
        self._latest.append(entry)
        self.counts[word] = self.counts.get(word, 0) + 1
        self._unconfirmed.add(RowChange("", MISSED, self.state()))

    def state(self) -> dict[str, Any]:
        """Return the JSON-able state for the store."""
        return {"counts": dict(self.counts), "latest": [list(entry) for entry in self._latest]}

    def restore(self, state: object) -> None:
        """Load a stored state, unless something was added already; an unreadable state is ignored."""
        if not isinstance(state, Mapping) or self.counts:
            return
        counts, latest = state.get("counts"), state.get("latest")
        if isinstance(counts, Mapping):
            self.counts = {word: number for word, number in counts.items() if word in REASONS and type(number) is int}
        for entry in latest if isinstance(latest, (list, tuple)) else ():
            if isinstance(entry, (list, tuple)) and len(entry) == 2 and all(isinstance(part, str) for part in entry):
                self._latest.append((entry[0], entry[1]))

    def snapshot(self) -> dict[str, Any]:
        """Return the counts of missed ticks by reason, and the latest, JSON-able; safe from any thread.

        A reason that never occurred has the count 0: a counter that Prometheus first sees at 1 has not increased for
        it.
        """
        latest = [{"due_at": at, "reason": reason} for at, reason in list(self._latest)[-SHOWN:]]
        return {"counts": {**dict.fromkeys(REASONS, 0), **self.counts}, "latest": latest}


def _word(reason: str) -> str:
    word = reason.partition(":")[0]
    return word if word in REASONS else "other"
