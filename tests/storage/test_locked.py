"""Another process has the file: backup programs, a `sqlite3` shell, somebody who reads for an hour."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from memory import Memory
from spar.types import Fault
from tests.storage.child import child, until
from tests.storage.rows import Ack, Truth, examine, found_in, text_of

pytestmark = pytest.mark.process

HOLD = """
connection = apsw.Connection(path)
connection.execute("BEGIN IMMEDIATE")
say("held")
time.sleep(3.0)
connection.execute("ROLLBACK")
say("let go")
"""

READ = """
connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
connection.execute("BEGIN")
connection.execute("SELECT count(*) FROM record").get
say("reading")
sys.stdin.readline()
"""


async def test_a_file_that_another_process_locks_is_waited_for_and_nothing_is_refused(tmp_path: Path) -> None:
    truth, acks, told = Truth(), list[Ack](), list[Fault | None]()
    memory = Memory.open(f"sqlite:///{tmp_path}/memory.db")
    memory.on_fault = told.append
    async with memory:
        await truth.keep(memory, "before", 100, acks.append)
        with child(HOLD, tmp_path / "memory.db") as other:
            assert other.line() == "held"
            writing = [asyncio.ensure_future(truth.keep(memory, f"n{n}", 100, acks.append)) for n in range(10)]
            await until(lambda: told, "a fault")

            assert told[0] is not None
            assert "locked" in told[0].message
            assert memory.snapshot()["queued"] == 10
            assert (await found_in(memory)).records.keys() == {"before"}, "it can be read meanwhile"
            assert len(acks) == 1

            assert await asyncio.to_thread(other.line) == "let go"
            await asyncio.wait_for(asyncio.gather(*writing), 30.0)
        await until(lambda: told[-1] is None, "the fault taken back")
        assert [fault is None for fault in told] == [False, True], "told once, and taken back once"

    assert not await examine(tmp_path, truth, acks)


async def test_a_reader_that_does_not_end_holds_up_nobody_shows_and_the_log_shrinks_after_it(tmp_path: Path) -> None:
    truth, acks = Truth(), list[Ack]()
    async with Memory.open(f"sqlite:///{tmp_path}/memory.db") as memory:
        await truth.keep(memory, "first", 100, acks.append)
        with child(READ, tmp_path / "memory.db") as other:
            assert other.line() == "reading"
            for number in range(75):  # megabytes, and a log is to hold 64
                big = {"text": text_of(f"{number}", 1_000_000)}
                await asyncio.wait_for(memory.keep("big", f"b{number % 3}", big), 30.0)
            held_up = memory.snapshot()
            other.process.kill()
            other.rest()
        for number in range(8):
            await asyncio.wait_for(
                memory.keep("big", f"b{number % 3}", {"text": text_of(f"{number}", 1_000_000)}), 30.0
            )
        await until(lambda: memory.snapshot()["wal_bytes"] < 16 << 20, "a short log")
        assert memory.snapshot()["checkpoint_error"] is None

    assert held_up["wal_bytes"] > 64 << 20, "or there was nothing to be told of"
    assert "could not be emptied" in str(held_up["checkpoint_error"])
    assert not await examine(tmp_path, truth, acks)
