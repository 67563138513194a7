"""Files in the workspace and documents from named folders."""

from __future__ import annotations

import base64
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from acting.tools.files import FilesTool
from spar.errors import ConfigError
from spar.fs import atomic as whole
from spar.protocols import Home
from spar.testing import check_tool


@pytest.fixture
def home(tmp_path: Path) -> Home:
    for name in ("workspace", "state", "inbox", "archive", "outside"):
        (tmp_path / name).mkdir()
    (tmp_path / "outside/secret").write_text("secret")
    (tmp_path / "config.toml").write_text("")
    return Home(str(tmp_path), str(tmp_path / "workspace"), str(tmp_path / "state"))


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


@pytest.fixture
def workspace(home: Home) -> Path:
    return Path(home.workspace)


@pytest.fixture
def files(home: Home) -> FilesTool:
    return FilesTool(home=home, readable=["archive"], movable=["inbox"])


async def test_what_was_written_can_be_read(files: FilesTool, workspace: Path) -> None:
    assert await files(op="write", path="a/b.txt", content="grüße") == {"path": "a/b.txt", "bytes": 7}
    assert await files(op="append", path="a/b.txt", content="!") == {"path": "a/b.txt", "bytes": 8}

    found = await files(op="read", path="a/b.txt")

    assert found == {
        "path": "a/b.txt", "bytes": 8, "truncated": False, "encoding": "utf-8", "content": "grüße!", "lossy": False,
    }  # fmt: skip
    assert names(workspace) == ["a"]


async def test_bytes_travel_as_base64(files: FilesTool, workspace: Path) -> None:
    content = bytes(range(256))

    await files(op="write", path="x.bin", content=base64.b64encode(content).decode(), encoding="base64")

    assert (workspace / "x.bin").read_bytes() == content
    assert base64.b64decode((await files(op="read", path="x.bin", encoding="base64"))["content"]) == content


async def test_a_text_that_is_none_is_read_with_marks_and_says_so(files: FilesTool, workspace: Path) -> None:
    (workspace / "latin").write_bytes(b"gr\xfc\xdfe")

    found = await files(op="read", path="latin")

    assert (found["content"], found["lossy"]) == ("gr��e", True)


async def test_a_large_file_is_cut_between_characters(home: Home, workspace: Path) -> None:
    (workspace / "big").write_text("ü" * 10)

    found = await FilesTool(home=home, max_read=7)(op="read", path="big")

    assert (found["content"], found["bytes"], found["truncated"], found["lossy"]) == ("üüü", 20, True, False)


async def test_writing_keeps_the_rights_of_what_it_replaces(files: FilesTool, workspace: Path) -> None:
    (workspace / "x").write_text("old")
    (workspace / "x").chmod(0o640)

    await files(op="write", path="x", content="new")

    assert (workspace / "x").read_text() == "new"
    assert (workspace / "x").stat().st_mode & 0o777 == 0o640


async def test_a_reader_never_sees_a_half_written_file(files: FilesTool, workspace: Path) -> None:
    contents = ["a" * 300_000, "b" * 300_000]
    (workspace / "x").write_text(contents[0])
    seen, is_over = set(), threading.Event()

    def watch() -> None:
        while not is_over.is_set():
            seen.add((workspace / "x").read_text())

    watcher = threading.Thread(target=watch)
    watcher.start()
    for number in range(30):
        await files(op="write", path="x", content=contents[number % 2])
    is_over.set()
    watcher.join()

    assert seen <= set(contents)


async def test_a_folder_is_listed_in_order_with_kinds(files: FilesTool, workspace: Path) -> None:
    (workspace / "sub").mkdir()
    (workspace / "b").write_text("12345")
    (workspace / "a").symlink_to("b")
    os.mkfifo(workspace / "p")

    found = await files(op="list", path=".")

    assert [(e["name"], e["kind"]) for e in found["entries"]] == [
        ("a", "symbolic link"), ("b", "file"), ("p", "fifo"), ("sub", "folder"),
    ]  # fmt: skip
    assert (found["total"], found["truncated"]) == (4, False)
    assert (await files(op="list", path="sub"))["entries"] == []


async def test_a_crowded_folder_is_listed_in_part(files: FilesTool, workspace: Path) -> None:
    for number in range(1005):
        (workspace / f"{number:04}").touch()

    found = await files(op="list", path=".")

    assert (len(found["entries"]), found["total"], found["truncated"]) == (1000, 1005, True)
    assert found["entries"][-1]["name"] == "0999"


async def test_names_that_are_no_text_do_no_harm(files: FilesTool, workspace: Path) -> None:
    (workspace / "new\nline\x1b").touch()
    (workspace / os.fsdecode(b"\xff")).touch()

    found = [entry["name"] for entry in (await files(op="list", path="."))["entries"]]

    assert found == ["new\nline\\x1b", "\\udcff"]


