"""State of one sensor that outlives the process: its cursor, its missed ticks, its rows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from itertools import chain
from typing import Any

from perception.supervision.buffer import CURSOR, SensorBuffer
from perception.supervision.missed import MISSED, MissedTicks
from perception.supervision.sensor_calls import SensorCalls
from perception.supervision.sensor_rows import SensorRows
from perception.supervision.sensor_task import ended
from spar.errors import PhaseTimeoutError
from spar.protocols import Host, SensorSpec
from spar.records.journal import RowChange


def rows_key(agent: str, sensor: str) -> str:
    """Return the owner name under which a store holds the rows of a sensor."""
    return f"sensor:{agent}:{sensor}"


class SensorState:
    """State of one sensor in its agent's store. Args: tell: publishes an error of saving."""

    __slots__ = ("_buffer", "_host", "_keys", "_missed", "_rows", "_spec", "_tell", "_unconfirmed")

    def __init__(self, spec: SensorSpec, host: Host, buffer: SensorBuffer, missed: MissedTicks, rows: SensorRows,
                 tell: Callable[[Exception, str], None]) -> None:  # fmt: skip
        self._spec, self._host, self._tell = spec, host, tell
        self._buffer, self._missed, self._rows, self._unconfirmed = buffer, missed, rows, buffer.unconfirmed
        #: The keys of the single values in the store.
        self._keys = {name: f"{name}:{host.agent}:{spec.name}" for name in (MISSED, CURSOR)}

    async def load(self, calls: SensorCalls) -> None:
        """Load the saved state, unless the sensor has set a cursor since. Raises: the errors of the store."""
        store, keys = self._host.store, self._keys
        if self._buffer.cursor is None and store is not None:
            cursor = await calls.make(lambda: store.load(keys[CURSOR]), "loading the cursor")
            self._missed.restore(await calls.make(lambda: store.load(keys[MISSED]), "loading what was missed"))
            self._buffer.cursor = cursor  # the last: after a failure both are loaded again

    async def save(self) -> None:
        """Save what cycles have confirmed: the missed ticks, the rows, and then the cursor, since a later cursor alone
        would lose them.

        A failure is published, and the next call tries again.
        """
        values = {change.key: [change] for change in self._unconfirmed.take("")}
        left = [part for part in (values.get(MISSED), self._rows.unsaved(), values.get(CURSOR)) if part]
        try:
            while left and await self._in_time(partial(self._write, left[0]), self._key_of(left[0][0])):
                del left[0]
        finally:
            self._unconfirmed.put_back(chain.from_iterable(left))

    def unsaved(self) -> dict[str, Any]:
        """Return the values to save now, by key: the cursor behind the perceptions that cycles have taken, and the
        missed ticks.

        The caller must save them, because they are returned only once.
        """
        return {self._keys[change.key]: change.value for change in self._unconfirmed.take("")}

    def _key_of(self, change: RowChange) -> str:
        return change.owner or self._keys[change.key]

    async def _write(self, part: Sequence[RowChange]) -> None:
        store, change = self._host.store, part[0]
        if change.owner:
            await self._rows.write(part)
        elif store is not None:
            await store.save(self._key_of(change), change.value)

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
