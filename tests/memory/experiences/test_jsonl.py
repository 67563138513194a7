"""Out as JSON lines and in again: equal, complete or not at all."""

from __future__ import annotations

import io
import json
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory import Memory
from spar.errors import SparError
from spar.types import Experience

ANY_TEXT = st.text(alphabet=st.characters(exclude_categories=()), max_size=60)
EXPERIENCES = st.builds(
    Experience,
    situation=ANY_TEXT,
    action=ANY_TEXT,
    outcome=ANY_TEXT,
    success=st.none() | st.booleans(),
    task=ANY_TEXT,
    cause=ANY_TEXT,
    lesson=ANY_TEXT,
    id=ANY_TEXT,
    at=st.datetimes(timezones=st.just(UTC)),
    session=ANY_TEXT,
    cost=st.floats(allow_nan=False, allow_infinity=False),
    trust=st.sampled_from(["trusted", "untrusted"]),
    origin=ANY_TEXT,
)


def line(**fields: object) -> str:
    return json.dumps({"situation": "x", **fields})


@settings(max_examples=15)
@given(st.lists(EXPERIENCES, max_size=6, unique_by=lambda experience: experience.id))
async def test_what_was_exported_is_imported_equal(experiences: list[Experience]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "experiences.jsonl"
        async with Memory.open("sqlite://:memory:") as memory:
            for experience in experiences:
                await memory.store(experience)
            assert await memory.export(file) == len(experiences)
        assert file.read_bytes().isascii()

        async with Memory.open("sqlite://:memory:") as memory:
            assert await memory.import_(file, trust=True) == len(experiences)
            assert await memory.import_(file, trust=True) == 0
            found = {experience.id: experience for experience in await memory.recall("", 10)}
    assert found == {experience.id: experience for experience in experiences}


async def test_open_files_are_taken_too_and_large_memories_go_in_batches(tmp_path: Path, memory: Memory) -> None:
    target = io.StringIO()
    async with Memory.open(f"sqlite:///{tmp_path}/memory.db") as large:
        for number in range(1_200):
            await large.store(Experience(f"disk {number}", id=f"e{number:04}"))
        assert await large.export(target) == 1_200

    target.seek(0)
    assert await memory.import_(target) == 1_200
    assert (await memory.recall("1199"))[0].id == "e1199"


async def test_a_file_with_bad_lines_is_refused_whole_and_the_lines_are_named(tmp_path: Path, memory: Memory) -> None:
    lines = [
        line(id="good"),
        "",
        "not json",
        line(situation=5),
        "[]",
        line(at="yesterday"),
        line(cost="much"),
        line(trust="sure"),
        "[" * 100_000,
    ]
    (tmp_path / "bad.jsonl").write_text("\n".join(lines))

    with pytest.raises(SparError) as caught:
        await memory.import_(tmp_path / "bad.jsonl")
    counts = await memory.counts()

    message = str(caught.value)
    assert all(f"line {number}: " in message for number in (3, 4, 5, 6, 7, 8, 9))
    assert "line 1:" not in message
    assert "bad.jsonl" in message
    assert counts["experiences"] == 0


async def test_an_import_that_cannot_be_read_or_an_export_that_cannot_be_written_says_so(
    tmp_path: Path, memory: Memory
) -> None:
    with pytest.raises(FileNotFoundError):
        await memory.import_(tmp_path / "none.jsonl")
    with pytest.raises(FileNotFoundError):
        await memory.export(tmp_path / "none" / "x.jsonl")


async def test_a_line_without_an_id_gets_one_and_unknown_fields_are_let_pass(tmp_path: Path, memory: Memory) -> None:
    text = line(vector=[1, 2], at=datetime(2026, 1, 1, tzinfo=UTC).isoformat()) + "\n" + line()

    assert await memory.import_(io.StringIO(text)) == 2
