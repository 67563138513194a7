"""Abilities of an agent, their rows in the memory, and counts of what it has learnt in this process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import msgspec

from spar.data.learning.abilities import AgedAbilities, KnownAbilities, ReadAbilities, ability_key
from spar.decoding import convert
from spar.loop.core import Core
from spar.records.journal import RowChange
from spar.threads import OTHERS_TURN, SLICE
from spar.types import Ability, Reflection

#: Most kinds of failures with a count of their own; the others share one count.
MOST_KINDS = 50
OTHER_KINDS = "other"


class LearningCounts:
    """Counts of one agent.

    `failures` are by kind of cause, `feedback` by its source and by good or bad, `advised` by the result of asking a
    model.
    """

    __slots__ = ("advised", "failures", "feedback", "trials")

    def __init__(self) -> None:
        self.trials = 0
        self.failures: Counter[str] = Counter()
        self.feedback: Counter[tuple[str, str]] = Counter()
        self.advised: Counter[str] = Counter()

    def add(self, reflection: Reflection) -> None:
        """Count what a reflection contains besides the trials."""
        for failure in reflection.failures:
            kind = failure.kind or OTHER_KINDS
            self.failures[kind if kind in self.failures or len(self.failures) < MOST_KINDS else OTHER_KINDS] += 1
        for word in reflection.feedback:
            self.feedback[word.by, "good" if word.success else "bad"] += 1
        if reflection.advised:
            self.advised[reflection.advised] += 1


class Abilities:
    """The abilities of one agent.

    Attributes: known: by tool and kind of task; learnt: counts of what was learnt in this process; aged: the
    abilities as they are now; read: returns them for a reflector, and they note what it reads.
    """

    __slots__ = ("_core", "_written", "_written_at", "aged", "known", "learnt", "read")

    def __init__(self, core: Core) -> None:
        self._core = core
        self.known = KnownAbilities()
        self.aged = AgedAbilities(self.known, core.clock.now)
        self.read = partial(ReadAbilities, self.known, core.clock.now)
        self.learnt = LearningCounts()
        self._written: dict[str, Ability] = {}  # the abilities as the rows have them
        self._written_at: dict[str, float] = {}  # and the time in each

    @property
    def owner(self) -> str:
        """Return the owner of the rows."""
        return f"ability:{self._core.name}"

    def learn(self, reflection: Reflection, read: ReadAbilities | None) -> list[str]:
        """Apply the abilities of a reflection, and count them; return the keys of changed and forgotten abilities.

        Args: read: the abilities as the reflector read them.
        """
        self.learnt.add(reflection)
        if not reflection.abilities:
            return []
        keys, trials = self.known.learn(reflection.abilities, read)
        self.learnt.trials += trials
        return keys

    # -- rows

    def changes(self, keys: Iterable[str]) -> tuple[RowChange, ...]:
        """Return the row changes for these keys, for the caller to write."""
        changes, known, written = [], self.known.stored, self._written
        for key in keys:
            if (ability := known.get(key)) is None:
                written.pop(key, None)
                self._written_at.pop(key, None)
                changes.append(RowChange(self.owner, key, is_dropped=True))
            else:
                written[key] = ability
                changes.append(self._row_of(key, ability))
        return tuple(changes)

    def unwritten(self) -> tuple[dict[str, Ability], list[RowChange]]:
        """Return the present abilities, for `has_written`, and the row changes that bring the rows up to date."""
        known, written = dict(self.known.stored), self._written
        changes = [RowChange(self.owner, key, is_dropped=True) for key in written.keys() - known.keys()]
        changes += [self._row_of(key, ability) for key, ability in known.items() if written.get(key) is not ability]
        return known, changes

    def has_written(self, known: dict[str, Ability]) -> None:
        """Note that the rows contain these abilities."""
        self._written = known

    def take_over(self, former: Iterable[Any], rows: Iterable[Any]) -> None:
        """Load the abilities of an earlier process.

        Args: former: values of a file from before there were rows.
        """
        for item in former:
            self._read(item)
        self._written.clear()  # these values are not in rows yet
        for item in sorted(rows, key=_tried_at):
            self._take(item)

    def _take(self, item: Any) -> None:
        """Take an ability over from its row."""
        if (ability := self._read(item)) is not None:
            key = ability_key(ability.tool, ability.task)
            self._written[key], self._written_at[key] = ability, _tried_at(item)

    async def refresh(self, rows: Mapping[str, Any]) -> None:
        """Take over what other processes have learnt or forgotten. Args: rows: the present ones by key."""
        for key in self._written_at.keys() - rows.keys():
            del self._written_at[key]
            self._written.pop(key, None)
            self.known.pop(key, None)
        new = [row for key, row in rows.items() if _tried_at(row) != self._written_at.get(key)]
        for count, item in enumerate(sorted(new, key=_tried_at), 1):
            self._take(item)
            if count % SLICE == 0:
                await OTHERS_TURN

    def _row_of(self, key: str, ability: Ability) -> RowChange:
        at = self._written_at[key] = self._core.clock.now().timestamp()  # keeps the order of trials across restarts
        return RowChange(self.owner, key, {**msgspec.structs.asdict(ability), "tried_at": at})

    def _read(self, item: Any) -> Ability | None:
        try:
            ability = convert(item, Ability)
        except msgspec.ValidationError as error:  # written by another version; it is learnt again
            self._core.log.warning("ability not taken over", agent=self._core.name, reason=str(error))
            return None
        self.known.know(ability)
        return ability


def _tried_at(item: Any) -> float:
    at = item.get("tried_at", item.get("at")) if isinstance(item, dict) else None  # "at" in rows of earlier versions
    return float(at) if isinstance(at, (int, float)) else 0.0
