"""Opening files strictly beneath a folder, by both ways of doing it."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

import pytest

from spar.fs.rooted import Opener, RootedDir, best_opener, by_openat2, by_walking, look, open_file, split

#: Reads until a race must have been seen from both sides.
MOST_READS = 1_000_000


@pytest.fixture(params=[by_openat2, by_walking], ids=["openat2", "walk"])
def opener(request: pytest.FixtureRequest) -> Opener:
    if request.param is by_openat2 and best_opener() is not by_openat2:
        pytest.skip("this kernel has no openat2")
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def folder(tmp_path: Path, opener: Opener) -> RootedDir:
    (tmp_path / "root/a/b").mkdir(parents=True)
    (tmp_path / "root/a/b/file").write_text("inside")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/file").write_text("secret")
    return RootedDir(str(tmp_path / "root"), opener=opener)


def read(folder: RootedDir, path: str) -> str:
    with folder.entry(split(path)) as (parent, name):
        file = open_file(parent, name, os.O_RDONLY)
        with os.fdopen(file) as stream:
            return stream.read()


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_file_beneath_is_opened(folder: RootedDir) -> None:
    assert read(folder, "a/b/file") == "inside"
    assert read(folder, "./a//b/./file") == "inside"


@pytest.mark.parametrize(
    "path", ["../outside/file", "a/../../outside/file", "/etc/passwd", "a\0b", "x" * 256, "\ud800"]
)
def test_a_path_that_is_none_is_refused_before_anything_is_opened(path: str) -> None:
    with pytest.raises(ValueError, match="path"):
        split(path)


@pytest.mark.parametrize("target", ["../outside", "/etc", "a", "/proc/self/root"])
def test_a_link_on_the_way_is_refused_wherever_it_leads(folder: RootedDir, tmp_path: Path, target: str) -> None:
    (tmp_path / "root/link").symlink_to(target)

    with pytest.raises(PermissionError, match="symbolic link"):
        read(folder, "link/file")


def test_special_files_are_refused_without_blocking(folder: RootedDir, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "root/pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "root/sock"))

        with pytest.raises(PermissionError, match="'pipe' is a fifo"):
            read(folder, "pipe")
        with pytest.raises(PermissionError, match="'sock' is a socket"):
            read(folder, "sock")
        with pytest.raises(PermissionError, match="'a' is a folder"):
            read(folder, "a")


def test_a_file_with_a_second_hard_link_is_refused(folder: RootedDir, tmp_path: Path) -> None:
    os.link(tmp_path / "outside/file", tmp_path / "root/hard")

    with pytest.raises(PermissionError, match="2 hard links"):
        read(folder, "hard")


def test_what_is_missing_or_no_folder_is_said_with_its_path(folder: RootedDir) -> None:
    with pytest.raises(FileNotFoundError, match="'a/x' does not exist"):
        read(folder, "a/x/file")
    with pytest.raises(FileNotFoundError, match="'x' does not exist"):
        read(folder, "a/b/x")
    with pytest.raises(NotADirectoryError, match="not a folder"):
        read(folder, "a/b/file/x")


def test_missing_folders_are_made_but_not_over_a_link(folder: RootedDir, tmp_path: Path) -> None:
    (tmp_path / "root/link").symlink_to("../outside")

    with folder.directory(("n", "e", "w"), make=True):
        pass
    with pytest.raises(PermissionError), folder.directory(("link", "new"), make=True):
        pass

    assert (tmp_path / "root/n/e/w").is_dir()
    assert not (tmp_path / "outside/new").exists()


def test_the_folder_itself_is_no_entry(folder: RootedDir) -> None:
    with pytest.raises(ValueError, match="name something in it"), folder.entry(()):
        pass


def test_no_descriptor_is_lost_whatever_happens(folder: RootedDir, tmp_path: Path) -> None:
    (tmp_path / "root/link").symlink_to("../outside")
    before = open_descriptors()

    for path in ("a/b/file", "link/x", "a/b/file/x", "x/y/z", "a", "a/b/none"):
        try:
            read(folder, path)
        except OSError:
            pass

    assert open_descriptors() == before


def test_creating_makes_a_regular_file_in_the_open_folder(folder: RootedDir, tmp_path: Path) -> None:
    with folder.entry(("a", "new")) as (parent, name):
        os.close(open_file(parent, name, os.O_WRONLY | os.O_CREAT))
        assert look(parent, name).st_size == 0

    assert (tmp_path / "root/a/new").is_file()


def test_swapping_a_folder_for_a_link_never_leads_out(folder: RootedDir, tmp_path: Path) -> None:
    root, is_over = tmp_path / "root", threading.Event()
    (root / "d").mkdir()
    (root / "d/file").write_text("inside")
    (root / "evil").symlink_to("../outside")

    def swap() -> None:
        while not is_over.is_set():
            for one, other in (("d", "aside"), ("evil", "d"), ("d", "evil"), ("aside", "d")):
                (root / one).rename(root / other)

    swapper = threading.Thread(target=swap)
    swapper.start()
    seen = {"inside": 0, "refused": 0}
    try:
        for number in range(MOST_READS):
            if number >= 3000 and all(seen.values()):  # a busy machine may let one of the two wait for long
                break
            try:
                seen[read(folder, "d/file")] += 1  # a KeyError here is the secret
            except OSError:
                seen["refused"] += 1
    finally:
        is_over.set()
        swapper.join()

    assert seen["inside"] > 0
    assert seen["refused"] > 0
