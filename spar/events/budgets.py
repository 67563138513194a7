"""Events of budgets."""

from __future__ import annotations

from datetime import datetime

from spar.events.event import Event


class BudgetEvent(Event):
    """Base of the events about budgets. `budget` is the name (`hour.tokens`); `used` and `limit` are counts, money in
    millionths of its unit."""

    budget: str
    used: int = 0
    limit: int = 0
    ends_at: datetime | None = None


class BudgetWarned(BudgetEvent):
    """So much of a budget is used that the agent is slowed down or limited: `measure` is `slow degrade ask pause`."""

    measure: str = ""


class BudgetExceeded(BudgetEvent):
    """A budget did not have enough left for the amount `asked` (None: unknown) by `what`, a tool or a model."""

    asked: int | None = None
    what: str = ""
    cycle_id: str = ""


class BudgetRenewed(BudgetEvent):
    """A budget is available again, because a new window has begun or the limit was raised."""
