"""Counts of rules by their names, kept in rows of the memory."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from spar.clock import Clock, SystemClock, Timer
from spar.protocols import ModuleRows

#: Seconds until counts are written.
WRITTEN_AFTER = 1.0


class RuleCounts:
    """Counts of rules, those of earlier processes included, in the rows of their planner.

    They are written a second after they have changed. What is new is added to the rows, since a module that this one
    replaces may still count.
    Args: quantities: the names of the counts of each rule.
    """

    def __init__(self, names: Iterable[str], quantities: Sequence[str]) -> None:
        self._quantities = quantities
        self._new: dict[str, Counter[str]] = {name: Counter() for name in names}
        self._last_at: dict[str, float] = {}  # in seconds since 1970
        self._stored: Mapping[str, Mapping[str, Any]] = {}
        self._rows: ModuleRows | None = None
        self._clock: Clock = SystemClock()
        self._timer: Timer | None = None
        self._writing: asyncio.Task[None] | None = None

    def attach(self, rows: ModuleRows | None, clock: Clock) -> None:
        """Keep them in these rows."""
        self._rows, self._clock = rows, clock

    def of(self, name: str) -> Counter[str]:
        """Return the new counts of a rule, which are about to change."""
        if self._timer is None and self._rows is not None:
            self._timer = self._clock.call_at(self._clock.monotonic() + WRITTEN_AFTER, self._write_later)
        return self._new[name]

    def happened(self, name: str, at: datetime) -> None:
        """Note when something last happened to a rule."""
        self._last_at[name] = at.timestamp()

    def snapshot(self) -> dict[str, dict[str, Any]]:
        """Return the counts of each rule, when it last happened, and since when it is counted (None: not known)."""
        rows = {name: self._merged(self._stored.get(name), name) for name in self._new}
        return {name: {**row, **{what: _time(row.get(what)) for what in ("last_at", "since")}}
                for name, row in rows.items()}  # fmt: skip

    async def write(self) -> None:
        """Write what is new, and read what others have written. Raises: what the memory raises."""
        if self._rows is None:
            return
        stored = {name: row for name, row in (await self._rows.list()).items() if isinstance(row, Mapping)}
        now, is_first = self._clock.now().timestamp(), not self._stored
        for name, counts in self._new.items():
            if counts or (is_first and name not in stored):
                stored[name] = {"since": now, **self._merged(stored.get(name), name)}
                self._rows.keep(name, stored[name])
                counts.clear()
        others = stored.keys() - self._new.keys()
        for name in others if is_first else ():  # later on they are of the module that replaces this one
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
        self._timer = None
        self._writing = asyncio.get_running_loop().create_task(self._written(), name="counts")

    async def _written(self) -> None:
        with suppress(Exception):  # it is tried again with the next count
            await self.write()

    def _merged(self, row: Mapping[str, Any] | None, name: str) -> dict[str, Any]:
        """Return a row with the new counts of its rule."""
        before, new = row or {}, self._new[name]
        counts = {what: before.get(what, 0) + new[what] for what in self._quantities}
        return {**before, **counts, **({"last_at": self._last_at[name]} if name in self._last_at else {})}


def _time(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
