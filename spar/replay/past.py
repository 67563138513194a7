"""Past of an agent: the store, the clock and the conversation as they were at a time. Nothing of it can be written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from spar.clock import SystemClock, Timer
from spar.decoding import convert
from spar.errors import SparError
from spar.ports.any_part import has, offers
from spar.ports.rows import rows_in
from spar.ports.store import DurableStore, InspectsExperiences
from spar.records.abilities import AgedAbilities, KnownAbilities
from spar.records.transcript import Entry, still_read
from spar.types import Ability, Experience

#: Factor by which more experiences are read than are asked for, because newer ones are left out.
_LOOKED_AT: Final = 4
#: Most entries of a conversation that are read.
_MOST_ENTRIES: Final = 5_000


class NoTimer:
    """Timer that never goes off."""

    def cancel(self) -> None:
        return None


class PastClock(SystemClock):
    """Clock that stands at a recorded time, `at`. Its timers never go off; `sleep` is real."""

    def __init__(self) -> None:
        self.at = datetime.fromtimestamp(0, UTC)

    def now(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        return self.at.timestamp()

    def call_at(self, when: float, callback: Callable[[], object]) -> Timer:
        return NoTimer()


class PastRows:
    """Rows of a module in memory. Args: values: the rows by key; they are changed."""

    def __init__(self, values: dict[str, Any]) -> None:
        self._values = values

    def keep(self, key: str, value: Any, *, cycle_id: str = "") -> None:
        self._values[key] = value

    def drop(self, key: str, *, cycle_id: str = "") -> None:
        self._values.pop(key, None)

    async def list(self) -> Mapping[str, Any]:
        return dict(self._values)


class PastStore:
    """Experiences, abilities and conversations of an agent as of the time of a clock, read from its store.

    What was forgotten, merged or changed since then is not known any more.
    """

    def __init__(self, memory: Any, agent: str, clock: PastClock) -> None:
        self._memory, self._agent, self._clock = memory, agent, clock
        self._abilities: list[Ability] | None = None

    def use(self, memory: Any) -> None:
        """Read from this store from now on."""
        self._memory, self._abilities = memory, None

    async def recall(self, query: str, k: int = 5, **filters: Any) -> Sequence[Experience]:
        """Return the experiences from before the time that match best."""
        if not has(self._memory, DurableStore.recall):
            return ()
        experiences = await self._memory.recall(query, _LOOKED_AT * k, **filters)
        return [experience for experience in experiences if self._was_known(experience)][:k]

    async def search(self, query: str, k: int = 5, **filters: Any) -> Sequence[Any]:
        """Return the best matches among the experiences from before the time."""
        if not offers(self._memory, InspectsExperiences):
            return ()
        matches = await self._memory.search(query, _LOOKED_AT * k, **filters)
        return [match for match in matches if self._was_known(match.experience)][:k]

    def _was_known(self, experience: Experience) -> bool:
        return (experience.first_at or experience.at) < self._clock.at

    async def read(self, session: str) -> Sequence[Entry]:
        """Return the conversation of a session at the time, the oldest entry first, as a planner reads it."""
        if not has(self._memory, DurableStore.transcripts):
            return ()
        entries = await self._memory.transcripts.tail(self._agent, session, _MOST_ENTRIES)
        return conversation_before(entries, self._clock.at)

    async def compact(self, session: str, run_id: str, entry: Entry) -> None:
        """Refuse to write. Raises: SparError."""
        raise SparError("the past cannot be changed")

    async def abilities(self) -> Mapping[str, Ability]:
        """Return the abilities whose last trial was before the time; what the others were then is not known."""
        if self._abilities is None:
            stored = await rows_in(self._memory, f"ability:{self._agent}")
            self._abilities = [convert(row, Ability) for row in stored.values()]
        if not self._abilities:
            return {}
        at = self._clock.at.timestamp()
        return AgedAbilities(KnownAbilities(one for one in self._abilities if one.at < at), self._clock)


def conversation_before(entries: Sequence[Entry], at: datetime) -> Sequence[Entry]:
    """Return the entries from before a time that a planner read then: from the last summary or reset on."""
    return still_read([entry for entry in entries if entry.at < at])
