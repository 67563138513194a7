"""Transfer of settings to the budgets, the runs and the health of a running agent."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from spar.budgets.budgets import Budgets
from spar.health.health import Health, HealthLimits
from spar.ports.budgets import in_micro
from spar.runs.run import Limits as RunLimits
from spar.runs.runs import Runs

if TYPE_CHECKING:
    from spar.config.load import Settings
    from spar.config.tables.agent import RunSettings

#: Equal values are one shared object: they never change, and there may be many agents.
_shared = functools.lru_cache(maxsize=64, typed=True)
_limits = _shared(HealthLimits)


def apply_settings(settings: Settings, budgets: Budgets, runs: Runs, health: Health) -> None:
    """Apply these settings to budgets, runs and health."""
    budgets.apply(settings.budgets.limits)
    runs.timers.limits = run_limits(settings.runs)
    runs.timers.inactivity = settings.runs.inactivity
    runs.verify_output = settings.runs.verify_output
    runs.tell_errors = settings.runs.tell_errors
    runs.reasoning = settings.runs.reasoning
    table = settings.health
    health.limits = _limits(table.failing_after, table.slow_after, table.blocked_after, table.stalled_after,
                            table.backoff, table.max_restarts, table.within)  # fmt: skip


@_shared
def run_limits(runs: RunSettings) -> RunLimits:
    """Return the limits of a run; money in millionths."""
    amounts = {quantity: getattr(runs, quantity) for quantity in ("requests", "calls", "tokens", "money")}
    most = {key: in_micro(amount) for key, amount in amounts.items() if amount != "off"}
    return RunLimits(runs.timeout, most, runs.patience)
