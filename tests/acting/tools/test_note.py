"""Notes: dated, whole, one after another, and never what they pretend to be."""

from __future__ import annotations

import asyncio
import os
import re
import resource
from pathlib import Path

import pytest

from acting.tools.note import NoteTool
from spar.errors import ConfigError, PermanentError
from spar.protocols import Home
from spar.testing import check_tool

HEADING = re.compile(r"^## \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", re.MULTILINE)


def names(home: Home) -> list[str]:
    return sorted(entry.name for entry in Path(home.workspace).iterdir())


def notes(home: Home, name: str = "notes.md") -> str:
    return (Path(home.workspace) / name).read_text()


async def test_a_note_is_written_with_its_date_title_and_tags(home: Home) -> None:
    answer = await NoteTool(home=home)(text="the disk is full\nagain", title="disk", tags=["host a", "disk"])

    entry = notes(home)
    assert answer["path"] == "notes.md"
    assert answer["bytes"] == len(entry.encode())
    at = answer["at"][:19].replace("T", " ")
    assert entry == f"\n## {at} UTC · disk · #host-a #disk\n\n    the disk is full\n    again\n"


@pytest.mark.parametrize(
    "text",
    [
        "a\n## 2020-01-01 00:00:00 UTC · faked",
        "a\r## x",
        "a\u2028## x",
        "a\x0b## x",
        "a\x85## x",
        "a\n\n===\nb",
        "<b>\n---",
        "\ud800",
        "\x1b[2J\x00",
        "\u202eevil",
        "{braces} %s",
        "ü日本",
        "\n\n\n",
        " ",
        "nan",
    ],
)
async def test_no_text_can_pass_for_another_entry_or_harm_a_terminal(home: Home, text: str) -> None:
    await NoteTool(home=home)(text=text, title=text, tags=[text])

    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", notes(home))
    lines = [line for line in re.split("[\n\r\x0b\x0c\x85\u2028\u2029]", notes(home)) if line]
    assert len(HEADING.findall(lines[0])) == 1
    assert all(line.startswith("    ") for line in lines[1:])


async def test_notes_at_the_same_time_never_interleave(home: Home) -> None:
    tools = [NoteTool(home=home), NoteTool(home=home)]
    texts = [f"begin {number} {'x' * 5000}\nend {number}" for number in range(40)]

    await asyncio.gather(*(tools[number % 2](text=text) for number, text in enumerate(texts)))

    found = notes(home)
    assert len(HEADING.findall(found)) == 40
    assert all(f"    begin {number} {'x' * 5000}\n    end {number}\n" in found for number in range(40))


async def test_a_full_file_is_put_aside_and_the_oldest_goes(home: Home) -> None:
    note = NoteTool(home=home, max_bytes=200, keep=2)

    for number in range(12):
        await note(text=f"note {number} {'x' * 50}")

    assert names(home) == ["notes.md", "notes.md.1", "notes.md.2"]
    kept = notes(home, "notes.md.2") + notes(home, "notes.md.1") + notes(home)
    assert [int(number) for number in re.findall(r"note (\d+)", kept)] == list(range(12))[-len(HEADING.findall(kept)) :]
    assert all((Path(home.workspace) / name).stat().st_size <= 200 for name in names(home))


async def test_with_nothing_to_keep_a_full_file_begins_anew(home: Home) -> None:
    note = NoteTool(home=home, max_bytes=100, keep=0)

    await note(text="x" * 50)
    await note(text="y" * 50)

    assert names(home) == ["notes.md"]
    assert "x" not in notes(home)


async def test_two_tools_on_one_file_lose_nothing_when_it_is_put_aside(home: Home) -> None:
    tools = [NoteTool(home=home, max_bytes=1000, keep=99) for _ in range(4)]

    await asyncio.gather(*(tools[number % 4](text=f"note {number}.") for number in range(80)))

    kept = "".join(notes(home, name) for name in names(home))
    assert sorted(int(number) for number in re.findall(r"note (\d+)\.", kept)) == list(range(80))
    with pytest.raises(PermanentError, match="more than a whole file of 1000"):
        await tools[0](text="x" * 2000)


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({"text": ""}, "'text' must not be empty"),
        ({"text": 5}, "'text' must be text, found int"),
        ({"text": "x" * (1 << 20) + "x"}, "'text' must have at most 1048576"),
        ({"text": "x", "title": "y" * 201}, "'title' must have at most 200"),
        ({"text": "x", "tags": "abc"}, "'tags' must be a list of words"),
        ({"text": "x", "tags": [1]}, "'tags' must be a list of words"),
        ({"text": "x", "tags": ["t"] * 21}, "'tags' must be at most 20"),
    ],
)
async def test_wrong_parameters_are_named(home: Home, params: dict[str, object], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        await NoteTool(home=home)(**params)  # type: ignore[arg-type]


@pytest.mark.parametrize("path", ["../x.md", "/etc/x.md", "", ".", "a\0b"])
def test_a_path_that_leads_out_is_refused_at_construction(home: Home, path: str) -> None:
    with pytest.raises(ConfigError) as caught:
        NoteTool(home=home, path=path)

    assert caught.value.path == ("path",)


async def test_the_file_may_lie_in_a_folder_that_is_not_there_yet(home: Home) -> None:
    assert (await NoteTool(home=home, path="log/2026/n.md")(text="x"))["path"] == "log/2026/n.md"
    assert "    x\n" in notes(home, "log/2026/n.md")


async def test_a_link_or_fifo_in_the_files_place_is_refused(home: Home, tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    (tmp_path / "victim").write_text("")
    (workspace / "notes.md").symlink_to(tmp_path / "victim")
    os.mkfifo(workspace / "fifo.md")

    with pytest.raises(PermissionError, match="symbolic link"):
        await NoteTool(home=home)(text="x")
    with pytest.raises(PermissionError, match="fifo"):
        await NoteTool(home=home, path="fifo.md")(text="x")

    assert (tmp_path / "victim").read_text() == ""


async def test_what_the_disk_took_only_a_part_of_is_taken_back(home: Home) -> None:
    note = NoteTool(home=home)
    await note(text="whole")
    before = notes(home)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before.encode()) + 20, limits[1]))
    try:
        with pytest.raises(OSError, match="only 20 of"):
            await note(text="cut off")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    assert notes(home) == before
    await note(text="goes on")
    assert len(HEADING.findall(notes(home))) == 2


async def test_it_keeps_the_contract_of_a_tool(home: Home) -> None:
    await check_tool(lambda: NoteTool(home=home), params={"text": "contract", "tags": ["a"]})
