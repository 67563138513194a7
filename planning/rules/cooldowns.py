"""Cooldowns and counts of rules: when each rule was last used for a subject, and how often it was used.

Both outlive the process in the agent's memory: a cooldown changes with its cycle, counts are written a second later.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

from planning.rules.rule import Rule
from spar.clock import Clock, SystemClock, Timer
from spar.protocols import ModuleRows
from spar.types import Perception

#: Subjects whose cooldown is remembered; beyond it the oldest is forgotten and counted.
COOLDOWN_LIMIT = 10_000
#: Counts of a rule: how often it matched, fired, cooled down, failed or left out a call.
COUNTS: Final = ("matched", "fired", "cooled_down", "failed", "left_out")
#: Seconds until counts are written.
WRITTEN_AFTER = 1.0


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


class RuleCounts:
    """Counts of the rules of one planner, those of earlier processes included.

    What is new is added to the rows, since a planner that this one replaces may still count."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._new: dict[str, Counter[str]] = {rule.name: Counter() for rule in rules}
        self._fired_at: dict[str, float] = {}  # in seconds since 1970
        self._stored: Mapping[str, Mapping[str, Any]] = {}
        self._rows: ModuleRows | None = None
        self._clock: Clock = SystemClock()
        self._timer: Timer | None = None
        self._writing: asyncio.Task[None] | None = None

    def attach(self, rows: ModuleRows | None, clock: Clock) -> None:
        """Keep them in these rows."""
        self._rows, self._clock = rows, clock

    def of(self, rule: Rule) -> Counter[str]:
        """Return the new counts of a rule, which are about to change."""
        if self._timer is None and self._rows is not None:
            self._timer = self._clock.call_at(self._clock.monotonic() + WRITTEN_AFTER, self._write_later)
        return self._new[rule.name]

    def fired(self, rule: Rule, at: datetime) -> None:
        """Note when a rule fires."""
        self._fired_at[rule.name] = at.timestamp()

    def snapshot(self) -> dict[str, dict[str, Any]]:
        """Return the counts of each rule, when it last fired, and since when it is counted (None: not known)."""
        rows = {name: self._merged(self._stored.get(name), name) for name in self._new}
        return {name: {**row, **{what: _time(row.get(what)) for what in ("last_at", "since")}}
                for name, row in rows.items()}  # fmt: skip

    async def write(self) -> None:
        """Write what is new, and read what others have written. Raises: what the memory raises."""
        if self._rows is None:
            return
        stored = {name: row for name, row in (await self._rows.list()).items() if isinstance(row, Mapping)}
        now = self._clock.now().timestamp()
        for name, counts in self._new.items():
            if counts or name not in stored:
                stored[name] = {"since": now, **self._merged(stored.get(name), name)}
                self._rows.keep(name, stored[name])
                counts.clear()
        for name in stored.keys() - self._new.keys():
            self._rows.drop(name)
        self._stored = stored

    async def close(self) -> None:
        """Write what is new, and nothing later. Raises: what the memory raises."""
        for later in (self._timer, self._writing):
            if later is not None:
                later.cancel()
        self._timer = self._writing = None
        await self.write()

    def _write_later(self) -> None:
        self._timer, self._writing = (
            None,
            asyncio.get_running_loop().create_task(self._written(), name="counts of rules"),
        )

    async def _written(self) -> None:
        with suppress(Exception):  # it is tried again with the next count
            await self.write()

    def _merged(self, row: Mapping[str, Any] | None, name: str) -> dict[str, Any]:
        """Return a row with the new counts of its rule."""
        before, new = row or {}, self._new[name]
        counts = {what: before.get(what, 0) + new[what] for what in COUNTS}
        return {**before, **counts, **({"last_at": self._fired_at[name]} if name in self._fired_at else {})}


def _time(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


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
