"""A rolling upgrade with a step back under load: nothing is lost, doubled or silent, or written in a wrong format."""

from __future__ import annotations

import random

import pytest

from tests.cluster.upgrades import LANES, rolled

pytestmark = pytest.mark.process


async def test_nodes_of_two_formats_are_exchanged_one_after_the_other_under_load(url: str) -> None:
    counts = await rolled(url, random.Random(1))
    assert counts.is_clean, counts
    assert (counts.tried, counts.in_doubt) == (5, 0)
    assert counts.accepted > 6 * LANES
