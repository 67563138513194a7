"""Abilities of an agent: its success counts for each tool and kind of task, bounded, and their rows in the memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from spar.decoding import convert
from spar.loop.core import Core
from spar.observe.stats import LearningCounts
from spar.records.abilities import AgedAbilities, KnownAbilities, ReadAbilities, ability_key, is_exact, is_of_strangers
from spar.records.journal import RowChange
from spar.threads import OTHERS_TURN, SLICE
from spar.types import Ability, Reflection, replace

#: The most abilities, one for each tool at each kind of task.
MOST_ABILITIES = 10_000
#: The most abilities for exact situations. Beyond it such an ability replaces only another of its kind.
MOST_EXACT = 5_000
#: The most abilities from trials that untrusted people influenced. They, too, replace only one another.
MOST_OF_STRANGERS = 2_000


class Abilities:
    """The abilities of one agent.

    Attributes: known: by tool and kind of task; learnt: counts of what was learnt in this process; aged: the
    abilities as they are now; read: returns them for a reflector, and they note what it reads.
    """

    __slots__ = ("_core", "_exact", "_from_strangers", "_written", "_written_at", "aged", "known", "learnt", "read")

    def __init__(self, core: Core) -> None:
        self._core = core
        self.known = KnownAbilities()
        self.aged = AgedAbilities(self.known, core.clock)
        self.read = partial(ReadAbilities, self.known, core.clock)
        self.learnt = LearningCounts()
        self._exact: dict[str, None] = {}  # keys, the oldest trial first
        self._from_strangers: dict[str, None] = {}
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
        abilities = reflection.abilities
        if read is not None and (merged := [read.taken(ability) for ability in abilities]) != list(abilities):
            reflection = replace(reflection, abilities=merged)
        self.learnt.add(reflection, self.known)
        keys: list[str] = []
        for ability in reflection.abilities:
            keys += self._know(ability)
        return keys

    def _know(self, ability: Ability) -> Sequence[str]:
        """Store an ability; forget the one with the oldest trial beyond a bound, since the number of situations has
        none. Return the changed keys."""
        known, key = self.known, ability_key(ability.tool, ability.task)
        known[key] = ability
        exact, from_strangers = self._exact, self._from_strangers
        if is_of_strangers(ability.task):
            bounded, most = from_strangers, MOST_OF_STRANGERS
        elif is_exact(ability.task):
            bounded, most = exact, MOST_EXACT
        else:
            bounded, most = {}, 1
        bounded.pop(key, None)
        bounded[key] = None
        if len(known) <= MOST_ABILITIES and len(bounded) <= most:
            return (key,)
        oldest = next(iter(bounded if len(bounded) > most else known))
        del known[oldest]
        for table in (exact, from_strangers):
            table.pop(oldest, None)
        return key, oldest

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
        self._know(ability)
        return ability


def _tried_at(item: Any) -> float:
    at = item.get("tried_at", item.get("at")) if isinstance(item, dict) else None  # "at" in rows of earlier versions
    return float(at) if isinstance(at, (int, float)) else 0.0
