"""Cooldowns of rules: when each rule was last used for a subject; they survive a restart in the agent's memory."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from planning.rules.rule import Rule
from spar.clock import Clock
from spar.protocols import ModuleRows
from spar.types import Perception

#: Subjects whose cooldown is remembered; beyond it the oldest is forgotten and counted.
COOLDOWN_LIMIT = 10_000


class Cooldowns:
    """Cooldowns of the rules of one planner; `forgotten` counts those for which there was no room."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = rules
        self._fired: dict[tuple[int, str], float] = {}  # in monotonic seconds, by rule number and subject, oldest first
        self._rows: ModuleRows | None = None  # in seconds since 1970, by rule name and subject
        self.has_loaded = True
        self.forgotten = 0

    def __len__(self) -> int:
        return len(self._fired)

    def attach(self, rows: ModuleRows | None) -> None:
        """Keep them in these rows; they are to be loaded before the next use."""
        self._rows, self.has_loaded = rows, rows is None

    async def load(self, clock: Clock) -> None:
        """Take over the cooldowns of earlier processes, by the names of the rules; those that are over are dropped.

        A row that cannot be read is dropped and counted in `forgotten`; the others are taken over all the same.
        Raises: what the memory raises.
        """
        if self._rows is None:
            return
        rows = await self._rows.list()
        self.has_loaded = True
        now, monotonic = clock.now().timestamp(), clock.monotonic()
        by_name = {rule.name: rule for rule in self._rules}
        former: dict[tuple[int, str], float] = {}
        for key, at in sorted(rows.items(), key=_fired_at):
            name, subject = _rule_and_subject(key)
            self.forgotten += not name
            rule = by_name.get(name)
            age = max(now - _fired_at((key, at)), 0.0)
            if rule is None or age >= rule.cooldown:
                self._rows.drop(key)
            else:
                former[rule.number, subject] = monotonic - age
        self._fired = {**former, **self._fired}

    def is_ready(self, rule: Rule, perception: Perception, clock: Clock) -> bool:
        """Return whether a rule may be used for what a perception is about."""
        if not rule.cooldown:
            return True
        last = self._fired.get((rule.number, _subject(perception)))
        return last is None or clock.monotonic() - last >= rule.cooldown

    def begin(self, rule: Rule, perception: Perception, clock: Clock, cycle_id: str) -> None:
        """Begin the cooldown of a rule that was used for what a perception is about."""
        if not rule.cooldown:
            return
        key = (rule.number, _subject(perception))
        self._fired.pop(key, None)  # the key moves to the end, so that the dictionary stays in the order of firing
        self._fired[key] = clock.monotonic()
        if self._rows is not None:
            self._rows.keep(self._row_of(key), clock.now().timestamp(), cycle_id=cycle_id)
        if len(self._fired) > COOLDOWN_LIMIT:
            oldest = next(iter(self._fired))
            del self._fired[oldest]
            self.forgotten += 1
            if self._rows is not None:
                self._rows.drop(self._row_of(oldest), cycle_id=cycle_id)

    def _row_of(self, key: tuple[int, str]) -> str:
        number, subject = key
        return json.dumps([self._rules[number].name, subject])


def _rule_and_subject(key: str) -> tuple[str, str]:
    """Return the name of the rule and the subject of a row; two empty texts where the key is none of this module."""
    try:
        name, subject = json.loads(key)
    except (ValueError, TypeError):
        return "", ""
    return (name, subject) if isinstance(name, str) and isinstance(subject, str) else ("", "")


def _fired_at(row: tuple[str, Any]) -> float:
    """Return the time of a row, in seconds since 1970; 0 where the row holds no time."""
    at = row[1]
    return float(at) if isinstance(at, (int, float)) and at == at else 0.0


def _subject(perception: Perception) -> str:
    """Return the subject of a perception; a long one by its digest, so that memory stays bounded."""
    subject = perception.subject or ""
    if len(subject) <= 200:
        return subject
    return hashlib.blake2b(subject.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
