"""A file that was damaged while it was closed never says something else in silence."""

from __future__ import annotations

import pytest

from tests.storage.damage import DAMAGE, damage


@pytest.mark.parametrize("name", DAMAGE)
async def test_damage_is_noticed_or_has_no_effect(name: str) -> None:
    tally = await damage(name, 16 if name == "flip" else 6)

    assert tally.is_whole, str(tally)
