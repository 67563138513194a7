"""Small state that changes together with what is told in the same moment: values, rows, counts and budgets."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any

from memory import audit, own_rows
from memory.codec.columns import safe, sealed
from memory.codec.encoding import exactly
from memory.journal import budgets, counts, statements
from memory.journal.writing.batch import many
from memory.journal.writing.handover import Handover
from spar.clock import Clock
from spar.records.audit import claim
from spar.records.journal import RowChange, Spend
from spar.types import Fault

_save, _spend = many(statements.SAVE), many(budgets.SPEND)
_CHANGES = {sql: many(sql) for sql in (own_rows.KEEP, own_rows.DROP)}


class SmallState:
    """Writes small state.

    Args: open_cycles: the ids of those that are open now; told: hears of what cannot be kept where nobody else does.

    `waiting` are changes of rows, by the open cycle that they wait for.
    """

    __slots__ = ("_clock", "_handover", "_open_cycles", "_told", "waiting")

    def __init__(
        self, handover: Handover, open_cycles: Collection[str], clock: Clock, told: Callable[[Fault], None]
    ) -> None:
        self._handover, self._open_cycles, self._clock, self._told = handover, open_cycles, clock, told
        self.waiting: dict[str, list[own_rows.Statement]] = {}

    def save(self, key: str, value: Any) -> None:
        """Keep a small value under a key of the memory, together with what is told in the same moment.

        Raises: TooLargeError for more than a megabyte; ValueError for what is not JSON-able.
        """
        self._handover.add(_save, (safe(key), sealed(exactly(value, f"state {key!r:.100}"))))

    def change(self, changes: Iterable[RowChange], work: str = "") -> None:
        """Write or delete these small rows, together with what is told in the same moment; all of them or none.

        With the `work` of an open cycle they wait until it is told what this is going to do, or that it has ended: if
        the process dies before, or the cycle is to begin again, they have not changed.
        Raises: TooLargeError, ValueError naming the row whose value cannot be kept.
        """
        rows = list(own_rows.statements(changes))
        if work in self._open_cycles:
            self.waiting.setdefault(work, []).extend(rows)
        else:
            self.write(rows)
            for _, given in rows:
                self.audit(given[0].partition(":")[0])

    def take_up(self, cursors: Mapping[str, Any], changes: Iterable[RowChange]) -> None:
        """Keep the cursors and rows of sensors. One that cannot be kept is told and stays what it was: a restart then
        repeats rather than loses."""
        for key, cursor in cursors.items():
            self._try(partial(self.save, key, cursor))
        for change in changes:
            self._try(partial(self.change, (change,)))

    def write(self, rows: Iterable[own_rows.Statement]) -> None:
        """Write rows whose changes wait for nothing any more."""
        for sql, given in rows:
            self._handover.add(_CHANGES[sql], given, len(given[-1]))

    def audit(self, kind: str) -> None:
        """Write the entry of the audit log that is being made with what was told last, if that decides about it."""
        if (draft := claim(kind)) is not None:
            self._handover.add(audit.write_all, (draft, self._clock.now().timestamp()))

    def count(self, agent: str, total: Mapping[str, Any]) -> None:
        """Write what the counts of an agent come to, in place of all that was told of them before."""
        self._handover.add(counts.put, (agent, dict(total)))
        self._handover.hand_over()  # what is told from now on comes on top

    def spend(self, spends: Iterable[Spend]) -> None:
        """Count these to the budgets, together with what is told in the same moment."""
        for spend in spends:
            self._handover.add(_spend, (spend.window, spend.quantity, spend.amount))

    def _try(self, tell: Callable[[], None]) -> None:
        """Tell something that must not keep the rest from being told; a failure is said."""
        try:
            tell()
        except ValueError as error:
            self._told(Fault.of(error, part="memory"))
