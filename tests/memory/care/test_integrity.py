"""Every page, every table, every row, the whole chain: what does not fit is named."""

from __future__ import annotations

import asyncio
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from memory import Memory, events
from memory.care import losses
from memory.care.doctor import Doctor
from memory.care.integrity import verify
from memory.sqlite import database, schema
from spar.errors import ConfigError
from spar.types import CycleRecord, Experience, Fault

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file with some rows of each kind."""
    path = str(tmp_path_factory.mktemp("filled") / "memory.db")
    asyncio.run(fill(path))
    return path


@pytest.fixture
def path(made: str, tmp_path: Path) -> str:
    return str(shutil.copy(made, tmp_path))


async def fill(path: str) -> None:
    async with Memory.open(f"sqlite:///{path}") as memory:
        for number in range(5):
            await memory.store(Experience(f"disk full {number}", id=f"e{number}"))
            await memory.record(CycleRecord(f"c{number}", "main", "main", NOW, 0.1, "acted"))
            await memory.keep("row", f"r{number}", {"number": number})
    connection = database.open_writer(path, "off")
    events.append(connection, [(float(number), "w", f"c{number}", "ended", "{}") for number in range(5)])
    connection.close()


@pytest.mark.parametrize(
    ("harm", "found"),
    [
        ("UPDATE experience SET body = '{' WHERE id = 'e3'", "experience e3: its body cannot be read"),
        ("UPDATE experience SET body = '[]' WHERE id = 'e1'", "experience e1: its body cannot be read"),
        ("UPDATE cycle SET body = 'NaN' WHERE id = 'c2'", "cycle c2: its body cannot be read"),
        ("UPDATE record SET value = x'ff' WHERE id = 'r4'", "record row/r4: its value cannot be read"),
        ("UPDATE fact SET call = 'other' WHERE seq = 3", "fact 3: its link does not fit"),
        ("DELETE FROM fact WHERE seq = 2", "fact 2: it is missing"),
        ("CREATE TABLE stranger (x)", "stranger: a table that is not ours"),
        ("CREATE TRIGGER spy AFTER INSERT ON item BEGIN SELECT 1; END", "spy: a trigger that is not ours"),
        ("DROP INDEX fact_by_work", "fact_by_work: the index is missing"),
        ("DROP TABLE doubt", "doubt: the table is missing"),
    ],
)
def test_what_does_not_fit_is_named(path: str, harm: str, found: str) -> None:
    connection = database.open_writer(path, "off")
    connection.execute(harm)
    connection.close()

    report = verify(path)

    assert str(report.findings[0]).startswith(found)


def test_pages_that_do_not_fit_are_found_and_the_rest_is_still_looked_at(path: str) -> None:
    raw = bytearray(Path(path).read_bytes())
    raw[-4096 * 2 : -4096] = bytes(4096)
    Path(path).write_bytes(raw)

    report = verify(path)

    assert not report.is_whole
    assert report.findings[0].table in ("file", "")


def test_a_file_that_is_no_database_any_more_is_a_finding_and_one_that_is_not_there_an_error(tmp_path: Path) -> None:
    (tmp_path / "memory.db").write_bytes(b"x" * 8192)

    assert "not a database" in verify(str(tmp_path / "memory.db")).findings[0].what
    with pytest.raises(ConfigError, match="no memory at"):
        verify(str(tmp_path / "none.db"))


# -- one page on how it is


def test_a_file_that_is_well_is_told_so(path: str) -> None:
    lines = {line.name: line for line in Doctor(path, 0).examine()}

    assert {line.state for name, line in lines.items() if name != "disk"} == {"ok"}, lines
    assert lines["facts"].found.endswith(" told")
    assert lines["memory lock"].found == "free"


async def test_what_is_not_well_is_told_with_what_to_do(path: str, tmp_path: Path) -> None:
    connection = database.open_writer(path, "off")
    connection.execute("UPDATE fact SET at = 9e9 WHERE seq = (SELECT max(seq) FROM fact)")
    connection.execute("INSERT INTO doubt VALUES ('w/c', 'main', 1.0, NULL, '{}')")
    connection.close()
    (tmp_path / "memory.db.damaged-20260101T000000Z").touch()
    async with Memory.open(f"sqlite:///{path}"):
        lines = {line.name: line for line in Doctor(path).examine()}

    assert "held by process" in lines["memory lock"].found
    assert (lines["facts"].state, lines["facts"].advice) == ("bad", "spar memory verify")
    assert lines["clock"].state == "bad"
    assert (lines["in doubt"].state, lines["in doubt"].found) == ("warn", "1")
    assert lines["set aside"].state == "warn"
    assert lines["ballast"].state == "warn"


def test_before_the_first_start_there_is_nothing_to_look_at(tmp_path: Path) -> None:
    lines = Doctor(str(tmp_path / "new" / "memory.db")).examine()

    assert lines[-1].found.startswith("there is none at")
    with pytest.raises(ConfigError, match="in no file"):
        Doctor(":memory:").examine()


# -- what was lost stays bad until somebody has acknowledged it, and is told once


def bad(path: Path) -> list[str]:
    return [line.found for line in Doctor(str(path), 0).examine() if (line.name, line.state) == ("loss", "bad")]


async def filled(path: Path) -> None:
    async with Memory.open(f"sqlite:///{path}", ballast=0) as memory:
        for number in range(200):
            await memory.store(Experience(f"number {number} " + "x" * 200))


def damage(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[4096 * 2 : 4096 * 6] = b"\xff" * 4096 * 4
    path.write_bytes(raw)


async def test_damage_that_was_mended_at_the_start_is_bad_until_it_is_acknowledged(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    await filled(path)
    damage(path)
    for _ in range(2):  # the second start finds a file that is well again
        async with Memory.open(f"sqlite:///{path}", ballast=0):
            pass
        [said] = bad(path)
        assert "was damaged and is set aside as" in said

    assert Doctor(str(path), 0).acknowledge() == 1
    assert bad(path) == []
    assert Doctor(str(path), 0).acknowledge() == 0


async def test_what_is_lost_while_it_runs_is_noted_too(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    async with Memory.open(f"sqlite:///{path}", ballast=0) as memory:
        memory._report(Fault("damaged", "a row cannot be read: item 'x'", "memory"))
        memory._report(Fault("io", "the disk is slow", "memory"))
        await memory.flush()

    [said] = bad(path)
    assert said.endswith("a row cannot be read: item 'x'")


def test_a_loss_that_was_acknowledged_is_not_told_again_and_a_new_one_is(tmp_path: Path) -> None:
    path = str(tmp_path / "m.db")
    losses.note(path, ["one", "one", "two"])
    assert [loss.what for loss in losses.acknowledge(path)] == ["one", "two"]

    losses.note(path, ["two", "three"])

    assert [loss.what for loss in losses.unseen(path)] == ["three"]
    assert len(losses.read(path)) == 3
    Path(path + ".losses").write_bytes(b"{\n")
    assert "line 1 of" in losses.unseen(path)[0].what, "a note that cannot be read is a loss as well"


@pytest.mark.parametrize("version", [1, 5, 7])
def test_a_file_of_an_earlier_version_is_no_damage_and_can_be_copied_before_it_is_changed(
    tmp_path: Path, version: int
) -> None:
    path, copy = tmp_path / "m.db", tmp_path / "copy.db"
    connection = database.open_writer(str(path), "off")
    folder = Path(__file__).parents[1] / "sqlite"
    connection.execute((folder / f"format_{version}.sql").read_text("utf-8"))
    connection.close()

    doctor = Doctor(str(path), 0)
    [line] = [line for line in doctor.examine() if line.name == "memory"]
    doctor.back_up(str(copy))

    assert (line.state, f"older format {version}" in line.found) == ("warn", True)
    assert "spar run" in line.advice
    with database.reading(str(copy)) as rows:
        assert schema.version(rows) == version


def test_a_file_of_a_newer_version_is_bad_and_no_copy_is_put_in_its_place(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    connection = database.open_writer(str(path), "off")
    connection.execute((Path(__file__).parents[1] / "sqlite" / "format_7.sql").read_text("utf-8"))
    connection.execute("PRAGMA user_version = 99")
    connection.close()

    [line] = [line for line in Doctor(str(path), 0).examine() if line.name == "memory"]

    assert (line.state, line.advice) == ("bad", "")
    assert "was written by a newer version (format 99" in line.found
