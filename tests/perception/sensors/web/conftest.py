"""A server on loopback that answers by path, and sensors that ask it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from spar.clock import SystemClock
from spar.protocols import SensorContext
from spar.types import Perception
from tests.servers.web import Pages


@pytest.fixture
async def server() -> AsyncIterator[Pages]:
    async with Pages().serving() as server:
        yield server


class Asked:
    """A sensor that is polled, with the cursor that it leaves."""

    def __init__(self) -> None:
        self.cursor: Any = None
        self.reported: list[dict[str, Any]] = []

    async def open(self, sensor: Any) -> Any:
        await sensor.open(
            SensorContext(
                "asked", SystemClock(), lambda perception: True, cursor=self.cursor, checkpoint=self._save,
                report=lambda name, **fields: self.reported.append(fields),
            )
        )  # fmt: skip
        return sensor

    def _save(self, cursor: Any) -> None:
        self.cursor = cursor


@pytest.fixture
def asked() -> Asked:
    return Asked()


def texts(perceptions: list[Perception]) -> list[str]:
    return [each.text for each in perceptions]