async def test_a_file_is_described(files: FilesTool, workspace: Path) -> None:
    (workspace / "x").write_text("123")
    os.utime(workspace / "x", (0, 0))
    (workspace / "y").touch()
    os.utime(workspace / "y", (0, 10**12))

    assert await files(op="stat", path="x") == {
        "path": "x", "kind": "file", "bytes": 3, "modified_at": "1970-01-01T00:00:00+00:00",
    }  # fmt: skip
    assert (await files(op="stat", path="."))["kind"] == "folder"
    assert (await files(op="stat", path="y"))["kind"] == "file"


async def test_deleting_takes_files_links_and_empty_folders_and_may_be_repeated(
    files: FilesTool, workspace: Path
) -> None:
    (workspace / "d").mkdir()
    (workspace / "full").mkdir()
    (workspace / "full/x").touch()
    (workspace / "link").symlink_to("full/x")

    assert (await files(op="delete", path="d"))["existed"]
    assert (await files(op="delete", path="link"))["existed"]
    assert not (await files(op="delete", path="d"))["existed"]
    assert not (await files(op="delete", path="no/such/thing"))["existed"]
    with pytest.raises(OSError, match="cannot delete 'full': directory not empty"):
        await files(op="delete", path="full")

    assert (workspace / "full/x").exists()


async def test_folders_are_made_with_their_parents_and_may_be_there(files: FilesTool, workspace: Path) -> None:
    await files(op="mkdir", path="a/b/c")
    await files(op="mkdir", path="a/b/c")

    assert (workspace / "a/b/c").is_dir()


async def test_a_document_is_filed_from_the_inbox(files: FilesTool, home: Home, workspace: Path) -> None:
    document = Path(home.config) / "inbox/letter.pdf"
    document.write_bytes(b"%PDF")

    await files(op="move", path=str(document), to="2026/letters/letter.pdf")

    assert (workspace / "2026/letters/letter.pdf").read_bytes() == b"%PDF"
    assert not document.exists()


async def test_source_folders_are_named_relative_to_the_configuration_too(
    files: FilesTool, home: Home, workspace: Path
) -> None:
    (Path(home.config) / "inbox/x").write_text("in")
    (Path(home.config) / "archive/y").write_text("old")

    await files(op="copy", path="inbox/x", to="x")
    await files(op="copy", path="archive/y", to="y")

    assert (await files(op="read", path="archive/y"))["content"] == "old"
    assert ((workspace / "x").read_text(), (workspace / "y").read_text()) == ("in", "old")
    assert [entry["name"] for entry in (await files(op="list", path="inbox"))["entries"]] == ["x"]


async def test_what_is_only_readable_is_not_moved_away(files: FilesTool, home: Home) -> None:
    document = Path(home.config) / "archive/y"
    document.write_text("old")

    with pytest.raises(PermissionError, match=re.escape(f"outside of what may be used for this: {home.workspace}")):
        await files(op="move", path=str(document), to="y")

    assert document.exists()


@pytest.mark.parametrize("op", ["write", "append", "delete", "mkdir"])
async def test_source_folders_are_never_changed(files: FilesTool, home: Home, op: str) -> None:
    document = Path(home.config) / "inbox/x"
    document.write_text("in")
    content = "changed" if op in ("write", "append") else None

    with pytest.raises(PermissionError, match="outside"):
        await files(op=op, path=str(document), content=content)

    assert document.read_text() == "in"


async def test_nothing_can_be_moved_or_copied_into_a_source_folder(
    files: FilesTool, home: Home, workspace: Path
) -> None:
    (workspace / "x").write_text("mine")

    for op in ("copy", "move"):
        with pytest.raises(PermissionError, match="outside"):
            await files(op=op, path="x", to=str(Path(home.config) / "inbox/x"))

    assert names(Path(home.config) / "inbox") == []


async def test_moving_and_copying_never_destroy_what_is_there(files: FilesTool, workspace: Path) -> None:
    (workspace / "a").write_text("a")
    (workspace / "b").write_text("b")

    for op in ("copy", "move"):
        with pytest.raises(FileExistsError, match=f"cannot {op} 'a': file exists"):
            await files(op=op, path="a", to="b")

    assert ((workspace / "a").read_text(), (workspace / "b").read_text()) == ("a", "b")
    assert names(workspace) == ["a", "b"]


async def test_a_copy_that_is_there_already_counts_as_made(files: FilesTool, workspace: Path) -> None:
    (workspace / "a").write_text("same")

    first = await files(op="copy", path="a", to="b")

    assert await files(op="copy", path="a", to="b") == first
    assert names(workspace) == ["a", "b"]


async def test_a_folder_can_be_moved_but_not_into_itself(files: FilesTool, workspace: Path) -> None:
    (workspace / "a/b").mkdir(parents=True)

    await files(op="move", path="a", to="c/a")
    with pytest.raises(OSError, match="cannot move 'c'"):
        await files(op="move", path="c", to="c/a/d")

    assert (workspace / "c/a/b").is_dir()


async def test_without_renameat2_nothing_is_destroyed_either(
    files: FilesTool, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whole, "_renameat2", lambda: None)
    (workspace / "a").write_text("a")
    (workspace / "b").write_text("b")

    with pytest.raises(FileExistsError):
        await files(op="move", path="a", to="b")
    await files(op="move", path="a", to="c")

    assert names(workspace) == ["b", "c"]


