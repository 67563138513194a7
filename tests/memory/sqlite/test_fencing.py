"""Who was taken over writes nothing more: the epoch of the file is looked at in every transaction."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from memory import Memory
from memory.sqlite import database
from spar.errors import FencedError, TransientError
from spar.types import Experience, Fault
from tests.memory.sqlite.test_writer import until


async def test_a_process_that_was_taken_over_cannot_write_and_everybody_is_told(tmp_path: Path) -> None:
    told: list[Fault | None] = []
    zombie = Memory.open(f"sqlite:///{tmp_path}/memory.db")
    zombie.on_fault = told.append
    with pytest.raises(TransientError, match=r"2 accepted items .* taken over"):  # noqa: PT012 - by its end
        async with zombie:
            await zombie.store(Experience("before"))
            await zombie.flush()
            (tmp_path / "memory.db.lock").unlink()  # as on a disk that is shared and knows no locks
            async with Memory.open(f"sqlite:///{tmp_path}/memory.db") as heir:
                both = await asyncio.gather(
                    zombie.keep("row", "a", 1), zombie.keep("row", "b", 2), return_exceptions=True
                )
                assert [type(error) for error in both] == [FencedError, FencedError]
                assert "taken over by another process (it is in epoch 2, this process in 1)" in str(both[0])
                await until(lambda: bool(told))
                assert [fault and fault.kind for fault in told] == ["fenced"]
                with pytest.raises(FencedError):
                    await zombie.store(Experience("after"))
                assert zombie.snapshot()["is_fenced"]
                assert not zombie.snapshot()["is_writable"]

                await heir.store(Experience("the heir's"))
                assert {found.situation for found in await heir.recall()} == {"before", "the heir's"}
                assert await heir.records("row") == []


async def test_not_even_the_upkeep_of_a_process_that_was_taken_over_writes(tmp_path: Path) -> None:
    from memory.sqlite.writer import Writer

    path = str(tmp_path / "memory.db")
    prepared = database.prepare(path, "off")
    told: list[Fault | None] = []
    tended: list[object] = []
    writer = Writer(
        prepared.connection, path, epoch=prepared.epoch, tend=lambda c: bool(tended.append(c)), report=told.append,
        ended=lambda: None, rest=0.2,
    )  # fmt: skip
    database.prepare(path, "off").connection.close()
    writer.start()

    await until(lambda: bool(told))

    assert [fault and fault.kind for fault in told] == ["fenced"]
    assert tended == []
    await writer.close(20.0)
