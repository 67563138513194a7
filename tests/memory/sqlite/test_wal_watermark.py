"""A log that lost its end is noticed, and nothing else is: no power cut, no crash, no other program's checkpoint."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from random import Random
from typing import Any

import apsw
import pytest

from memory import Memory
from memory.care import backup
from memory.sqlite import database, wal, wal_watermark
from memory.sqlite import maintenance as upkeep
from memory.sqlite.wal_watermark import Promise, WalWatermark
from spar.errors import TransientError
from spar.types import Fault
from tests.storage.child import until
from tests.storage.disk import Cutter, Disk, Op, empty
from tests.storage.power import Failing, scratch
from tests.storage.rows import Truth

PAGES = 20  # in a log that is moved into the file, so that this happens often


def url(folder: Path) -> str:
    return f"sqlite:///{folder}/memory.db"


async def told_of(folder: Path, **options: Any) -> list[str]:
    """What is said of damage when the store in a folder is opened."""
    told: list[Fault] = []
    memory = Memory.open(url(folder), **options)
    memory.on_fault = lambda fault: told.append(fault) if fault is not None else None
    async with memory:
        await asyncio.sleep(0)
        await memory.records("row")
    return [fault.message for fault in told if fault.kind == "damaged"]


async def killed(folder: Path, moved: str = "", *, patch: pytest.MonkeyPatch | None = None) -> Path:
    """A store as a killed process leaves it. `moved`: how its log was moved into the file before the last two rows."""
    live, left = empty(folder / "live"), empty(folder / "left")
    if patch is not None:
        patch.setattr(upkeep, "WAL_PAGES", PAGES if moved == "passive" else 10_000)
        patch.setattr(upkeep, "RESTS_UNTIL_TRUNCATED", 0.01 if moved == "emptied" else 100.0)
    async with Memory.open(url(live)) as memory:
        before = memory.snapshot()["bytes"]
        for number in range(20):
            await memory.keep("row", f"r{number}", number)
        if moved:
            await until(lambda: memory.snapshot()["bytes"] > before, "a checkpoint")
        if moved == "emptied":
            await until(lambda: memory.snapshot()["wal_bytes"] == 0, "an empty log")
        if patch is not None:
            patch.setattr(upkeep, "WAL_PAGES", 10_000)
        for name in ("last but one", "last"):
            await memory.keep("row", name, 0)
        for path in live.iterdir():
            if not path.name.endswith(("-shm", ".lock", ".ballast")):
                shutil.copy(path, left / path.name)
    return left


def cut(folder: Path, size: int) -> None:
    with (folder / "memory.db-wal").open("r+b") as file:
        file.truncate(size if size >= 0 else (folder / "memory.db-wal").stat().st_size + size)


async def test_a_log_that_was_cut_off_is_told_with_how_many_pages_and_what_to_do(tmp_path: Path) -> None:
    left = await killed(tmp_path)
    for size in (0, 7, 40, 4_000, 30_000, -4_096, -1):
        torn = shutil.copytree(left, tmp_path / str(size))
        cut(torn, size)

        told = await told_of(torn)

        assert len(told) == 1, size
        assert "pages that were safe" in told[0]
        assert "spar memory verify, spar memory restore" in told[0]
        assert await told_of(torn) == [], "told once"


@pytest.mark.parametrize("moved", ["", "passive", "emptied"])
async def test_a_killed_process_is_no_damage_and_its_log_that_was_lost_is(
    tmp_path: Path, moved: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = await killed(tmp_path, moved, patch=monkeypatch)
    shutil.copytree(left, tmp_path / "whole")
    assert await told_of(tmp_path / "whole") == []

    shutil.copytree(left, tmp_path / "cut")
    cut(tmp_path / "cut", 32 + wal.committed_frames(f"{left}/memory.db") * (24 + 4_096) - 1)
    assert len(await told_of(tmp_path / "cut")) == 1

    (left / "memory.db-wal").unlink()
    assert len(await told_of(left)) == 1


async def test_another_program_that_empties_the_log_in_good_order_is_no_damage(tmp_path: Path) -> None:
    left = await killed(tmp_path)
    shell = apsw.Connection(f"{left}/memory.db")
    shell.execute("SELECT count(*) FROM record").fetchall()
    shell.close()  # the last one moves the log into the file and deletes it
    assert not (left / "memory.db-wal").exists()

    assert await told_of(left) == []


async def test_after_closing_in_good_order_there_is_no_mark(tmp_path: Path) -> None:
    async with Memory.open(url(tmp_path)) as memory:
        await memory.keep("row", "a", 0)
        assert wal_watermark.read(memory.path) is not None
    assert wal_watermark.read(memory.path) is None


async def test_with_less_durability_and_in_memory_nothing_is_promised(tmp_path: Path) -> None:
    for durability in ("process", "off"):
        async with Memory.open(url(tmp_path), durability=durability) as memory:
            await memory.keep("row", durability, 0)
            assert wal_watermark.read(memory.path) is None


async def test_of_a_file_that_was_restored_or_is_new_nothing_is_promised(tmp_path: Path) -> None:
    async with Memory.open(url(tmp_path)) as memory:
        copy = f"{tmp_path}/copy"
        backup.back_up(memory.path, copy)  # older than any flush
    left = await killed(tmp_path / "other")
    backup.restore(copy, f"{left}/memory.db")
    assert await told_of(left) == []

    left = await killed(tmp_path / "other")
    (left / "memory.db").unlink()
    (left / "memory.db-wal").unlink()
    assert await told_of(left) == []
    assert wal_watermark.read(f"{left}/memory.db") is None


async def test_an_older_file_in_the_place_of_a_newer_one_is_told(tmp_path: Path) -> None:
    left = await killed(tmp_path)
    older = empty(tmp_path / "older")
    async with Memory.open(url(older)):
        pass
    shutil.copy(older / "memory.db", left / "memory.db")
    (left / "memory.db-wal").unlink()

    assert len(await told_of(left)) == 1


@pytest.mark.parametrize(
    ("flush", "pages", "salts", "missing"),
    [
        (7, 100, b"round  1", 0),
        (7, 130, b"round  1", 0),
        (7, 60, b"round  1", 40),
        (7, 0, b"", 0),  # emptied in good order: the file knows of flush 7
        (7, 3, b"round  2", 0),
        (6, 0, b"", 100),
        (6, 3, b"round  0", 100),
        (6, 60, b"round  1", 40),
        (8, 60, b"round  1", 0),  # an old mark, and what it missed was told before flush 8
    ],
)
def test_what_is_missing_is_what_was_promised_and_is_not_there(
    flush: int, pages: int, salts: bytes, missing: int
) -> None:
    assert Promise(7, 100, b"round  1").missing(flush, pages, salts) == missing


async def test_only_the_number_of_a_flush_that_succeeded_is_promised(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    with disk.in_use():
        async with Memory.open(url(tmp_path), ballast=0) as memory:
            disk.fails = Failing("write", "-wal", 1, 2, apsw.FullError)
            await memory.keep("row", "a", 0)
            with database.reading(memory.path) as connection:
                number = database.number_of(connection, database.FLUSHED)
            promise = wal_watermark.read(memory.path)

    assert disk.fired == 2
    assert promise.flush == number


def test_a_mark_that_was_cut_off_or_is_something_else_promises_nothing(tmp_path: Path) -> None:
    path = str(tmp_path / "memory.db")
    connection = database.prepare(path, "power").connection
    WalWatermark(path).promise(3, 5)
    assert wal_watermark.read(path) == Promise(3, 5, wal.salts(path))

    content = bytearray(Path(f"{path}.mark").read_bytes())
    for broken in (b"", content[:20], bytes(4096), bytes([content[0] ^ 1]) + content[1:]):
        Path(f"{path}.mark").write_bytes(broken)
        assert wal_watermark.read(path) is None
    connection.close()


def test_a_mark_that_cannot_be_written_holds_up_nothing(tmp_path: Path) -> None:
    path = str(tmp_path / "memory.db")
    connection = database.prepare(path, "power").connection
    (tmp_path / "memory.db.mark").mkdir()

    WalWatermark(path).promise(3, 5)

    assert wal_watermark.read(path) is None
    connection.close()


# -- power cuts


class Watched(list[Op]):
    """What a disk was told, and what the mark said at each moment: it is written to without a call."""

    def __init__(self, ops: list[Op], path: Path) -> None:
        super().__init__(ops)
        self._path = path
        self.marks: list[tuple[int, bytes | None]] = [(0, self._content())]

    def append(self, op: Op) -> None:
        self.look()
        super().append(op)

    def __iadd__(self, ops: Any) -> Any:
        for op in ops:
            self.append(op)
        return self

    def look(self) -> None:
        if (content := self._content()) != self.marks[-1][1]:
            self.marks.append((len(self), content))

    def _content(self) -> bytes | None:
        try:
            return self._path.read_bytes()[:64]
        except OSError:
            return None

    def states(self, at: int) -> list[bytes | None]:
        """Every content that the mark may have when the power fails before `ops[at]`."""
        return [content for place, content in self.marks if place <= at]


async def lives(folder: Path, seed: int, fails: Any = None, *, number: int = 3) -> Watched:
    """A few lives of a store, on a disk that remembers; now and then its log is moved into the file, or emptied."""
    random, truth = Random(seed), Truth()
    disk = Disk(empty(folder))
    disk.ops = ops = Watched(disk.ops, folder / "memory.db.mark")
    with disk.in_use():
        for _life in range(number):
            try:
                async with asyncio.timeout(20.0), Memory.open(url(folder)) as memory:
                    disk.fails = fails or disk.fails
                    for _ in range(6):
                        await truth.write(memory, random, disk.acknowledge, rows=random.choice([1, 4]), size=2_000)
                        if random.random() < 0.4:
                            await asyncio.sleep(0.05)
            except (TimeoutError, TransientError):
                pass
            ops.look()
    return ops


async def false_alarms(ops: Watched, number: int, seed: int, folder: Path) -> list[str]:
    """Cut the power at `number` points and open what is left with whatever mark may be left."""
    random, cutter, found = Random(seed), Cutter(ops, seed), list[str]()
    for at in sorted(random.choices(range(1, len(ops) + 1), k=number)):
        cutter.go_to(at)
        cutter.cut(empty(folder))
        states = ops.states(at)
        left = random.choice([states[-1], random.choice(states[-4:]), random.choice(states)])
        if left is not None and (folder / "memory.db").exists():
            (folder / "memory.db.mark").write_bytes(left)
        found += [f"cut at {at} of {len(ops)}: {told}" for told in await told_of(folder) if "were safe" in told]
    return found


@pytest.mark.parametrize("seed", range(2))
async def test_no_power_cut_makes_a_false_alarm(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(upkeep, "WAL_PAGES", PAGES)
    monkeypatch.setattr(upkeep, "RESTS_UNTIL_TRUNCATED", 0.02)
    with scratch() as folder:
        ops = await lives(folder / "live", seed)
        assert len(ops.marks) > 10
        assert await false_alarms(ops, 40, seed, folder / "cut") == []


async def test_no_flush_that_failed_makes_one_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "WAL_PAGES", PAGES)
    monkeypatch.setattr(upkeep, "RESTS_UNTIL_TRUNCATED", 0.02)
    with scratch() as folder:
        for seed in range(2):
            fails = Failing("sync", "-wal" if seed % 2 else ".db", 2 + seed, 2, apsw.IOError)
            ops = await lives(folder / "live", seed, fails, number=2)
            assert await false_alarms(ops, 15, seed, folder / "cut") == []
