"""Facts of the agent itself: its small state, counts and budgets. They are in the state of no session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spar.facts.fact import Fact
from spar.records.journal import RowChange, Spend
from spar.types import Credit, Feedback


class ValueSaved(Fact, frozen=True, kw_only=True):
    """A small value is another from now on, as `KeepsState.save` says."""

    session: str = ""
    key: str
    value: Any


class RowsChanged(Fact, frozen=True, kw_only=True):
    """Small rows changed, in order, all or none.

    `cycle` is an open cycle: the rows then become durable with its decision or its end, and not at all if it is cut off
    before; "" for none.
    """

    session: str = ""
    changes: tuple[RowChange, ...]
    cycle: str = ""


class TotalsCounted(Fact, frozen=True, kw_only=True):
    """Totals of the agent's counts, in place of all that was written of them before."""

    session: str = ""
    total: Mapping[str, Any]


class BudgetUsed(Fact, frozen=True, kw_only=True):
    """Budgets were used by these amounts, which may be negative.

    A sum stays within 0 and 2**60; within them nothing is rounded or lost.
    """

    session: str = ""
    spends: tuple[Spend, ...]


class Judged(Fact, frozen=True, kw_only=True):
    """Credits for what helped and harmed, and feedback on cycles and runs that have ended.

    The end of a cycle has its own in its `Closing`.
    """

    session: str = ""
    credits: tuple[Credit, ...] = ()
    feedback: tuple[Feedback, ...] = ()
