"""What was acknowledged is there after the power failed, wherever that was."""

from __future__ import annotations

from tests.storage.power import failed_flushes, power_cuts


async def test_what_was_acknowledged_survives_power_cuts_anywhere() -> None:
    tally = await power_cuts(60)

    assert tally.is_whole, str(tally)


async def test_durability_process_does_lose_rows_to_a_power_cut_so_the_method_is_not_blind() -> None:
    tally = await power_cuts(30, durability="process", recordings=1)

    assert tally.lost > 0, str(tally)
    assert tally.corrupt == 0, "what is left is whole all the same"


async def test_a_flush_that_fails_acknowledges_nothing_that_a_power_cut_then_takes() -> None:
    tally = await failed_flushes(12, cuts_each=2)

    assert tally.is_whole, str(tally)
