"""Files that come, change and go, in real directories under a real watch."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from perception.sensors.directory import DirectorySensor
from perception.sensors.files import NEVER, Files, KnownFile, folders_of
from perception.sensors.folder import Entry, Folder, Text, readable
from perception.sensors.watch import Watch
from spar.clock import SystemClock, Timer
from spar.protocols import Home, PassingRows, SensorContext
from spar.testing import check_sensor
from spar.types import Perception
from tests.effort import effort, growth
from tests.waiting import until


class HeldClock(SystemClock):
    """Clock whose time passes only when the test says so; who waits by it looks again soon."""

    at = 0.0

    def monotonic(self) -> float:
        return self.at

    def call_at(self, when: float, callback: Callable[[], object]) -> Timer:
        return asyncio.get_running_loop().call_later(min(when - self.at, 0.01), callback)


class Quick(DirectorySensor):
    """One that tries again soon."""

    retry = 0.02


class Drop:
    """A directory and what a sensor says of it, over any number of restarts."""

    def __init__(self, root: Path, **options: Any) -> None:
        self.home = Home(str(root), str(root / "work"), str(root / "state"))
        self.path = root / "in"
        self.options = {"settle": 0.02} | options
        self.found: list[Perception] = []
        self.faults: list[Any] = []
        self.cursor: Any = None
        self.rows = PassingRows()
        self.room = 10_000

    @asynccontextmanager
    async def watched(
        self, sort: type[DirectorySensor] = Quick, clock: SystemClock | None = None, **options: Any
    ) -> AsyncIterator[DirectorySensor]:
        sensor = sort("in", home=self.home, **self.options | options)
        context = SensorContext(
            "drop",
            clock or SystemClock(),
            self.push,
            cursor=self.cursor,
            checkpoint=self.keep,
            report=lambda event, **fields: self.faults.append(fields["error"]),
            rows=self.rows,
        )
        await sensor.open(context)
        try:
            yield sensor
        finally:
            await sensor.close()

    def push(self, perception: Perception) -> bool:
        if len(self.found) >= self.room:
            return False
        self.found.append(perception)
        return True

    def keep(self, cursor: Any) -> None:
        self.cursor = json.loads(json.dumps(cursor))

    def write(self, name: str, content: str | bytes = "hello") -> Path:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    @property
    def told(self) -> list[tuple[str, str]]:
        return [(item.kind, item.attributes["name"]) for item in self.found]

    async def sees(self, *told: tuple[str, str]) -> None:
        """Wait until exactly this has been told, in any order."""
        await until(lambda: len(self.found) >= len(told))
        assert sorted(self.told) == sorted(told)


async def idle(sensor: DirectorySensor) -> None:
    """Wait until the watch has begun and nothing is left to be looked at."""
    await until(lambda: sensor._watch is not None and sensor._watch._has_begun)
    await until(lambda: not sensor._files.pending and not sensor._files.ready)
    await until(lambda: not sensor._hints and sensor._look_at > 0)


def sizes_of(sensor: DirectorySensor) -> list[int]:
    """Return the bytes of the files that the sensor has seen and that may still be written."""
    return [entry.size for entry, _ in sensor._files.pending.values() if entry is not None]


@pytest.fixture
def drop(tmp_path: Path) -> Drop:
    return Drop(tmp_path)


async def test_a_file_that_is_dropped_is_told_with_what_is_in_it_once_it_is_not_written_any_more(drop: Drop) -> None:
    clock = HeldClock()
    async with drop.watched(settle=0.15, clock=clock) as sensor:
        await idle(sensor)
        for size in range(1, 9):
            path = drop.write("note.txt", "ü" * size)
            await until(lambda size=size: sizes_of(sensor) == [2 * size])
            clock.at += 0.1
        assert drop.found == []
        clock.at += 0.15
        await drop.sees(("file.added", "note.txt"))

    (item,) = drop.found
    assert item.content == "ü" * 8
    assert (item.subject, item.source, item.trust) == (str(path), "drop", "untrusted")
    assert item.attributes == {
        "path": str(path), "name": "note.txt", "suffix": ".txt", "size": 16, "truncated": False, "binary": False,
    }  # fmt: skip
    assert item.key.startswith(f"{path} {path.stat().st_mtime_ns} 16 ")


async def test_changes_and_removals_are_told(drop: Drop) -> None:
    async with drop.watched() as sensor:
        path = drop.write("a.txt", "one")
        await drop.sees(("file.added", "a.txt"))
        drop.write("a.txt", "two!")
        await drop.sees(("file.added", "a.txt"), ("file.changed", "a.txt"))
        path.unlink()
        await drop.sees(("file.added", "a.txt"), ("file.changed", "a.txt"), ("file.removed", "a.txt"))
        await idle(sensor)

    assert [item.content for item in drop.found] == ["one", "two!", "file a.txt was removed"]
    assert len({item.key for item in drop.found}) == 3
    assert await drop.rows.list() == {"/": str(drop.path)}


async def test_what_is_there_already_can_be_left_alone_also_when_its_marking_was_cut_off(drop: Drop) -> None:
    drop.write("marked.txt")
    drop.write("old.txt")
    drop.rows.keep("marked.txt", [1, 1, "", 1])  # by a life that ended before it had marked all
    async with drop.watched(existing=False) as sensor:
        await idle(sensor)
        assert drop.found == []
        assert (await drop.rows.list()).keys() == {"/", "marked.txt", "old.txt"}

        drop.write("new.txt")
        await drop.sees(("file.added", "new.txt"))
        drop.write("old.txt", "changed")
        await drop.sees(("file.added", "new.txt"), ("file.changed", "old.txt"))


async def test_the_same_content_dropped_again_is_not_told_again(drop: Drop) -> None:
    async with drop.watched() as sensor:
        path = drop.write("order.txt", "7 apples")
        await drop.sees(("file.added", "order.txt"))
        before = (await drop.rows.list())["order.txt"]
        os.utime(path, ns=(1, 1))
        while (await drop.rows.list())["order.txt"] == before:
            await asyncio.sleep(0.005)
        await idle(sensor)

    assert len(drop.found) == 1


async def test_a_file_moved_over_another_is_one_change(drop: Drop) -> None:
    drop.write("a.txt", "old")
    async with drop.watched() as sensor:
        await drop.sees(("file.added", "a.txt"))
        await idle(sensor)
        drop.write(".a.new", "new!").replace(drop.path / "a.txt")
        await drop.sees(("file.added", "a.txt"), ("file.changed", "a.txt"))


async def test_names_choose_what_is_told(drop: Drop) -> None:
    for name in ("a.csv", "b.txt", ".hidden.csv", "c.csv.part", "~d.csv"):
        drop.write(name)
    async with drop.watched(include=("*.csv",)) as sensor:
        await idle(sensor)
        drop.write("e.txt")
        drop.write("f.csv")
        await drop.sees(("file.added", "a.csv"), ("file.added", "f.csv"))


async def test_what_lies_below_is_told_when_asked_for(drop: Drop) -> None:
    drop.write("one/a.txt")
    drop.write("b.txt")
    drop.write(".git/c.txt")
    async with drop.watched(recursive=True) as sensor:
        await drop.sees(("file.added", "a.txt"), ("file.added", "b.txt"))
        await idle(sensor)
        drop.write("two/three/d.txt")
        await until(lambda: len(drop.found) == 3)
        shutil.rmtree(drop.path / "one")
        await until(lambda: len(drop.found) == 4)

    assert drop.found[2].subject == str(drop.path / "two/three/d.txt")
    assert drop.told[3] == ("file.removed", "a.txt")


async def test_without_recursion_what_lies_below_is_not_told_and_a_pipe_is_no_file(drop: Drop) -> None:
    drop.write("below/a.txt")
    os.mkfifo(drop.path / "pipe")
    async with drop.watched() as sensor:
        await idle(sensor)
        drop.write("below/b.txt")
        drop.write("c.txt")
        await drop.sees(("file.added", "c.txt"))


async def test_symlinks_lead_nowhere_outside(drop: Drop, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key.txt").write_text("s3cret")
    drop.write("real.txt", "mine")
    (drop.path / "out.txt").symlink_to(secret / "key.txt")
    (drop.path / "dir").symlink_to(secret)
    (drop.path / "loop").symlink_to(drop.path / "loop")
    (drop.path / "inside.txt").symlink_to("real.txt")

    async with drop.watched(recursive=True) as sensor:
        await drop.sees(("file.added", "real.txt"), ("file.added", "inside.txt"))
        (secret / "key.txt").write_text("changed")
        await idle(sensor)

    assert {item.content for item in drop.found} == {"mine"}
    assert drop.faults == []


@pytest.mark.parametrize(
    ("raw", "content", "truncated", "binary"),
    [
        (b"", "", False, False),
        (b"caf\xe9", "caf\ufffd", False, False),
        (b"0123456789abc", "0123456789", True, False),
        ("123456789é!".encode(), "123456789", True, False),
        (b"\x89PNG\0\0", "binary file x, 6 bytes", False, True),
        (b"{} {braces} \x1b[0m", "{} {braces", True, False),
    ],
    ids=["empty", "not utf-8", "too long", "cut in a character", "binary", "braces"],
)
async def test_any_bytes_become_text(drop: Drop, raw: bytes, content: str, truncated: bool, binary: bool) -> None:
    drop.write("x", raw)
    async with drop.watched(read=10):
        await drop.sees(("file.added", "x"))

    (item,) = drop.found
    assert item.content == content
    assert (item.attributes["truncated"], item.attributes["binary"]) == (truncated, binary)
    item.content.encode()


async def test_a_name_that_is_no_text_is_made_readable(drop: Drop) -> None:
    async with drop.watched() as sensor:
        await idle(sensor)
        os.close(os.open(os.fsencode(drop.path) + b"/bad\xff.txt", os.O_CREAT | os.O_WRONLY))
        await drop.sees(("file.added", "bad\\udcff.txt"))
        await idle(sensor)
        drop.write("good.txt")
        await until(lambda: len(drop.found) == 2)
    async with drop.watched() as sensor:
        await idle(sensor)

    assert len(drop.found) == 2
    json.dumps([drop.cursor, drop.found[0].attributes], ensure_ascii=False).encode()
    assert readable("bad\udcff") == "bad\\udcff"


async def test_a_full_buffer_delays_and_loses_nothing(drop: Drop) -> None:
    for i in range(5):
        drop.write(f"{i}.txt")
    drop.room = 2
    async with drop.watched() as sensor:
        await until(lambda: drop.cursor is not None and drop.cursor["count"] == 2)
        assert len(drop.found) == 2
        drop.room = 100
        sensor._hinted(set())
        await drop.sees(*(("file.added", f"{i}.txt") for i in range(5)))


async def test_the_paths_of_many_events_hold_nothing_up(drop: Drop) -> None:
    async with drop.watched() as sensor:
        await idle(sensor)
        paths = {f"{i}.txt" for i in range(5_000)}
        assert effort(lambda: sensor._hinted(paths)) < 20


async def test_a_file_that_cannot_be_read_is_told_once_and_disturbs_no_other(drop: Drop) -> None:
    class Guarded(Folder):
        def read(self, entry: Entry, limit: int) -> Text | None:
            if entry.path == "closed.txt":
                raise PermissionError(13, "Permission denied")
            return super().read(entry, limit)

    class Reading(Quick):
        rescan, folder = 0.05, Guarded

    drop.write("closed.txt")
    async with drop.watched(Reading):
        drop.write("open.txt")
        await drop.sees(("file.added", "open.txt"))
        await until(lambda: bool(drop.faults))
        await asyncio.sleep(0.15)  # several looks later

    assert [(fault.kind, fault.message) for fault in drop.faults] == [
        ("permission", f"cannot read '{drop.path}/closed.txt': Permission denied")
    ]


# -- the directory itself


async def test_a_missing_directory_is_made_where_the_configuration_lies_or_named(drop: Drop) -> None:
    async with drop.watched():
        assert drop.path.is_dir()
    drop.path.rmdir()
    drop.path.write_text("a file stands in its place")

    with pytest.raises(OSError, match=f"cannot watch the directory '{drop.path}'"):
        async with drop.watched():
            pass


async def test_a_directory_that_is_deleted_is_a_fault_until_it_is_back(drop: Drop) -> None:
    drop.write("a.txt", "a")
    async with drop.watched() as sensor:
        await drop.sees(("file.added", "a.txt"))
        await idle(sensor)
        shutil.rmtree(drop.path)
        await until(lambda: bool(drop.faults))
        await asyncio.sleep(0.05)
        drop.write("b.txt", "b")
        await until(lambda: ("file.added", "b.txt") in drop.told)
        await idle(sensor)
        drop.write("c.txt", "c")
        await until(lambda: ("file.added", "c.txt") in drop.told)

    assert [(fault.kind, fault.part) for fault in drop.faults] == [("not_found", "drop")]
    assert str(drop.path) in drop.faults[0].message


async def test_a_directory_that_is_replaced_at_once_is_still_watched(drop: Drop) -> None:
    async with drop.watched() as sensor:
        await idle(sensor)
        drop.path.rename(drop.path.with_name("moved"))
        drop.write("a.txt")
        await until(lambda: ("file.added", "a.txt") in drop.told)
        await idle(sensor)
        drop.write("b.txt")
        await until(lambda: ("file.added", "b.txt") in drop.told)


async def test_what_no_event_told_of_is_found_by_looking_everywhere(drop: Drop) -> None:
    class Blind(Watch):
        def events(self) -> Any:
            while not self.is_set():
                time.sleep(0.01)
            return ()

    class Looking(Quick):
        rescan, watch = 0.05, Blind

    async with drop.watched(Looking) as sensor:
        await idle(sensor)
        drop.write("a.txt")
        await drop.sees(("file.added", "a.txt"))


async def test_without_inotify_it_looks_by_itself(drop: Drop) -> None:
    modes = []

    class Refused(Watch):
        def events(self) -> Any:
            modes.append(self.must_poll)
            if not self.must_poll:
                raise OSError("inotify watch limit reached")
            return super().events()

    class Polling(Quick):
        watch = Refused

    async with drop.watched(Polling) as sensor:
        await until(lambda: len(modes) > 1)
        await idle(sensor)
        drop.write("a.txt")
        await drop.sees(("file.added", "a.txt"))

    assert modes == [False, True]
    assert [fault.message for fault in drop.faults] == ["inotify watch limit reached"]


# -- the cursor


async def test_a_cursor_or_rows_of_another_directory_say_nothing(drop: Drop) -> None:
    drop.write("a.txt")
    drop.cursor = {"root": "/elsewhere", "files": {"gone.txt": [1, 1, "", 1]}, "floor": 0}
    drop.rows.keep("/", "/elsewhere")
    drop.rows.keep("gone.txt", [1, 1, "", 1])
    async with drop.watched() as sensor:
        await drop.sees(("file.added", "a.txt"))
        await idle(sensor)

    assert (await drop.rows.list()).keys() == {"/", "a.txt"}


def aged(drop: Drop, *names: str) -> None:
    """Write files whose times of change differ, in this order."""
    for name in names:
        before = drop.write(name).stat().st_ctime_ns
        while (drop.path / name).touch() or (drop.path / name).stat().st_ctime_ns == before:
            pass


async def test_files_are_told_in_the_order_of_change(drop: Drop) -> None:
    aged(drop, "c.txt", "a.txt", "b.txt", "d.txt")
    async with drop.watched():
        await until(lambda: len(drop.found) == 4)

    assert [name for _, name in drop.told] == ["c.txt", "a.txt", "b.txt", "d.txt"]


@pytest.mark.parametrize("keeps_rows", [True, False])
async def test_however_often_it_is_cut_off_each_file_is_told_once(drop: Drop, keeps_rows: bool) -> None:
    names = [f"{i * 37 % 23}.txt" for i in range(23)]
    for name in names:
        drop.write(name)
    for room in (5, 11, 100):
        drop.room = room
        if not keeps_rows:
            drop.rows = PassingRows()
        async with drop.watched():
            await until(lambda: len(drop.found) == min(drop.room, 23))

    assert sorted(drop.told) == sorted(("file.added", name) for name in names)


async def test_what_was_dealt_with_is_in_rows_however_many_there_are(drop: Drop) -> None:
    for i in range(250):
        drop.write(f"{i}.txt")
    async with drop.watched() as sensor:
        await until(lambda: len(drop.found) == 250)
        await idle(sensor)

    assert len(await drop.rows.list()) == 251
    assert len(json.dumps(drop.cursor)) < 400


async def test_a_directory_moved_in_brings_its_files_also_after_a_restart_and_older_than_what_was_told(
    drop: Drop, tmp_path: Path
) -> None:
    for name in ("away", "elsewhere"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.txt").write_text("x")
    aged(drop, "new.txt")
    told = [("file.added", f"{name}.txt") for name in ("new", "elsewhere", "away")]
    async with drop.watched(recursive=True) as sensor:
        await idle(sensor)
        (tmp_path / "elsewhere").rename(drop.path / "here")
        await drop.sees(*told[:2])
        await idle(sensor)
    (tmp_path / "away").rename(drop.path / "below")
    async with drop.watched(recursive=True):
        await drop.sees(*told)


async def test_the_cursor_of_an_earlier_version_becomes_rows(drop: Drop) -> None:
    aged(drop, "fallen.txt", "kept.txt", "late.txt")
    kept, fallen = ((drop.path / name).stat() for name in ("kept.txt", "fallen.txt"))
    files = {"kept.txt": [kept.st_mtime_ns, kept.st_size, "", kept.st_ctime_ns], "gone.txt": [1, 1, "", 1]}
    drop.cursor = {"root": str(drop.path), "files": files, "floor": fallen.st_ctime_ns}
    async with drop.watched() as sensor:
        await drop.sees(("file.added", "late.txt"), ("file.removed", "gone.txt"))
        await idle(sensor)
    async with drop.watched() as sensor:
        await idle(sensor)

    assert len(drop.found) == 2
    assert (await drop.rows.list()).keys() == {"/", "fallen.txt", "kept.txt", "late.txt"}


def known(size: int) -> dict[str, KnownFile]:
    return {f"dir/sub/file-{i:06d}.txt": KnownFile(1, 1, "", 1) for i in range(size)}


def test_deleting_many_files_costs_in_proportion_to_their_number() -> None:
    def work(size: int) -> None:
        files = known(size)
        assert folders_of(files) == {"dir", "dir/sub"}
        sensor = DirectorySensor("in", home=Home("/", "/", "/"), recursive=True)
        sensor._known = files
        assert not sensor._misses_directory(set(files))
        assert sensor._misses_directory({"dir/sub", "x"})
        assert not sensor._misses_directory({"sub", "ir", "file"})

    assert growth(work, 500) <= 2.2


def test_what_changed_is_taken_over_at_its_own_cost_however_many_files_are_known() -> None:
    def work(size: int) -> int:
        files = Files(known(size), None, NEVER)
        found = {f"new{i}": Entry(f"new{i}", i, 1, i) for i in range(20)}
        news = files.news(set(found), found, 0.0, 0.0)
        return effort(lambda: (files.take(news, 1), files.batch(10), files.cursor("/")))

    assert work(4_000) == work(100)


# -- looking


def test_a_folder_reads_nothing_that_has_changed_or_become_a_symlink_meanwhile(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    folder = Folder(root, recursive=False, include=("*",), exclude=())
    for name in ("a", "b"):
        (root / name).write_text("one")
    entries = folder.scan()
    (root / "a").write_text("other")
    (root / "b").rename(tmp_path / "outside")
    (root / "b").symlink_to(tmp_path / "outside")

    assert [folder.read(entries[name], 100) for name in ("a", "b")] == [None, None]


def test_patterns_with_a_slash_match_the_path(tmp_path: Path) -> None:
    for name in ("a/x.log", "b/x.log", "c/x.log"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("")
    folder = Folder(tmp_path, recursive=True, include=("a/*.log", "b/*"), exclude=("b/*",))

    assert sorted(folder.scan()) == ["a/x.log"]


async def test_it_keeps_the_contract_of_a_sensor(tmp_path: Path) -> None:
    home = Home(str(tmp_path), str(tmp_path), str(tmp_path))
    count = iter(range(100))

    def provoke() -> None:
        (tmp_path / "in" / f"{next(count)}.txt").write_text("x")

    await check_sensor(lambda: DirectorySensor("in", home=home, settle=0.01), provoke=provoke)