@pytest.fixture
def far_inbox(workspace: Path) -> Iterator[Path]:
    """A folder on another file system than the workspace."""
    inbox = Path(f"/dev/shm/spar-test-{os.getpid()}")
    try:
        inbox.mkdir()
    except OSError:
        pytest.skip("needs /dev/shm")
    if inbox.stat().st_dev == workspace.stat().st_dev:
        inbox.rmdir()
        pytest.skip("needs a second file system")
    yield inbox
    for left in inbox.iterdir():
        left.unlink()
    inbox.rmdir()


async def test_a_document_from_another_file_system_is_copied_and_then_removed(
    home: Home, workspace: Path, far_inbox: Path
) -> None:
    (far_inbox / "x").write_bytes(b"far" * 1_000_000)

    await FilesTool(home=home, movable=[str(far_inbox)])(op="move", path=str(far_inbox / "x"), to="x")

    assert names(far_inbox) == []
    assert (workspace / "x").read_bytes() == b"far" * 1_000_000


async def test_links_in_a_source_folder_lead_nowhere(files: FilesTool, home: Home) -> None:
    (Path(home.config) / "inbox/x").symlink_to("../state")
    (Path(home.config) / "inbox/y").symlink_to("../outside/secret")

    for op, more in (("read", {}), ("copy", {"to": "z"}), ("move", {"to": "z"})):
        with pytest.raises(PermissionError, match="symbolic link"):
            await files(op=op, path="inbox/y", **more)
    with pytest.raises(PermissionError, match="symbolic link"):
        await files(op="read", path="inbox/x/token")


async def test_a_smaller_root_confines_further(home: Home, workspace: Path) -> None:
    (workspace / "docs").mkdir()
    (workspace / "x").write_text("x")
    docs = FilesTool(home=home, root="docs")

    await docs(op="write", path="y", content="y")

    assert (workspace / "docs/y").read_text() == "y"
    with pytest.raises(PermissionError, match="outside"):
        await docs(op="read", path=str(workspace / "x"))


def test_a_workspace_that_holds_the_configuration_or_state_is_refused(tmp_path: Path) -> None:
    for config, state in ((tmp_path, "/var/empty"), ("/var/empty", tmp_path / "state"), ("/var/empty", tmp_path)):
        with pytest.raises(ConfigError, match="must not lie in one another"):
            FilesTool(home=Home(str(config), str(tmp_path), str(state)))


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({"op": "chmod", "path": "x"}, "'op' must be one of read, list, stat"),
        ({"op": ["read"], "path": "x"}, "'op' must be one of"),
        ({"op": "write", "path": "x"}, "'content' is for write and append"),
        ({"op": "read", "path": "x", "content": "y"}, "'content' is for write and append"),
        ({"op": "move", "path": "x"}, "'to' is for copy and move"),
        ({"op": "write", "path": "x", "content": 5}, "'content' must be text, found int"),
        ({"op": "write", "path": "x", "content": "\ud800"}, "lone surrogate at 0"),
        ({"op": "write", "path": "x", "content": "?", "encoding": "base64"}, "no base64"),
        ({"op": "write", "path": "x", "content": "y", "encoding": "latin-1"}, "'encoding' must be"),
        ({"op": "write", "path": "x", "content": "y" * 101}, "101 bytes, more than the 100"),
        ({"op": "read", "path": ""}, "a path must be text that is not empty"),
        ({"op": "read", "path": 5}, "a path must be text that is not empty"),
        ({"op": "read", "path": "a\0b"}, "holds a NUL"),
        ({"op": "read", "path": "\ud800"}, "no file name can have"),
        ({"op": "delete", "path": "."}, "name something in it"),
        ({"op": "write", "path": "./", "content": "y"}, "name something in it"),
    ],
)
async def test_wrong_parameters_are_named(home: Home, workspace: Path, params: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        await FilesTool(home=home, max_write=100)(**params)

    assert names(workspace) == []


async def test_a_missing_file_is_said_with_its_path(files: FilesTool) -> None:
    with pytest.raises(FileNotFoundError, match="cannot read 'a/b': 'a' does not exist"):
        await files(op="read", path="a/b")
    with pytest.raises(FileNotFoundError, match="cannot stat 'b'"):
        await files(op="stat", path="b")


def test_the_effect_depends_on_the_operation(files: FilesTool) -> None:
    ops = ("read", "list", "stat", "write", "mkdir", "delete", "copy", "append", "move", "junk", None, ["read"])

    effects = [files.effect_of({"op": op}) for op in ops]

    assert effects == ["read"] * 3 + ["idempotent"] * 4 + ["once"] * 5
    assert files.effect_of({}) == "once"


async def test_the_workspace_is_made_when_it_is_missing(tmp_path: Path) -> None:
    home = Home(f"{tmp_path}/config", f"{tmp_path}/not/there/yet", f"{tmp_path}/state")

    assert (await FilesTool(home=home)(op="list", path="."))["entries"] == []


async def test_it_keeps_the_contract_of_a_tool(home: Home) -> None:
    await check_tool(lambda: FilesTool(home=home), params={"op": "write", "path": "a/b", "content": "contract"})
