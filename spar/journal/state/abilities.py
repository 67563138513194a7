"""Abilities of an agent: what it knows of its tools, within bounds, and the rows that say so."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from spar.loop.core import Core
from spar.observe.learning import LearningCounts
from spar.records.abilities import ReadAbilities, ability_key, is_exact, is_of_strangers
from spar.records.journal import RowChange
from spar.types import Ability, Reflection, replace

#: Abilities that are remembered, one for each tool at each kind of task.
MOST_ABILITIES = 10_000
#: How many of these may be of situations that name what they are about: they push out only one another.
MOST_EXACT = 5_000
#: How many may be of trials that strangers had a say in: these, too, push out only one another.
MOST_OF_STRANGERS = 2_000


class Abilities:
    """The abilities of one agent.

    Attributes: known: by tool and kind of task; learnt: counts of what was learnt in this process.
    """

    __slots__ = ("_core", "_exact", "_strange", "_written", "known", "learnt")

    def __init__(self, core: Core) -> None:
        self._core = core
        self.known: dict[str, Ability] = {}
        self.learnt = LearningCounts()
        self._exact: dict[str, None] = {}  # their keys, the oldest trial first
        self._strange: dict[str, None] = {}
        self._written: dict[str, Ability] = {}  # as the rows say

    @property
    def owner(self) -> str:
        """Return the owner of the rows."""
        return f"ability:{self._core.name}"

    def learn(self, reflection: Reflection, read: ReadAbilities | None) -> list[str]:
        """Take over what was learnt of tools, and count it; the keys of abilities that changed or were forgotten.

        Args: read: the abilities as the reflector read them.
        """
        told = reflection.abilities
        if read is not None and (taken := [read.taken(each) for each in told]) != list(told):
            reflection = replace(reflection, abilities=taken)
        self.learnt.add(reflection, self.known)
        keys: list[str] = []
        for ability in reflection.abilities:
            keys += self._know(ability)
        return keys

    def _know(self, ability: Ability) -> Sequence[str]:
        """Situations are named by what is perceived, so there is no end to them: the oldest trial is forgotten."""
        known, key = self.known, ability_key(ability.tool, ability.task)
        known.pop(key, None)
        known[key] = ability
        exact, strange = self._exact, self._strange
        if is_of_strangers(ability.task):
            apart, most = strange, MOST_OF_STRANGERS
        elif is_exact(ability.task):
            apart, most = exact, MOST_EXACT
        else:
            apart, most = {}, 1
        apart.pop(key, None)
        apart[key] = None
        if len(known) <= MOST_ABILITIES and len(apart) <= most:
            return (key,)
        oldest = next(iter(apart if len(apart) > most else known))
        for each in (known, exact, strange):
            each.pop(oldest, None)
        return key, oldest

    # -- rows

    def changes(self, keys: Iterable[str]) -> tuple[RowChange, ...]:
        """Return the changes of the rows of these keys, for the caller to write."""
        changes, known, written = [], self.known, self._written
        for key in keys:
            if (ability := known.get(key)) is None:
                written.pop(key, None)
                changes.append(RowChange(self.owner, key, is_dropped=True))
            else:
                written[key] = ability
                changes.append(self._row_of(key, ability))
        return tuple(changes)

    def unwritten(self) -> tuple[dict[str, Ability], list[RowChange]]:
        """Return the abilities as they are now, for `has_written`, and the changes that make the rows say so."""
        known, written = dict(self.known), self._written
        changes = [RowChange(self.owner, key, is_dropped=True) for key in written.keys() - known.keys()]
        changes += [self._row_of(key, each) for key, each in known.items() if written.get(key) is not each]
        return known, changes

    def has_written(self, known: dict[str, Ability]) -> None:
        """Take note that the rows say this."""
        self._written = known

    def take_over(self, former: Iterable[Any], rows: Iterable[Any]) -> None:
        """Take up what an earlier process knew.

        Args: former: values of a file from before there were rows.
        """
        for item in former:
            self._read(item)
        self._written.clear()  # those are no rows yet
        for item in sorted(rows, key=_tried_at):
            if (ability := self._read(item)) is not None:
                self._written[ability_key(ability.tool, ability.task)] = ability

    def _row_of(self, key: str, ability: Ability) -> RowChange:
        at = self._core.clock.now().timestamp()  # by which the order of trials is known again
        return RowChange(self.owner, key, {**msgspec.structs.asdict(ability), "tried_at": at})

    def _read(self, item: Any) -> Ability | None:
        try:
            ability = msgspec.convert(item, Ability)
        except msgspec.ValidationError as error:  # of another version: what does not fit is learnt again
            self._core.log.warning("ability not taken over", agent=self._core.name, reason=str(error))
            return None
        self._know(ability)
        return ability


def _tried_at(item: Any) -> float:
    at = item.get("tried_at", item.get("at")) if isinstance(item, dict) else None  # "at" in rows of earlier versions
    return float(at) if isinstance(at, (int, float)) else 0.0
