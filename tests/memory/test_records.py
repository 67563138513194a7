"""Records: small durable rows changed by compare-and-set."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from memory import Memory
from spar.errors import ConflictError
from spar.protocols import Record, Records


async def test_a_memory_offers_records(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/memory.db"
    async with Memory.open(url) as memory:
        assert isinstance(memory, Records)
        assert await memory.keep("approval", "b", {"n": 1}) == 1
        assert await memory.keep("approval", "a", {"text": "\ud800 é"}, expect=0) == 1
        assert await memory.keep("approval", "b", {"n": 2}, expect=1) == 2
        assert await memory.keep("grant", "b", []) == 1
    async with Memory.open(url) as memory:
        found = await memory.records("approval")
        assert found == [Record("a", 1, {"text": "\ud800 é"}), Record("b", 2, {"n": 2})]
        assert await memory.records("other") == []


async def test_a_row_that_has_another_version_is_left_as_it_is() -> None:
    async with Memory.open("sqlite://:memory:") as memory:
        with pytest.raises(ConflictError, match="approval 'a' does not exist, expected version 1"):
            await memory.keep("approval", "a", 1, expect=1)
        await memory.keep("approval", "a", 1, expect=0)
        with pytest.raises(ConflictError, match="approval 'a' has version 1, expected that it does not"):
            await memory.keep("approval", "a", 2, expect=0)
        assert await memory.records("approval") == [Record("a", 1, 1)]


async def test_of_a_hundred_changes_at_once_from_one_version_exactly_one_is_kept(tmp_path: Path) -> None:
    async with Memory.open(f"sqlite:///{tmp_path}/memory.db") as memory:
        await memory.keep("approval", "a", "asked")
        tries = (memory.keep("approval", "a", number, expect=1) for number in range(100))
        outcomes = await asyncio.gather(*tries, return_exceptions=True)

        assert outcomes.count(2) == 1
        assert sum(isinstance(each, ConflictError) for each in outcomes) == 99
        assert await memory.records("approval") == [Record("a", 2, outcomes.index(2))]


async def test_a_row_is_dropped_once() -> None:
    async with Memory.open("sqlite://:memory:") as memory:
        await memory.keep("parked", "a", None)
        assert [await memory.drop("parked", "a"), await memory.drop("parked", "a")] == [True, False]
        assert await memory.keep("parked", "a", None, expect=0) == 1


async def test_what_cannot_be_kept_whole_is_refused_and_changes_nothing() -> None:
    async with Memory.open("sqlite://:memory:") as memory:
        with pytest.raises(ValueError, match="too large"):
            await memory.keep("parked", "a", "x" * (2 << 20))
        with pytest.raises(ValueError, match="cannot be kept"):
            await memory.keep("parked", "a", object())
        assert await memory.records("parked") == []
