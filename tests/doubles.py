"""Small doubles that tests of several folders use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spar import Agent, Perception
from spar.events import Event, HealthAlert, HealthRecovered, RecoveryStep


class KeptRows:
    """Small rows of a part that outlive it; `is_broken` while they cannot be read; `cycles` kept some."""

    def __init__(self) -> None:
        self.rows: dict[str, Any] = {}
        self.cycles: list[str] = []
        self.is_broken = False

    def keep(self, key: str, value: Any, *, cycle_id: str = "") -> None:
        self.rows[key] = value
        self.cycles.append(cycle_id)

    def drop(self, key: str, *, cycle_id: str = "") -> None:
        self.rows.pop(key, None)

    def change(self, rows: dict[str, Any]) -> None:
        self.rows |= rows
        self.rows = {key: value for key, value in self.rows.items() if value is not None}

    async def safe(self) -> None:
        pass

    async def list(self) -> dict[str, Any]:
        if self.is_broken:
            raise OSError("no disk")
        return dict(self.rows)


class Cursors:
    """Store of values by key that fails on demand."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.fails = False

    async def save(self, key: str, value: Any) -> None:
        if self.fails:
            raise OSError("disk is full")
        self.values[key] = value

    async def load(self, key: str) -> Any:
        if self.fails:
            raise OSError("disk is gone")
        return self.values.get(key)


class LearningSense:
    """Sense module that notices nothing, and is taught examples."""

    async def sense(self) -> list[Perception]:
        return []

    def taught(self) -> Mapping[str, Any]:
        return {}

    async def teach(self, what: str, text: str, label: str, /, *, by: str = "") -> Mapping[str, Any]:
        return {"id": "e1", "label": label}

    async def unteach(self, example: str, /, *, by: str = "") -> Mapping[str, Any]:
        return {"id": example}

    def read(self, text: str, /) -> Mapping[str, Any]:
        return {}


def heard(agent: Agent, *kinds: type[Event]) -> list[Any]:
    """Return a list that gets the events of these kinds."""
    found: list[Any] = []
    for kind in kinds:
        agent.events.subscribe(kind, found.append)
    return found


class HealthHeard:
    """What the health of an agent says, which runs as long as this is entered."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self.alerts, self.ends, self.steps = (
            heard(agent, kind) for kind in (HealthAlert, HealthRecovered, RecoveryStep)
        )

    async def __aenter__(self) -> HealthHeard:
        await self._agent.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._agent.stop()

    @property
    def kinds(self) -> list[str]:
        return [alert.kind for alert in self.alerts]
