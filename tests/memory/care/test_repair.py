"""A damaged file at the start: set aside as it is, the last copy in its place, and told what is missing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import apsw
import pytest

from memory.care import backup
from memory.care.lock import Lock
from memory.care.repair import OnDamage, prepare
from memory.engine.own_keys import Prepared
from memory.sqlite import database, wal
from memory.sqlite.disk_reserve import DiskReserve
from spar.errors import ConfigError

PAGE = 4096


def begin(path: str, on_damage: OnDamage = "restore") -> Prepared:
    lock = Lock(path)
    try:
        return prepare(path, "power", lock, on_damage=on_damage, ballast=DiskReserve(path, 0))
    finally:
        lock.release()


def keep(path: str, *ids: str) -> None:
    connection = begin(path).connection
    for id in ids:
        connection.execute("INSERT INTO record VALUES ('row', ?, 1, ?)", (id, f'"{"x" * 3_000}"'))
    connection.close()


def ids(prepared: Prepared) -> list[str]:
    found = [str(id) for (id,) in prepared.connection.execute("SELECT id FROM record ORDER BY id")]
    prepared.connection.close()
    return found


def header(raw: bytearray) -> None:
    raw[:16] = b"\0" * 16


def schema_page(raw: bytearray) -> None:
    raw[100:PAGE] = b"\xff" * (PAGE - 100)


def middle(raw: bytearray) -> None:
    raw[PAGE * 2 : PAGE * 6] = bytes(PAGE * 4)


def emptied(raw: bytearray) -> None:
    raw.clear()


def spoil(path: str, damage: Callable[[bytearray], None] = schema_page) -> bytes:
    """Damage a file; returns what it holds then."""
    raw = bytearray(Path(path).read_bytes())
    damage(raw)
    Path(path).write_bytes(raw)
    return bytes(raw)


DAMAGE = {"header": header, "schema": schema_page, "middle": middle, "emptied": emptied}


@pytest.mark.parametrize("name", DAMAGE)
def test_the_last_copy_takes_the_place_of_a_damaged_file(tmp_path: Path, name: str) -> None:
    path = str(tmp_path / "memory.db")
    keep(path, "a", "b")
    backup.back_up(path, f"{path}.snapshot")
    keep(path, "late")
    raw = spoil(path, DAMAGE[name])

    prepared = begin(path)

    [fault] = prepared.faults
    assert ids(prepared) == ["a", "b"]
    assert fault.kind == "damaged"
    assert "was damaged and is set aside as" in fault.message
    assert "what came after that is missing" in fault.message
    assert Path(str(fault.detail["aside"])).read_bytes() == raw, "as it was"
    assert Path(f"{path}.snapshot").exists()


@pytest.mark.parametrize("copies", [False, True], ids=["there is no copy", "the copy is damaged as well"])
def test_without_a_copy_it_begins_anew_and_says_so(tmp_path: Path, copies: bool) -> None:
    path = str(tmp_path / "memory.db")
    keep(path, "a")
    if copies:
        backup.back_up(path, f"{path}.snapshot")
        spoil(f"{path}.snapshot")
    spoil(path)

    prepared = begin(path)

    assert "there is no copy" in prepared.faults[0].message
    assert "so it begins anew" in prepared.faults[0].message
    assert ids(prepared) == []
    assert begin(path).faults == (), "told once"


def test_who_wants_to_be_asked_is_refused_and_the_file_left_as_it_is(tmp_path: Path) -> None:
    path = str(tmp_path / "memory.db")
    keep(path, "a")
    raw = spoil(path)

    with pytest.raises(ConfigError, match=r"is damaged .*left unchanged"):
        begin(path, "refuse")
    assert Path(path).read_bytes() == raw


@pytest.mark.parametrize("content", [b"not a database at all" * 500, b"\0" * 8192, Random(7).randbytes(20_000)])
def test_a_file_that_never_was_ours_is_refused_and_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "memory.db"
    path.write_bytes(content)

    with pytest.raises(ConfigError, match="not a database"):
        begin(str(path))
    assert path.read_bytes() == content


def test_a_log_that_was_damaged_in_the_middle_is_told(tmp_path: Path) -> None:
    path = str(tmp_path / "memory.db")
    prepared = begin(path)
    prepared.connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    for number in range(10):
        prepared.connection.execute("INSERT INTO record VALUES ('row', ?, 1, '1')", (f"r{number}",))
    claimed = wal.frames(prepared.connection)
    raw = bytearray(Path(f"{path}-wal").read_bytes())
    kept = Path(path).read_bytes()
    prepared.connection.close()
    Path(path).write_bytes(kept)
    raw[len(raw) // 2] ^= 1
    Path(f"{path}-wal").write_bytes(raw)

    assert wal.committed_frames(path) == claimed
    again = database.prepare(path, "power")

    assert "write-ahead log" in again.faults[0].message
    assert 0 < len(ids(again)) < 10


def test_a_log_as_a_killed_process_leaves_it_is_no_damage(tmp_path: Path) -> None:
    path = str(tmp_path / "memory.db")
    prepared = begin(path)
    for number in range(10):
        prepared.connection.execute("INSERT INTO record VALUES ('row', ?, 1, '1')", (f"r{number}",))
    raw, kept = Path(f"{path}-wal").read_bytes(), Path(path).read_bytes()
    prepared.connection.close()
    for cut in (0, 40, 4_000):
        Path(path).write_bytes(kept)
        Path(f"{path}-wal").write_bytes(raw[: len(raw) - cut])

        again = database.prepare(path, "power")

        assert again.faults == ()
        assert len(ids(again)) == (9 if cut else 10)
