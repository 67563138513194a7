"""What every test may ask for."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from spar.testing import VirtualClock


@pytest.fixture
async def clock() -> AsyncIterator[VirtualClock]:
    """The time of this test's loop, virtual from the beginning: an async fixture, so that the loop is there."""
    async with VirtualClock() as clock:
        yield clock
