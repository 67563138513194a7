"""Records: small durable rows changed by compare-and-set."""

from __future__ import annotations

import pytest

from memory import Memory
from spar.errors import ConflictError
from spar.protocols import Record


async def test_a_row_that_has_another_version_is_left_as_it_is(memory: Memory) -> None:
    with pytest.raises(ConflictError, match="approval 'a' does not exist, expected version 1"):
        await memory.keep("approval", "a", 1, expect=1)
    await memory.keep("approval", "a", 1, expect=0)
    with pytest.raises(ConflictError, match="approval 'a' has version 1, expected that it does not"):
        await memory.keep("approval", "a", 2, expect=0)
    assert await memory.records("approval") == [Record("a", 1, 1)]


async def test_what_cannot_be_kept_whole_is_refused_and_changes_nothing(memory: Memory) -> None:
    with pytest.raises(ValueError, match="too large"):
        await memory.keep("parked", "a", "x" * (2 << 20))
    with pytest.raises(ValueError, match="cannot be kept"):
        await memory.keep("parked", "a", object())
    assert await memory.records("parked") == []
