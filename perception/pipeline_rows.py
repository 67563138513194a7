"""State of the pipeline as small durable rows, written with the cycle that takes the perceptions behind the changes."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

from perception.pipeline import Pipeline
from perception.supervision.sensor_task import ended
from perception.supervision.unconfirmed import Unconfirmed
from spar.errors import PhaseTimeoutError
from spar.events import ErrorOccurred
from spar.ports.small_rows import rows_of
from spar.protocols import Host
from spar.records.journal import RowChange
from spar.types import Fault

PATIENCE = 5.0  # seconds for loading or writing rows


class PipelineRows:
    """Rows of one pipeline in its agent's store. No method raises an error; failures are published."""

    def __init__(self, pipeline: Pipeline, host: Host) -> None:
        self._pipeline, self._host = pipeline, host
        self._owner = f"pipeline:{host.agent}"
        self._store = rows_of(host.store)
        self._is_loaded = False
        self._unconfirmed = Unconfirmed()

    async def load(self) -> None:
        """Load the stored rows, once; after a failure the pipeline begins without a memory, and the next opening loads
        them again."""
        if self._pipeline.settings.anomaly.rarity is not None and not self._is_loaded:
            why = "has no effect any more: `times` says from how many usual spreads a value is unusual"
            self._host.tell_problem("the setting perception.anomaly.rarity", why, is_note=True)
        if self._store is None or self._is_loaded:
            return
        rows = await self._in_time(self._store.rows(self._owner), "loading")
        if rows is not None:
            self._is_loaded = True
            self._pipeline.restore(rows)
            if unread := self._pipeline.unread_series:
                why = f"the rows of {unread} series cannot be read by this release; these series begin anew"
                self._host.tell_problem("anomalies of numbers", why, is_note=True)

    def changes(self) -> Sequence[RowChange]:
        """Return the changes to write now, and forget them: the caller must write them."""
        changed: Mapping[str, Any] = self._pipeline.unsaved()
        self._unconfirmed.add(*(RowChange(self._owner, key, row, row is None) for key, row in changed.items()))
        changes = self._unconfirmed.take(self._owner)
        return () if self._store is None else changes

    async def close(self, *, is_at_rest: bool) -> None:
        """Write the state. Args: is_at_rest: no thread works with the pipeline; otherwise only the changes so far are
        written."""
        if is_at_rest:
            self._pipeline.settle()
        await self.save()

    async def save(self) -> None:
        """Write the changes that no cycle has written; after a failure the next call tries again."""
        if (changes := self.changes()) and self._store is not None:
            done = await self._in_time(self._written(self._store.change(changes)), "saving")
            if done is None:
                self._unconfirmed.put_back(changes)

    async def _written(self, work: Coroutine[Any, Any, None]) -> bool:
        await work
        return True

    async def _in_time(self, work: Coroutine[Any, Any, Any], doing: str) -> Any:
        """Return the result of the store; None after a failure, which is published."""
        try:
            task = asyncio.ensure_future(work)
            if not await ended(task, PATIENCE, self._host.clock):
                task.cancel()
                raise PhaseTimeoutError(f"{doing} the rows {self._owner!r} took longer than {PATIENCE:g} s")
            return task.result()
        except Exception as error:
            fault = Fault.of(error, part="pipeline", phase="sense")
            self._host.events.publish(
                ErrorOccurred(cycle_id="", phase="sense", error=fault, policy="skip", exception=error)
            )
            return None
