"""Copies under load, putting one back, and what a crash in between leaves."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest

from memory import Memory
from memory.care import backup
from memory.care.backup import DailyBackup
from memory.sqlite import database
from spar.errors import ConfigError, SparError
from spar.types import Experience, Fault
from tests.memory.sqlite.test_writer import until


async def fill(folder: Path, *names: str) -> str:
    async with Memory.open(f"sqlite:///{folder}/memory.db") as memory:
        for name in names:
            await memory.keep("row", name, {"text": name * 500})
            await memory.store(Experience(f"disk full on {name}"))
    return str(folder / "memory.db")


async def names(folder: Path) -> list[str]:
    async with Memory.open(f"sqlite:///{folder}/memory.db") as memory:
        return [record.id for record in await memory.records("row")]


def listed(folder: Path, part: str = "") -> list[str]:
    return sorted(each.name for each in folder.iterdir() if part in each.name)


async def test_a_copy_made_under_load_is_one_moment_of_the_file(tmp_path: Path) -> None:
    path, target = str(tmp_path / "memory.db"), tmp_path / "copy.db"
    async with Memory.open(f"sqlite:///{path}", durability="off") as memory:
        for number in range(300):
            await memory.keep("row", f"r{number:04}", "x" * 5_000)
        copying = asyncio.ensure_future(asyncio.to_thread(backup.back_up, path, str(target)))
        number = 300
        while not copying.done():
            await asyncio.gather(*(memory.keep("row", f"r{number + each:04}", "x" * 5_000) for each in range(10)))
            number += 10
        copied = await copying

    assert copied.bytes == target.stat().st_size > 1_000_000
    assert not listed(tmp_path, ".tmp")
    assert target.stat().st_mode & 0o777 == 0o600
    with database.reading(str(target)) as connection:
        kept = [str(id) for (id,) in connection.execute("SELECT id FROM record ORDER BY id")]
        assert connection.execute("PRAGMA journal_mode").get == "delete", "one file, that can be carried away"
    assert kept == [f"r{each:04}" for each in range(len(kept))], "no row without those before it"
    assert 300 <= len(kept) <= number


async def test_a_copy_never_replaces_what_is_no_copy_and_one_that_is_stopped_leaves_nothing(tmp_path: Path) -> None:
    path = await fill(tmp_path, "a")
    (tmp_path / "letter.txt").write_text("dear reader")

    with pytest.raises(ConfigError, match="is not a database"):
        backup.back_up(path, str(tmp_path / "letter.txt"))
    for name in ("memory.db", "memory.db-wal", "memory.db.lock"):
        with pytest.raises(ConfigError, match="is a file of the memory itself"):
            backup.back_up(path, str(tmp_path / name))
    with pytest.raises(SparError, match="given up"):
        backup.back_up(path, str(tmp_path / "copy.db"), stopped=lambda: True)
    assert not listed(tmp_path, "copy")
    backup.back_up(path, str(tmp_path / "copy.db"))
    backup.back_up(path, str(tmp_path / "copy.db"))
    assert (tmp_path / "letter.txt").read_text() == "dear reader"


async def test_a_copy_of_a_damaged_file_or_of_facts_that_do_not_fit_is_refused_and_the_last_one_kept(
    tmp_path: Path,
) -> None:
    path = await fill(tmp_path, "a", "b")
    target = tmp_path / "copy.db"
    backup.back_up(path, str(target))
    before = target.read_bytes()
    with_facts = database.open_writer(path, "off")
    with_facts.execute("INSERT INTO fact VALUES (99, 1.0, 'w', 'c', 'ended', '{}', zeroblob(32))")
    with_facts.close()
    with pytest.raises(SparError, match="chain of facts is broken at number"):
        backup.back_up(path, str(target))
    raw = bytearray((tmp_path / "memory.db").read_bytes())
    raw[-4096 * 3 : -4096] = b"\xff" * 8192
    (tmp_path / "memory.db").write_bytes(raw)

    with pytest.raises(SparError, match="damaged"):
        backup.back_up(path, str(target))
    assert target.read_bytes() == before
    assert not listed(tmp_path, ".tmp")


async def test_restoring_brings_the_copy_back_and_sets_the_present_file_aside(tmp_path: Path) -> None:
    path = await fill(tmp_path, "a", "b")
    backup.back_up(path, str(tmp_path / "copy.db"))
    await fill(tmp_path, "c")

    aside = backup.restore(str(tmp_path / "copy.db"), path)

    assert await names(tmp_path) == ["a", "b"]
    async with Memory.open(f"sqlite:///{path}") as memory:
        assert {found.situation for found in await memory.recall("full disk")} == {"disk full on a", "disk full on b"}
    with database.reading(aside) as connection:
        assert connection.execute("SELECT count(*) FROM record").get == 3
    second = backup.restore(str(tmp_path / "copy.db"), path)
    assert second != aside
    assert aside.rpartition("/")[2] in listed(tmp_path), "nothing that was set aside is written over"


async def test_what_only_the_log_held_is_set_aside_with_it(tmp_path: Path) -> None:
    path = await fill(tmp_path, "a")
    backup.back_up(path, str(tmp_path / "copy.db"))
    connection = database.open_writer(path, "off")
    connection.execute("INSERT INTO record VALUES ('row', 'late', 1, '1')")
    for suffix in ("", "-wal"):  # as a process leaves them that is killed
        os.link(f"{path}{suffix}", f"{path}{suffix}.kept")
    connection.close()
    for suffix in ("", "-wal"):
        (tmp_path / f"memory.db{suffix}.kept").replace(f"{path}{suffix}")

    aside = backup.restore(str(tmp_path / "copy.db"), path)

    assert await names(tmp_path) == ["a"], "the log of the old file did not get into the new one"
    assert aside is not None
    connection = database.open_writer(aside, "off")
    assert connection.execute("SELECT count(*) FROM record").get in (1, 2)
    connection.close()


async def test_restoring_is_refused_while_the_file_is_in_use_and_from_what_is_no_copy(tmp_path: Path) -> None:
    path = await fill(tmp_path, "a")
    backup.back_up(path, str(tmp_path / "copy.db"))
    (tmp_path / "junk.db").write_bytes(b"junk" * 2000)
    raw = (tmp_path / "copy.db").read_bytes()
    (tmp_path / "half.db").write_bytes(raw[: len(raw) // 2])

    async with Memory.open(f"sqlite:///{path}"):
        with pytest.raises(ConfigError, match="is in use by this process"):
            backup.restore(str(tmp_path / "copy.db"), path)
    for name in ("junk.db", "half.db", "missing.db"):
        with pytest.raises(SparError):
            backup.restore(str(tmp_path / name), path)
    assert await names(tmp_path) == ["a"]
    assert not listed(tmp_path, "replaced")


@pytest.mark.parametrize("done", ["nothing", "linked", "log moved", "unlinked"])
async def test_a_crash_while_a_copy_is_put_in_place_is_completed_at_the_next_start(tmp_path: Path, done: str) -> None:
    path = await fill(tmp_path, "a")
    backup.back_up(path, str(tmp_path / "copy.db"))
    await fill(tmp_path, "b")
    (tmp_path / "memory.db-wal").write_bytes(b"of the old file")
    (tmp_path / "copy.db").replace(f"{path}.restoring")
    if done != "nothing":
        os.link(path, f"{path}.replaced-1")
    if done in ("log moved", "unlinked"):
        (tmp_path / "memory.db-wal").rename(f"{path}.replaced-1-wal")
    if done == "unlinked":
        (tmp_path / "memory.db").unlink()

    assert await names(tmp_path) == ["a"]
    assert listed(tmp_path, "replaced")
    assert not listed(tmp_path, "restoring")


# -- copies that are made by themselves


def test_one_is_due_after_an_hour_and_then_every_day_if_there_is_news(tmp_path: Path) -> None:
    path, now = tmp_path / "memory.db", time.time()
    path.touch()
    copies = DailyBackup(str(path))

    assert not copies.is_due(now)
    assert copies.is_due(now + 3_700)
    copy = tmp_path / "memory.db.snapshot"
    copy.touch()
    os.utime(copy, (now, now))
    os.utime(path, (now + 10, now + 10))
    assert not copies.is_due(now + 3_700)
    assert copies.is_due(now + 90_000)
    assert copies.is_due(now - 90_000), "somebody set the clock back"
    os.utime(path, (now - 10, now - 10))
    assert not copies.is_due(now + 90_000)


async def test_one_is_made_in_the_background_and_found_whole(tmp_path: Path) -> None:
    path = await fill(tmp_path, "a")
    copies, told = DailyBackup(path, every=0.0), list[Fault]()
    copies.report = told.append
    (tmp_path / "memory.db.snapshot").touch()
    os.utime(f"{path}.snapshot", (1, 1))

    copies.begin_if_due()

    await until(lambda: (tmp_path / "memory.db.snapshot").stat().st_size > 0)
    copies.stop()
    assert backup.examine(f"{path}.snapshot") == backup.examine(path)
    assert told == []


async def test_where_none_can_be_made_it_is_told_once(tmp_path: Path) -> None:
    path = await fill(tmp_path, "a")
    copies, told = DailyBackup(path, every=-1.0), list[Fault]()
    copies.report = told.append
    (tmp_path / "memory.db.snapshot").mkdir()
    for _ in range(2):
        os.utime(f"{path}.snapshot", (1, 1))
        copies.begin_if_due()
        await until(lambda: bool(told) and not copies.is_busy)

    assert len(told) == 1
    assert "no copy of" in told[0].message
