"""What was lost stays bad until somebody has acknowledged it, and is told once."""

from __future__ import annotations

from pathlib import Path

import pytest

from memory import Memory
from memory.care import losses
from memory.care.doctor import Doctor
from memory.sqlite import database, schema
from spar.types import Experience, Fault


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


def test_a_note_that_cannot_be_read_is_a_loss_as_well(tmp_path: Path) -> None:
    (tmp_path / "m.db.losses").write_bytes(b"{\n")

    assert "line 1 of" in losses.unseen(str(tmp_path / "m.db"))[0].what


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
