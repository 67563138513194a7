"""The one writer: groups, a full queue, a full disk, a locked file, work that fails by itself."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apsw
import pytest

from memory import Memory
from memory.sqlite import database
from memory.sqlite.writer import Writer
from spar import facts
from spar.errors import SparError, TransientError
from spar.types import Experience, Fault
from tests.effort import hang_guard
from tests.storage.disk import Disk, Op
from tests.waiting import until

if TYPE_CHECKING:
    from apsw import Connection


class House:
    """A writer on a real file, with what it told."""

    def __init__(self, path: Path, **options: Any) -> None:
        self.path = str(path)
        self.told: list[Fault | None] = []
        self.tended = 0
        self.has_ended = threading.Event()
        self.connection = database.prepare(self.path, "off").connection
        self.connection.execute("CREATE TABLE piece (number INTEGER PRIMARY KEY, text TEXT)")
        given = {"tend": self.tend, "report": self.told.append, "ended": self.has_ended.set, "rest": 0.02, **options}
        self.writer = Writer(self.connection, self.path, **given)
        self.writer.start()

    def tend(self, connection: Connection) -> bool:
        self.tended += 1
        return False

    async def put(self, work: Callable[[Connection], object]) -> None:
        """Queue work; while the queue is full, wait until it is safe, as a memory does."""
        if not self.writer.offer(work):
            await self.writer.submit(work)

    def content(self) -> list[bytes]:
        """Return what stands in the files; their times are the kernel's, which may set them later."""
        return [Path(name).read_bytes() for name in (self.path, f"{self.path}-wal")]

    def count(self) -> int:
        reader = database.open_reader(self.path)
        try:
            return int(str(reader.execute("SELECT count(*) FROM piece").get))
        finally:
            reader.close()


def put(number: int, text: str = "") -> Callable[[Connection], int]:
    def work(connection: Connection) -> int:
        connection.execute("INSERT INTO piece VALUES (?, ?)", (number, text))
        return number

    return work


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    made = House(tmp_path / "memory.db", max_items=50)
    yield made
    await made.writer.close(20.0)


