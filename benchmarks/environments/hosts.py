"""Host with recurring troubles: each has the same appearance, and each needs its own remedies.

A service that is down may have crashed, may have a full disk, or may find its port taken by an old process: the log
tells which, and the remedies differ. A restart alone helps only after a crash.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from benchmarks.environments.environment import Change, Observation, Offer

#: For each trouble, the last line of the service's log, and the calls that end it, in this order.
TROUBLES = {
    "crashed": ("worker ended with signal 11", ("restart",)),
    "disk full": ("cannot write: no space left on device", ("clean_disk", "restart")),
    "port taken": ("cannot listen on port 8080: address already in use", ("end_stale_process", "restart")),
}


class SimulatedHost:
    """Environment of a service that goes down for one of several reasons.

    An episode is one trouble; it ends when the service is up again, or after `most_steps` calls.
    """

    name = "host"
    seconds = 30.0

    def __init__(self, *, most_steps: int = 8) -> None:
        self.offers = [
            Offer("restart", "Start the service again."),
            Offer("clean_disk", "Delete old files from the disk."),
            Offer("end_stale_process", "End what is left of a former process of the service."),
        ]
        self._most = most_steps
        self._random, self._waiting = random.Random(0), list[str]()
        self._trouble, self._done, self._steps = "", 0, 0

    @property
    def trouble(self) -> str:
        """Return the trouble of this episode."""
        return self._trouble

    def reset(self, seed: int | None = None) -> Observation:
        if seed is not None:
            self._random, self._waiting = random.Random(seed), []
        if not self._waiting:
            self._waiting = self._random.sample(list(TROUBLES), len(TROUBLES))
        self._trouble, self._done, self._steps = self._waiting.pop(), 0, 0
        return self._observation()

    def step(self, tool: str, params: Mapping[str, Any]) -> Change:
        self._steps += 1
        remedies = TROUBLES[self._trouble][1]
        is_next = tool == remedies[self._done]
        self._done += is_next
        if self._done == len(remedies):
            return Change(self._up(), 1.0, is_done=True)
        is_over = self._steps >= self._most
        error = "" if is_next else f"{tool or 'nothing'} did not help"
        return Change(self._observation(), 0.0, is_done=is_over, error=error, regret=float(not is_next))

    def _observation(self) -> Observation:
        line = TROUBLES[self._trouble][0]
        state = self._trouble if not self._done else f"{self._trouble}, {' and '.join(self._carried_out())} done"
        text = f"the service shop is down: {line}" if not self._done else f"the service shop is still down: {state}"
        return Observation(text, kind="service.down", subject=state, attributes={"service": "shop", "log": line})

    def _up(self) -> Observation:
        return Observation("the service shop is up", kind="service.up", subject="up", attributes={"service": "shop"})

    def _carried_out(self) -> tuple[str, ...]:
        return TROUBLES[self._trouble][1][: self._done]
