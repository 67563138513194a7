"""Attempts to get out of the workspace through `files` (S18), or at what others execute (S33), and their benign twins.

Each attack must fail and leave everything outside as it was, to the byte.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from acting.tools.file_operations import protected
from acting.tools.files import FilesTool
from spar.errors import ConfigError
from spar.protocols import Home

CANARY = "canary-7f3a"
OPS: tuple[tuple[str, dict[str, str]], ...] = (
    ("read", {}),
    ("list", {}),
    ("stat", {}),
    ("write", {"content": "evil"}),
    ("append", {"content": "evil"}),
    ("mkdir", {}),
    ("delete", {}),
    ("copy", {"to": "stolen"}),
    ("move", {"to": "stolen"}),
)


def contents(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Every file beneath, with its rights and bytes."""
    return {
        str(each.relative_to(folder)): (each.lstat().st_mode, each.read_bytes() if each.is_file() else b"")
        for each in sorted(folder.rglob("*"))
        if not each.is_symlink()
    }


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Path]:
    """What must not be reached: the configuration, the state, a secret, a folder whose name begins like the root's."""
    for name in ("ws", "etc/inbox", "state", "out/deep", "ws-evil"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("etc/config.toml", "state/spar.db", "out/secret", "out/deep/passwd", "ws-evil/x"):
        (tmp_path / name).write_text(CANARY)
    protected_folders = [tmp_path / name for name in ("etc", "state", "out", "ws-evil")]
    before = [contents(folder) for folder in protected_folders]
    yield tmp_path
    assert [contents(folder) for folder in protected_folders] == before


@pytest.fixture
def ws(outside: Path) -> Path:
    return outside / "ws"


@pytest.fixture
def files(outside: Path) -> FilesTool:
    return FilesTool(home=Home(str(outside / "etc"), str(outside / "ws"), str(outside / "state")), readable=["inbox"])


async def refused(files: FilesTool, **params: Any) -> None:
    with pytest.raises((PermissionError, ValueError, OSError)) as caught:
        await files(**params)
    assert CANARY not in str(caught.value)


PATHS = {
    "upwards": "../out/secret",
    "upwards after going down": "sub/../../out/secret",
    "upwards, hidden": "./sub/.././../out/secret",
    "absolute": "/etc/passwd",
    "absolute, doubled": "//etc/passwd",
    "absolute through the root": "{ws}/../out/secret",
    "a sibling that begins alike": "{ws}-evil/x",
    "process environment": "/proc/self/environ",
    "the root of a process": "/proc/self/root/etc/passwd",
    "a descriptor": "/dev/fd/0",
    "a link to a file": "link",
    "a link to a folder": "dlink/deep/passwd",
    "a link to a link": "chain/secret",
    "a link to a folder, itself": "dlink/",
    "a link into the process": "proclink/environ",
    "cut off by a NUL": "ok.txt\0/../../out/secret",
    "a NUL at the end": "sub\0",
    "the state": "{base}/state/spar.db",
    "the configuration": "{base}/etc/config.toml",
    "the configuration, from a source folder": "inbox/../config.toml",
    "the configuration, absolutely from there": "{base}/etc/inbox/../config.toml",
    "a home": "~/../../out/secret/x",
    "a lone surrogate": "\udcff\ud800",
    "too long": "x/" * 3000,
    "a component too long": "y" * 300,
    "full width dots": "．．/out/secret",
    "encoded dots": "%2e%2e/out/secret",
    "backslashes": "..\\out\\secret",
}


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS.keys())
async def test_no_path_leads_out(files: FilesTool, outside: Path, ws: Path, path: str) -> None:
    for op, more in OPS:
        shutil.rmtree(ws)
        (ws / "sub").mkdir(parents=True)
        (ws / "link").symlink_to("../out/secret")
        (ws / "dlink").symlink_to("../out")
        (ws / "chain").symlink_to("dlink")
        (ws / "proclink").symlink_to("/proc/self")

        # What is a mere odd name may be made inside, and a link may be described or removed: never followed.
        try:
            found = await files(op=op, path=path.format(ws=ws, base=outside), **more)
        except (PermissionError, ValueError, OSError) as error:
            found = {"error": str(error)}

        assert CANARY not in str(found), op
        assert CANARY not in str(contents(ws)), op


@pytest.mark.parametrize(("op", "to"), [("copy", "../out/new"), ("move", "/tmp/spar-attack"), ("copy", "dlink/new"),
                                        ("move", "{base}/etc/inbox/new"), ("copy", "{base}/state/new")])  # fmt: skip
async def test_nothing_is_put_outside(files: FilesTool, outside: Path, ws: Path, op: str, to: str) -> None:
    (ws / "mine").write_text("mine")
    (ws / "dlink").symlink_to("../out")

    await refused(files, op=op, path="mine", to=to.format(base=outside))

    assert (ws / "mine").read_text() == "mine"