class Gate:
    """Work that holds the writer's thread until it is opened."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self.is_reached = threading.Event()

    def __call__(self, connection: Connection) -> None:
        self.is_reached.set()
        self._open.wait(60.0)

    def open(self) -> None:
        self._open.set()


async def held(house: House) -> Gate:
    """Hold the writer of a house, and wait until it is."""
    gate = Gate()
    house.writer.offer(gate)
    await until(gate.is_reached.is_set)
    return gate


async def test_commits_are_counted_with_the_seconds_that_they_took(tmp_path: Path) -> None:
    house = House(tmp_path / "memory.db", rest=3_600.0)  # the idle work commits, too
    before = house.writer.snapshot()["commit_seconds"]
    for number in range(5):
        await house.writer.submit(put(number))

    after = house.writer.snapshot()["commit_seconds"]

    assert after["count"] == before["count"] + 5
    assert after["sum"] > before["sum"]
    await house.writer.close(20.0)


async def test_a_full_queue_refuses_and_whoever_waits_is_let_in(house: House) -> None:
    gate = await held(house)
    accepted = sum(house.writer.offer(put(number)) for number in range(60))
    late = [asyncio.ensure_future(house.put(put(number))) for number in range(100, 110)]
    await asyncio.sleep(0.01)

    assert accepted == 49
    assert not any(task.done() for task in late)
    gate.open()
    await asyncio.gather(*late)
    await house.writer.submit(lambda connection: None)
    assert house.count() == 59


async def test_the_queue_is_bounded_by_bytes_too(tmp_path: Path) -> None:
    house = House(tmp_path / "memory.db", max_bytes=1000)
    gate = await held(house)

    assert [house.writer.offer(put(number), 400) for number in range(4)] == [True, True, True, False]
    gate.open()
    await house.writer.close(5.0)


async def test_work_that_fails_by_itself_is_set_aside_alone_and_told(house: House) -> None:
    gate = await held(house)
    for number in (1, 2, 2, 3):
        house.writer.offer(put(number))
    waiting = asyncio.ensure_future(house.writer.submit(put(3)))
    await asyncio.sleep(0)
    gate.open()

    with pytest.raises(apsw.ConstraintError):
        await waiting
    await until(lambda: bool(house.told))
    assert house.count() == 3
    assert house.writer.queue.rejected == 1
    assert [fault.kind for fault in house.told if fault] == ["permanent"]
    assert "UNIQUE constraint failed" in str(house.writer.last_error)


async def test_a_file_that_another_program_locks_is_waited_for_and_reading_goes_on(tmp_path: Path) -> None:
    async with Memory.open(f"sqlite:///{tmp_path}/memory.db") as memory:
        await memory.store(Experience("before"))
        await memory.flush()
        other = apsw.Connection(str(tmp_path / "memory.db"))
        other.execute("BEGIN IMMEDIATE")

        await memory.store(Experience("during"))
        await memory.save("cursor", 7)
        await until(lambda: bool(memory.snapshot()["is_failing"]))
        assert [found.situation for found in await memory.recall()] == ["before"]
        assert await memory.load("cursor") == 7, "what was saved is known although it is not written yet"
        memory.journal.append(facts.ValueSaved(key="cursor", value=8))
        assert await memory.load("cursor") == 8
        with pytest.raises(TransientError, match=r"not written yet: .*locked"):
            await memory.flush(within=0.01)

        other.execute("ROLLBACK")
        other.close()
        await memory.flush()
        assert len(await memory.recall()) == 2


async def test_closing_gives_up_on_a_disk_that_takes_nothing_and_says_how_much_is_lost(tmp_path: Path) -> None:
    house = House(tmp_path / "memory.db")
    other = apsw.Connection(house.path)
    other.execute("BEGIN IMMEDIATE")
    for number in range(3):
        house.writer.offer(put(number))
    waiting = asyncio.ensure_future(house.writer.submit(put(9)))
    await asyncio.sleep(0)

    with hang_guard():  # the other lets go only below
        await house.writer.close(0.1)

    await until(house.has_ended.is_set)
    assert house.writer.queue.lost == 4
    with pytest.raises(SparError, match="closed before it could be written"):
        await waiting
    other.close()


async def test_closing_takes_what_is_queued_along_and_refuses_more(house: House) -> None:
    for number in range(30):
        house.writer.offer(put(number))

    await house.writer.close(20.0)
    await house.writer.close(20.0)

    assert house.count() == 30
    assert house.writer.queue.lost == 0
    assert house.has_ended.is_set()
    with pytest.raises(SparError, match="closed"):
        house.writer.offer(put(99))


async def test_a_waiter_that_went_away_does_not_stop_the_work(house: House) -> None:
    gate = await held(house)
    waiting = asyncio.ensure_future(house.writer.submit(put(1)))
    await asyncio.sleep(0)
    waiting.cancel()
    gate.open()

    await house.writer.submit(lambda connection: None)

    assert house.count() == 1


async def test_after_a_rest_the_log_is_emptied_and_then_nothing_is_written(house: House) -> None:
    await house.writer.submit(put(1, "x" * 10_000))

    await until(lambda: database.sizes(house.path)[1] == 0)
    await until(lambda: house.tended >= 1)
    before = house.content()
    await asyncio.sleep(0.05)

    assert house.content() == before
    assert house.tended <= 2, "once for each rest: perhaps before the commit, and after it"


async def test_the_log_does_not_grow_for_ever_under_a_steady_writer(tmp_path: Path) -> None:
    house = House(tmp_path / "memory.db")
    for number in range(400):
        await house.put(put(number, "x" * 100_000))
        if number % 10 == 0:
            await house.writer.submit(lambda connection: None)

    size, log = database.sizes(house.path)
    await house.writer.close(5.0)

    assert size > 20_000_000
    assert log < 12_000_000


async def test_upkeep_that_fails_is_told_and_disturbs_no_work_and_what_follows_is_accepted_again(
    tmp_path: Path,
) -> None:
    class FailsOnce(House):
        def tend(self, connection: Connection) -> bool:
            self.tended += 1
            if self.tended == 1:
                connection.execute("INSERT INTO piece VALUES (-1, 'half')")
                raise apsw.FullError("database or disk is full")
            return False

    house = FailsOnce(tmp_path / "memory.db")
    await until(lambda: len(house.told) == 2)
    assert isinstance(house.told[0], Fault)
    assert house.told[1] is None
    assert house.writer.is_writable, "though nothing was written"
    await house.writer.submit(put(1))
    assert house.count() == 1
    await house.writer.close(5.0)


async def test_a_listener_that_raises_disturbs_nothing(tmp_path: Path) -> None:
    heard = []

    def badly(fault: Fault | None) -> None:
        heard.append(fault)
        raise RuntimeError("deaf")

    async with Memory.open(f"sqlite:///{tmp_path}/memory.db") as memory:
        memory.on_fault = badly
        other = apsw.Connection(str(tmp_path / "memory.db"))
        other.execute("BEGIN IMMEDIATE")
        await memory.store(Experience("x"))
        await until(lambda: bool(heard))
        other.close()
        await memory.flush()
        assert len(await memory.recall()) == 1


# -- flushing


def flushes(ops: list[Op]) -> int:
    return sum(op.kind == "sync" and op.name.endswith("-wal") for op in ops)


def is_flushed(ops: list[Op]) -> bool:
    """Whether nothing was written to the log after its last flush."""
    log = [op.kind for op in ops if op.name.endswith("-wal")]
    return not log or log[-1] == "sync"


class Power(House):
    """The same with durability "power", on a disk that remembers; made while that is in use."""

    def __init__(self, path: Path, **options: Any) -> None:
        self.path, self.told, self.has_ended, self.tended = str(path), [], threading.Event(), 0
        self.connection = database.prepare(self.path, "power").connection
        self.connection.execute("CREATE TABLE piece (number INTEGER PRIMARY KEY, text TEXT)")
        self.writer = Writer(
            self.connection, self.path, durability="power", epoch=1, tend=self.tend, report=self.told.append,
            ended=self.has_ended.set, reopen=lambda: database.open_writer(self.path, "power"), **options,
        )  # fmt: skip
        self.writer.start()


async def test_what_nobody_waits_for_is_not_flushed_by_itself_but_within_a_second(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    with disk.in_use():
        house = Power(tmp_path / "memory.db", rest=100.0)
        await house.writer.submit(put(0))
        before = flushes(disk.ops)
        for number in range(1, 6):
            house.writer.offer(put(number))
            await until(lambda: house.writer.queue.items == 0)
            if number == 1:
                assert flushes(disk.ops) == before
                assert not is_flushed(disk.ops)
        await until(lambda: is_flushed(disk.ops))
        first = len(disk.ops)
        await asyncio.sleep(0.05)
        assert len(disk.ops) == first, "once, and then nothing is written"
        await house.writer.close(20.0)


async def test_after_a_flush_that_failed_the_log_is_written_again_and_nothing_twice(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    failures = [1, 2]

    def fails(kind: str, name: str) -> None:
        if kind == "sync" and name.endswith("-wal") and failures:
            failures.pop()
            raise apsw.IOError("injected")

    with disk.in_use():
        house = Power(tmp_path / "memory.db", rest=100.0)
        house.writer.offer(put(1))
        await until(lambda: house.writer.queue.items == 0)
        disk.fails, before = fails, house.writer._transactions.connection

        def add(connection: Connection) -> None:
            connection.execute("UPDATE piece SET text = text || 'x'")

        await house.writer.submit(add)

        assert not failures
        assert is_flushed(disk.ops)
        assert house.writer._transactions.connection is not before, "it was opened anew"
        reader = database.open_reader(house.path)
        assert reader.execute("SELECT text FROM piece").get == "x", "what could not be flushed was not kept as well"
        reader.close()
        writes = [op for op in disk.ops if op.kind == "unsynced" or (op.kind == "write" and op.name.endswith("-wal"))]
        last = max(place for place, op in enumerate(writes) if op.kind == "unsynced")
        assert min(op.at for op in writes[last:] if op.kind == "write") == 0, "from its beginning"
        await house.writer.close(20.0)
