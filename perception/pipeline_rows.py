"""State of the pipeline as small durable rows, written with the cycle that takes the perceptions behind the changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perception.pipeline import Pipeline
from perception.supervision.unconfirmed import Ledger
from spar.events import ErrorOccurred
from spar.protocols import Host
from spar.records.journal import RowChange

PATIENCE = 5.0  # seconds for loading or writing rows


class PipelineRows:
    """Rows of one pipeline in its agent's store, whose changes stand in `ledger`. No method raises an error; failures
    are published."""

    def __init__(self, pipeline: Pipeline, host: Host) -> None:
        self._pipeline, self._host = pipeline, host
        self._owner, self._is_loaded = f"pipeline:{host.agent}", False
        self.ledger = Ledger(self._owner, host.store, host.clock, PATIENCE, self._tell)

    async def load(self) -> None:
        """Load the stored rows, once; after a failure the pipeline begins without a memory, and the next opening loads
        them again."""
        if self._pipeline.settings.anomaly.rarity is not None and not self._is_loaded:
            why = "has no effect any more: `times` says from how many usual spreads a value is unusual"
            self._host.tell_problem("the setting perception.anomaly.rarity", why, is_note=True)
        if self._host.store is None or self._is_loaded:
            return
        rows = await self.ledger.in_time(self.ledger.list(), f"loading {self._owner!r}")
        if rows is not None:
            self._is_loaded = True
            if unread := self._pipeline.restore(rows, self._keep):
                why = f"the rows of {unread} series cannot be read by this release; these series begin anew"
                self._host.tell_problem("anomalies of numbers", why, is_note=True)

    async def close(self, *, is_at_rest: bool) -> None:
        """Write the state. Args: is_at_rest: no thread works with the pipeline; otherwise only the changes so far are
        written."""
        if is_at_rest:
            self._pipeline.settle()
        await self.ledger.save()

    def _keep(self, rows: Mapping[str, Any]) -> None:
        self.ledger.add(*(RowChange(self._owner, key, row, row is None) for key, row in rows.items()))

    def _tell(self, error: Exception, policy: str) -> None:
        self._host.events.publish(ErrorOccurred.of(error, "pipeline", "sense", policy))
