"""Small state: single values, small rows, counts and budgets. It is written in the transaction of the current batch."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from memory import audit, own_rows
from memory.codec.columns import safe, sealed
from memory.codec.encoding import exactly
from memory.journal import budgets, counts, statements
from memory.journal.writing.handover import NO_ORIGIN, Handover, Origin, Writers, many
from spar import facts
from spar.clock import Clock
from spar.records.audit import claim
from spar.records.journal import RowChange
from spar.types import Fault, replace

_save, _spend = many(statements.SAVE), many(budgets.SPEND)
_CHANGES = {sql: many(sql) for sql in (own_rows.KEEP, own_rows.DROP)}


class SmallState:
    """Writer of small state.

    Args: open_cycles: the ids of the open cycles; report: called for a sensor's value that cannot be stored.

    `waiting` are statements on small rows that are not yet in a batch, by the id of the open cycle that they wait for.
    """

    __slots__ = ("_clock", "_handover", "_open_cycles", "_report", "waiting")

    def __init__(
        self, handover: Handover, open_cycles: Collection[str], clock: Clock, report: Callable[[Fault], None]
    ) -> None:
        self._handover, self._open_cycles, self._clock, self._report = handover, open_cycles, clock, report
        self.waiting: dict[str, list[own_rows.Statement]] = {}

    @property
    def writers(self) -> Writers:
        """Return the method that writes each kind of fact."""
        return {
            facts.ValueSaved: self._saved,
            facts.RowsChanged: self._changed,
            facts.TotalsCounted: self._counted,
            facts.BudgetUsed: self._used,
        }

    def _saved(self, fact: facts.ValueSaved, agent: str) -> None:
        self._save(fact.key, fact.value)

    def _save(self, key: str, value: Any) -> None:
        self._handover.add(_save, (safe(key), sealed(exactly(value, f"state {key!r:.100}"))))

    def _changed(self, fact: facts.RowsChanged, agent: str) -> None:
        self._change(fact.changes, fact.cycle)

    def _change(self, changes: Iterable[RowChange], work: str = "") -> None:
        rows = own_rows.statements(changes)
        if work in self._open_cycles:
            self.waiting.setdefault(work, []).extend(rows)
        else:
            self.apply(rows)

    def apply(self, rows: Sequence[own_rows.Statement], origin: Origin = NO_ORIGIN) -> None:
        """Write changes of small rows, and the entry of the audit log about the request that made them."""
        self.write(rows, origin)
        for _, bindings in rows:
            self.audit(bindings[0].partition(":")[0])

    def take_up(self, cursors: Mapping[str, Any], changes: Iterable[RowChange]) -> None:
        """Write the cursors and small rows of sensors.

        If one cannot be stored, that is reported and its old value stays: after a restart the sensor then repeats
        perceptions instead of losing them.
        """
        for key, cursor in cursors.items():
            self._try(partial(self._save, key, cursor), key)
        for change in changes:
            self._try(partial(self._change, (change,)), change.owner)

    def write(self, rows: Iterable[own_rows.Statement], origin: Origin = NO_ORIGIN) -> None:
        """Write changes of small rows that need not wait."""
        for sql, bindings in rows:
            self._handover.add(_CHANGES[sql], bindings, len(bindings[-1]), origin)

    def audit(self, kind: str) -> None:
        """Write the entry of the audit log about the current request, if its draft waits for a row of this kind."""
        if (draft := claim(kind)) is not None:
            self._handover.add(audit.write_all, (draft, self._clock.now().timestamp()))

    def _counted(self, fact: facts.TotalsCounted, agent: str) -> None:
        self._handover.add(counts.put, (agent, dict(fact.total)))
        self._handover.hand_over()  # only ends of cycles that are written after this are added to the totals

    def _used(self, fact: facts.BudgetUsed, agent: str) -> None:
        for spend in fact.spends:
            self._handover.add(_spend, (spend.window, spend.quantity, spend.amount))

    def _try(self, write: Callable[[], None], name: str) -> None:
        """Write a value of a sensor. A failure is reported and does not stop the writes after it."""
        try:
            write()
        except ValueError as error:
            self._report(replace(Fault.of(error, part=name, phase="sense"), retryable=False))