@pytest.mark.parametrize(("op", "more"), [each for each in OPS if each[0] in ("read", "write", "append", "copy")])
async def test_a_hard_link_to_a_secret_is_neither_read_nor_written(
    files: FilesTool, outside: Path, ws: Path, op: str, more: dict[str, str]
) -> None:
    os.link(outside / "out/secret", ws / "hard")

    await refused(files, op=op, path="hard", **more)


async def test_removing_a_hard_link_leaves_the_secret(files: FilesTool, outside: Path, ws: Path) -> None:
    os.link(outside / "out/secret", ws / "hard")

    assert (await files(op="delete", path="hard"))["existed"]


@pytest.mark.parametrize("op", ["read", "write", "append", "copy", "move"])
@pytest.mark.parametrize("kind", ["fifo", "socket", "device"])
async def test_what_is_no_file_is_refused_at_once(files: FilesTool, ws: Path, kind: str, op: str) -> None:
    more = dict(OPS)[op]
    with socket.socket(socket.AF_UNIX) as listener:
        if kind == "fifo":
            os.mkfifo(ws / "odd")
        elif kind == "socket":
            listener.bind(str(ws / "odd"))
        else:
            try:
                os.mknod(ws / "odd", 0o20666, os.makedev(1, 5))  # /dev/zero
            except PermissionError:
                pytest.skip("only root makes devices")

        async with asyncio.timeout(60):  # a hang guard
            await refused(files, op=op, path="odd", **more)


EXECUTED = [".git/hooks/pre-commit", ".git/config", "sub/.git/hooks/x", ".bashrc", ".profile", ".zshenv", ".envrc",
            ".vscode/settings.json", ".claude/settings.json", ".mcp.json", ".config/autostart/x.desktop"]  # fmt: skip
SPELLINGS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "upper case": str.upper,
    "zero width": lambda path: path.replace(".", ".\u200c", 1),
    "full width": lambda path: path.replace(".", "．", 1),
    "trailing dots": lambda path: "/".join(f"{part}. ." for part in path.split("/")),
    "a stream": lambda path: path.replace("/", "::$INDEX_ALLOCATION/", 1) if "/" in path else f"{path}::$DATA",
}


@pytest.mark.parametrize("spell", SPELLINGS.values(), ids=SPELLINGS.keys())
async def test_what_others_execute_is_not_changed_however_it_is_spelt(
    files: FilesTool, ws: Path, spell: Callable[[str], str]
) -> None:
    (ws / "mine").write_text("#!/bin/sh")

    for path in map(spell, EXECUTED):
        await refused(files, op="write", path=path, content="#!/bin/sh")
        await refused(files, op="append", path=path, content="#!/bin/sh")
        await refused(files, op="delete", path=path)
        await refused(files, op="mkdir", path=path)
        for op in ("copy", "move"):
            await refused(files, op=op, path="mine", to=path)
        assert list(contents(ws)) == ["mine"], path


async def test_a_folder_does_not_become_a_git_folder_by_its_new_name(files: FilesTool, ws: Path) -> None:
    await files(op="write", path="kit/hooks/pre-commit", content="#!/bin/sh")

    await refused(files, op="move", path="kit", to=".git")
    await refused(files, op="move", path="kit", to="sub/.GIT")

    assert (ws / "kit/hooks/pre-commit").exists()


@pytest.mark.parametrize("path", [".env", ".env.local", "app/.ENV", ".ssh/id_ed25519", "keys/id_rsa", ".netrc",
                                  ".aws/credentials", ".npmrc", ".git-credentials", ".\u200denv"])  # fmt: skip
async def test_secrets_are_not_read_even_inside(files: FilesTool, ws: Path, path: str) -> None:
    (ws / path).parent.mkdir(parents=True, exist_ok=True)
    (ws / path).write_text(CANARY)

    for op, more in OPS:
        await refused(files, op=op, path=path, **more)

    assert (ws / path).read_text() == CANARY


@pytest.mark.parametrize("path", [".env.example", "environment", "git", "my.git.notes", ".gitignore", ".github/x.md",
                                  "id_rsa.pub", "profile", "a..b", "...", "..x", "grüße", "tab\tnew\nline",
                                  "-rf", "*"])  # fmt: skip
async def test_benign_names_that_look_alike_are_served(files: FilesTool, path: str) -> None:
    await files(op="write", path=path, content="fine")

    assert (await files(op="read", path=path))["content"] == "fine"
    assert (await files(op="delete", path=path))["existed"]


async def test_a_repository_may_be_read(files: FilesTool, ws: Path) -> None:
    (ws / ".git").mkdir()
    (ws / ".git/HEAD").write_text("ref: refs/heads/main")

    assert (await files(op="read", path=".git/HEAD"))["content"] == "ref: refs/heads/main"
    assert protected((".git", "HEAD"), change=True) == ".git"


