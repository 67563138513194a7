"""State of one sensor that outlives the process: its cursor, its missed ticks, its rows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from perception.supervision.buffer import NOTHING, SensorBuffer
from perception.supervision.missed import MissedTicks
from perception.supervision.sensor_calls import SensorCalls
from perception.supervision.sensor_rows import SensorRows
from perception.supervision.sensor_task import ended
from spar.errors import PhaseTimeoutError
from spar.protocols import Host, SensorSpec


def rows_key(agent: str, sensor: str) -> str:
    """Return the owner name under which a store holds the rows of a sensor."""
    return f"sensor:{agent}:{sensor}"


class SensorState:
    """State of one sensor in its agent's store. Args: tell: publishes an error of saving."""

    __slots__ = ("_buffer", "_cursor_key", "_host", "_missed", "_missed_key", "_rows", "_rows_key", "_spec", "_tell")

    def __init__(self, spec: SensorSpec, host: Host, buffer: SensorBuffer, missed: MissedTicks, rows: SensorRows,
                 tell: Callable[[Exception, str], None]) -> None:  # fmt: skip
        self._spec, self._host, self._tell = spec, host, tell
        self._buffer, self._missed, self._rows = buffer, missed, rows
        self._cursor_key, self._missed_key = f"cursor:{host.agent}:{spec.name}", f"missed:{host.agent}:{spec.name}"
        self._rows_key = rows_key(host.agent, spec.name)

    async def load(self, calls: SensorCalls) -> None:
        """Load the saved state, unless the sensor has set a cursor since. Raises: the errors of the store."""
        store = self._host.store
        if self._buffer.cursor is None and store is not None:
            cursor = await calls.make(lambda: store.load(self._cursor_key), "loading the cursor")
            self._missed.restore(await calls.make(lambda: store.load(self._missed_key), "loading what was missed"))
            self._buffer.cursor = cursor  # the last: after a failure both are loaded again

    async def save(self) -> None:
        """Save the cursor behind the perceptions that went through a cycle, and the ticks missed before it.

        A failure is published, and the next call tries again.
        """
        buffer, missed = self._buffer, self._missed
        if missed.is_unsaved:
            missed.is_unsaved = False
            if not await self._saved(self._missed_key, missed.state()):
                missed.is_unsaved = True
                return  # saving a later cursor now would lose the missed tick
        if self._rows.has_news and not await self._in_time(self._rows.save, self._rows_key):
            return
        cursor = buffer.unsaved
        if cursor is not NOTHING and await self._saved(self._cursor_key, cursor) and buffer.unsaved is cursor:
            buffer.unsaved = NOTHING

    def unsaved(self) -> dict[str, Any]:
        """Return the values to save now, by key: the cursor behind the perceptions that cycles have taken, and the
        missed ticks.

        The caller must save them, because they are returned only once.
        """
        values: dict[str, Any] = {}
        if self._missed.is_unsaved:
            self._missed.is_unsaved = False
            values[self._missed_key] = self._missed.state()
        if self._buffer.unsaved is not NOTHING:
            values[self._cursor_key], self._buffer.unsaved = self._buffer.unsaved, NOTHING
        return values

    async def _saved(self, key: str, value: Any) -> bool:
        store = self._host.store
        return store is None or await self._in_time(lambda: store.save(key, value), key)

    async def _in_time(self, work: Callable[[], Coroutine[Any, Any, None]], key: str) -> bool:
        try:
            saving = asyncio.ensure_future(work())
            if not await ended(saving, self._spec.timeout, self._host.clock):
                saving.cancel()
                raise PhaseTimeoutError(f"saving {key!r} took longer than {self._spec.timeout:g} s")
            saving.result()
        except Exception as error:
            self._tell(error, "retry")
            return False
        return True
