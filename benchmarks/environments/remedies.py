"""Alerts with one remedy each: they come in random order, and a wrong remedy fails."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from benchmarks.environments.environment import Change, Observation, Offer

ALERTS = {
    "service_down": ("the web server does not answer", "restart_service"),
    "disk_full": ("the disk of the database is nearly full", "clean_disk"),
    "clock_skewed": ("the clock of the host is off by minutes", "sync_clock"),
}


class AlertsAndRemedies:
    """Environment of alerts of one kind with different names, and of remedies.

    Args: alerts: by the name of each, its text and the right tool.
    """

    name = "alerts"
    seconds = 30.0

    def __init__(self, alerts: Mapping[str, tuple[str, str]] = ALERTS) -> None:
        self._alerts = dict(alerts)
        tools = dict.fromkeys(tool for _, tool in self._alerts.values())
        self.offers = [Offer(tool, f"A remedy: {tool.replace('_', ' ')}.") for tool in sorted(tools)]
        self._random, self._waiting = random.Random(0), list[str]()
        self._alert = ""

    def reset(self, seed: int | None = None) -> Observation:
        if seed is not None:
            self._random, self._waiting = random.Random(seed), []
        if not self._waiting:  # the same number of each alert, in random order
            self._waiting = self._random.sample(
                [name for name in self._alerts for _ in range(10)], 10 * len(self._alerts)
            )
        self._alert = self._waiting.pop()
        text, _ = self._alerts[self._alert]
        return Observation(text, kind="alert", subject=self._alert, attributes={"alert": self._alert})

    def step(self, tool: str, params: Mapping[str, Any]) -> Change:
        if tool == self._alerts[self._alert][1]:
            return Change(None, 1.0, is_done=True)
        return Change(None, 0.0, is_done=True, error=f"{tool or 'nothing'} did not help", regret=1.0)