async def test_the_ways_that_are_meant_all_work(files: FilesTool, outside: Path, ws: Path) -> None:
    (outside / "etc/inbox/in.txt").write_text("in")
    try:
        await files(op="write", path="sub/a", content="1")
        await files(op="append", path=f"{ws}/sub/a", content="2")
        await files(op="copy", path="inbox/in.txt", to="sub/in")
        await files(op="move", path="./sub//a", to="sub/b")

        assert (await files(op="read", path="sub/b"))["content"] == "12"
        assert [each["name"] for each in (await files(op="list", path="sub"))["entries"]] == ["b", "in"]
        assert (await files(op="stat", path="sub/b"))["bytes"] == 2
    finally:
        (outside / "etc/inbox/in.txt").unlink()


@pytest.mark.parametrize("op", ["read", "write", "append", "delete", "copy", "mkdir", "move"])
async def test_no_race_of_links_leads_out(files: FilesTool, outside: Path, ws: Path, op: str) -> None:
    """A folder is exchanged for a link to the outside thousands of times, atomically, while it is used."""
    (ws / "d").mkdir()
    (ws / "d/secret").write_text("mine")
    (ws / "evil").symlink_to(outside / "out")
    exchange = ctypes.CDLL(None, use_errno=True).renameat2
    root = os.open(ws, os.O_RDONLY)
    if exchange(root, b"d", root, b"evil", 2) != 0 and ctypes.get_errno() in (errno.EINVAL, errno.ENOSYS):
        pytest.skip("this file system cannot exchange two names")
    is_over, swaps = threading.Event(), [0]

    def swap() -> None:
        while not is_over.is_set():
            exchange(root, b"d", root, b"evil", 2)
            swaps[0] += 1

    swapper = threading.Thread(target=swap)
    swapper.start()
    worked = denied = 0
    more = dict(OPS)[op]
    try:
        for number in range(5_000):
            if number >= 60 and worked and denied:
                break
            if op in ("copy", "move"):
                more = {"to": f"taken{number}"}
            path = f"d/new{number}" if op == "mkdir" else "d/secret"
            try:
                found = await files(op=op, path=path, **more)
                assert CANARY not in str(found)
                worked += 1
                if op in ("delete", "move"):
                    await files(op="write", path="d/secret", content="mine")
            except (PermissionError, OSError):
                denied += 1
    finally:
        is_over.set()
        swapper.join()
        os.close(root)

    assert CANARY not in str({name: found for name, found in contents(ws).items() if not name.startswith("evil/")})
    assert swaps[0] > 1000
    assert worked
    assert denied


async def test_a_write_is_whole_and_leaves_nothing_beside_it_when_it_fails(files: FilesTool, ws: Path) -> None:
    (ws / "dir").mkdir()
    (ws / "dir/inner").touch()

    await refused(files, op="write", path="dir", content="x")

    assert list(contents(ws)) == ["dir", "dir/inner"]


async def test_a_sparse_giant_is_read_in_part_and_copied_nowhere_by_reading(files: FilesTool, ws: Path) -> None:
    with (ws / "giant").open("wb") as giant:
        giant.truncate(1 << 40)

    found = await files(op="read", path="giant", encoding="base64")

    assert (found["bytes"], found["truncated"]) == (1 << 40, True)
    assert len(found["content"]) < 2 << 20


@pytest.mark.parametrize("options", [{"root": "../etc"}, {"readable": ["../state"]}, {"movable": ["."]},
                                     {"root": "/"}, {"readable": ["link-to-state"]}])  # fmt: skip
def test_no_configuration_opens_the_services_own_files(outside: Path, options: dict[str, Any]) -> None:
    (outside / "etc/link-to-state").symlink_to("../state")
    try:
        with pytest.raises(ConfigError):
            FilesTool(home=Home(str(outside / "etc"), str(outside / "ws"), str(outside / "state")), **options)
    finally:
        (outside / "etc/link-to-state").unlink()


def test_calls_on_one_path_share_a_resource_however_they_spell_it(files: FilesTool, outside: Path, ws: Path) -> None:
    spelt = [
        files.resources_of({"op": "write", "path": path}) for path in ("a/b", "./a//b", f"{ws}/a/b", f"{ws}/./a/b/")
    ]

    assert set(spelt) == {(f"node:file:{ws}/a/b",)}
    assert files.resources_of({"op": "copy", "path": "inbox/x", "to": "y"}) == (
        f"node:file:{outside}/etc/inbox/x",
        f"node:file:{ws}/y",
    )
    assert files.resources_of({"op": "move", "path": "x", "to": "x"}) == (f"node:file:{ws}/x",)


@pytest.mark.parametrize("params", [{}, {"path": None}, {"path": "../x"}, {"op": [], "path": {}}, {"path": "a\0"},
                                    {"op": "copy", "path": 5, "to": []}, {"path": "\ud800"}, {"path": ""}])  # fmt: skip
def test_a_call_that_cannot_be_made_needs_nothing_and_says_so_quietly(files: FilesTool, params: dict[str, Any]) -> None:
    assert files.resources_of(params) == ()
    assert files.effect_of(params) == ("idempotent" if params.get("op") == "copy" else "once")
