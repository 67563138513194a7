"""Files that grow, turn and break: each line once, in order, whatever becomes of its file."""

from __future__ import annotations

import os
import random
import shutil
import threading
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from perception.sensors.tail.sensor import TailSensor
from spar.errors import ConfigError
from spar.parts.registry import Registry
from spar.protocols import Home, PassingRows, SensorContext
from spar.testing import VirtualClock, check_sensor
from spar.types import Perception


class Followed:
    """A sensor over a folder, what it told, and its rows, which outlive it."""

    def __init__(self, folder: Path, clock: VirtualClock) -> None:
        self.folder, self.clock = folder, clock
        self.home = Home(str(folder), str(folder), str(folder))
        self.rows, self.told = PassingRows(), list[Perception]()
        self.reported: list[dict[str, Any]] = []
        self.room = 1_000_000
        self.sensor: TailSensor | None = None

    async def open(self, *paths: str, **options: Any) -> None:
        self.sensor = TailSensor(paths or ("app.log",), home=self.home, **options)
        await self.sensor.open(
            SensorContext(
                "logs", self.clock, self._push, rows=self.rows,
                report=lambda name, **fields: self.reported.append(fields),
            )
        )  # fmt: skip

    async def close(self) -> None:
        if self.sensor is not None:
            await self.sensor.close()

    def _push(self, perception: Perception) -> bool:
        if len(self.told) >= self.room:
            return False
        self.told.append(perception)
        return True

    def write(self, text: str | bytes, name: str = "app.log") -> None:
        with (self.folder / name).open("ab") as file:
            file.write(text.encode() if isinstance(text, str) else text)

    @property
    def lines(self) -> list[str]:
        return [each.text for each in self.told]

    async def until(self, condition: Callable[[], Any], what: str = "") -> None:
        for _ in range(2000):
            if condition():
                return
            await self.clock.sleep(0.1)
        raise AssertionError(f"not seen: {what}; found {self.lines[-5:]}")

    async def rest(self, seconds: float = 3.0) -> None:
        await self.clock.sleep(seconds)


@pytest.fixture
async def followed(tmp_path: Path, clock: VirtualClock) -> AsyncIterator[Followed]:
    found = Followed(tmp_path, clock)
    yield found
    await found.close()


async def test_it_keeps_to_the_contract(tmp_path: Path) -> None:
    home = Home(str(tmp_path), str(tmp_path), str(tmp_path))

    def provoke() -> None:
        with (tmp_path / "app.log").open("a") as file:
            file.write("a line\n")

    await check_sensor(lambda: TailSensor(["app.log"], home=home, look_every=0.02), provoke=provoke, limit=20.0)


@pytest.mark.parametrize("start", ["end", "beginning"])
async def test_it_begins_where_it_is_told_and_reads_later_files_whole(followed: Followed, start: Any) -> None:
    followed.write("old\nhalf")
    await followed.open("*.log", start=start)
    await followed.rest()
    followed.write(" a line\n")
    followed.write("new\n", "other.log")

    await followed.until(lambda: "new" in followed.lines and "half a line" in followed.lines)

    assert sorted(followed.lines) == sorted((["old"] if start == "beginning" else []) + ["half a line", "new"])


async def test_a_restart_goes_on_behind_the_last_line(followed: Followed) -> None:
    await followed.open()
    followed.write("one\ntwo\nthr")
    await followed.until(lambda: len(followed.told) == 2)
    await followed.close()
    followed.write("ee\nfour\n")

    await followed.open()

    await followed.until(lambda: len(followed.told) == 4)
    assert followed.lines == ["one", "two", "three", "four"]
    assert [each.attributes["offset"] for each in followed.told] == [0, 4, 8, 14]


@pytest.mark.parametrize("is_running", [True, False])
async def test_a_renamed_file_is_read_to_its_end_and_its_heir_from_its_beginning(
    followed: Followed, is_running: bool
) -> None:
    await followed.open()
    followed.write("".join(f"{number}\n" for number in range(50)))
    await followed.until(lambda: len(followed.told) == 50)
    if not is_running:
        await followed.close()
    followed.write("50\n")
    (followed.folder / "app.log").rename(followed.folder / "app.log.1")
    followed.write("51\n", "app.log.1")  # its writer has not noticed yet
    followed.write("52\n")
    if not is_running:
        await followed.open()

    await followed.until(lambda: len(followed.told) >= 53)
    await followed.rest(20)
    followed.write("53\n")
    await followed.until(lambda: len(followed.told) >= 54)

    assert sorted(map(int, followed.lines)) == list(range(54))
    assert len(await followed.rows.list()) == 2  # where it begins, and one file: the renamed one is done with


@pytest.mark.parametrize("is_running", [True, False])
async def test_files_that_came_and_went_between_two_looks_are_read(followed: Followed, is_running: bool) -> None:
    followed.write("old\n", "app.log.9")
    followed.write("0\n")
    os.utime(followed.folder / "app.log.9", (1, 1))
    await followed.open(start="beginning")
    await followed.until(lambda: len(followed.told) == 1)
    if not is_running:
        await followed.close()
    for number in range(1, 4):
        (followed.folder / "app.log").rename(followed.folder / f"app.log.{number}")
        followed.write(f"{number}\n")
    followed.write("packed\n", "app.log.4.gz")
    if not is_running:
        await followed.open()

    await followed.until(lambda: len(followed.told) == 4)
    await followed.rest(20)

    assert sorted(followed.lines) == ["0", "1", "2", "3"]


@pytest.mark.parametrize("pattern", ["app.log", "app.log*"])
@pytest.mark.parametrize("is_running", [True, False])
async def test_of_a_file_that_was_copied_and_truncated_the_rest_is_read_in_the_copy(
    followed: Followed, is_running: bool, pattern: str
) -> None:
    await followed.open(pattern)
    followed.write("".join(f"{number}\n" for number in range(50)))
    await followed.until(lambda: len(followed.told) == 50)
    followed.room = 50  # nothing more is taken, so that something is left when the file is truncated
    followed.write("50\n51\n")
    await followed.rest()
    if not is_running:
        await followed.close()
    shutil.copyfile(followed.folder / "app.log", followed.folder / "app.log.1")
    await followed.rest()
    os.truncate(followed.folder / "app.log", 0)
    followed.write("52\n")
    followed.room = 1_000_000
    if not is_running:
        await followed.open(pattern)

    await followed.until(lambda: len(followed.told) >= 53)
    await followed.rest(20)

    assert sorted(map(int, followed.lines)) == list(range(53))


async def test_a_renamed_file_that_was_read_is_not_read_again_when_the_next_one_was_copied_and_truncated(
    followed: Followed,
) -> None:
    await followed.open()
    followed.write("a0\n")
    await followed.until(lambda: len(followed.told) == 1)
    (followed.folder / "app.log").rename(followed.folder / "app.log.1")
    followed.write("b0\n")
    await followed.until(lambda: len(followed.told) == 2)
    followed.write("a1\n", "app.log.1")  # by a process that has not opened the new file yet
    await followed.until(lambda: len(followed.told) == 3)
    await followed.rest(20)
    await followed.close()
    (followed.folder / "app.log.1").rename(followed.folder / "app.log.2")
    shutil.copyfile(followed.folder / "app.log", followed.folder / "app.log.1")
    os.truncate(followed.folder / "app.log", 0)
    followed.write("b1\n")

    await followed.open()
    await followed.until(lambda: "b1" in followed.lines)
    await followed.rest(20)

    assert followed.lines == ["a0", "b0", "a1", "b1"]


@pytest.mark.parametrize("seed", range(30))
async def test_each_line_is_told_once_when_one_process_sees_files_renamed_and_the_next_one_copied(
    followed: Followed, seed: int
) -> None:
    """The third process only reads on; what is written before a file's first look is in a file or its copy."""
    drawn, log, written, turns = random.Random(seed), followed.folder / "app.log", 0, 0

    async def write() -> None:
        nonlocal written
        begin, written = written, written + drawn.randrange(1, 30)
        followed.write("".join(f"{number}\n" for number in range(begin, written)))

    async def until_told() -> None:
        await followed.until(lambda: len(set(followed.lines)) == written, "every line")

    acts: list[Callable[[], Any]] = [write, until_told, partial(followed.rest, 20), partial(followed.rest, 0)]
    for is_copied in (False, True):
        await followed.open()
        await write()
        await until_told()
        for _ in range(drawn.randrange(1, 4)):
            turns += 1
            log.touch()
            if is_copied:
                shutil.copyfile(log, f"{log}.{turns}")
                os.truncate(log, 0)
            else:
                log.rename(f"{log}.{turns}")
            for act in drawn.sample(acts, 2):
                await act()
        await followed.close()
        if drawn.random() < 0.7:
            await write()
    await followed.open()
    await write()
    await until_told()
    await followed.rest(20)

    assert sorted(map(int, followed.lines)) == list(range(written))


async def test_a_file_that_was_truncated_and_has_grown_beyond_is_read_again(followed: Followed) -> None:
    await followed.open()
    followed.write("aaaa\nbbbb\n")
    await followed.until(lambda: len(followed.told) == 2)

    (followed.folder / "app.log").write_text("cccc\ndddd\neeee\n")

    await followed.until(lambda: len(followed.told) == 5)
    assert followed.lines[2:] == ["cccc", "dddd", "eeee"]


async def test_a_link_that_leads_elsewhere_is_followed(followed: Followed) -> None:
    followed.write("", "1.txt")
    (followed.folder / "app.log").symlink_to("1.txt")
    await followed.open()
    followed.write("one\n", "1.txt")
    await followed.until(lambda: followed.lines == ["one"])

    (followed.folder / "app.log").unlink()
    followed.write("two\n", "2.txt")
    (followed.folder / "app.log").symlink_to("2.txt")
    followed.write("late\n", "1.txt")

    await followed.until(lambda: len(followed.told) == 3)
    assert sorted(followed.lines) == ["late", "one", "two"]


async def test_what_has_no_room_stays_in_the_file(followed: Followed) -> None:
    followed.room = 10
    await followed.open()
    followed.write("".join(f"{number}\n" for number in range(30)))
    await followed.rest()
    assert len(followed.told) == 10

    await followed.close()
    followed.room = 1_000_000
    await followed.open()

    await followed.until(lambda: len(followed.told) == 30)
    assert followed.lines == [str(number) for number in range(30)]


async def test_long_lines_are_cut_and_say_so(followed: Followed) -> None:
    await followed.open(longest=100)
    followed.write("ä" * 200 + "\nshort\n")
    await followed.until(lambda: len(followed.told) == 2)

    assert followed.lines == ["ä" * 50 + " … 300 bytes of this line left out", "short"]
    assert followed.told[0].attributes["left_out"] == 300


async def test_a_line_without_end_takes_no_room(followed: Followed) -> None:
    await followed.open(longest=1000)
    for _ in range(20):
        followed.write(b"x" * 1_000_000)
        await followed.rest(6)
    followed.write("\nafter\n")

    await followed.until(lambda: "after" in followed.lines)
    assert followed.told[0].attributes["left_out"] == 20_000_000 - 1000


async def test_lines_of_one_record_are_joined(followed: Followed) -> None:
    await followed.open(begins=r"^\d{4}-", most_lines=4)
    trace = "2026-01-01 boom\n  File a\n  File b\nError\n"
    followed.write(trace + "2026-01-02 fine\n2026-01-03 long\n" + "  more\n" * 9)
    await followed.until(lambda: len(followed.told) == 3)

    assert followed.lines[0] == trace.rstrip()
    assert followed.lines[1] == "2026-01-02 fine"
    assert followed.lines[2].endswith("… 6 lines of this record left out")
    assert followed.told[2].attributes["lines"] == 10


@pytest.mark.parametrize(
    ("encoding", "raw", "text"),
    [
        ("utf-8", b"\xef\xbb\xbfgr\xc3\xbc\xc3\x9fe\r\n", "grüße"),
        ("utf-8", b"a\xff\xfeb\n", "a\\xff\\xfeb"),
        ("latin-1", b"gr\xfc\xdfe\n", "grüße"),
        ("utf-16-le", b"\xff\xfe" + "Ċa\n".encode("utf-16-le"), "Ċa"),
        ("utf-16-be", "ਊb\n".encode("utf-16-be"), "ਊb"),
        ("utf-8", b"nul \x00 and tab\t\n", "nul \x00 and tab\t"),
    ],
)
async def test_encodings_are_read_and_odd_bytes_seen(followed: Followed, encoding: str, raw: bytes, text: str) -> None:
    await followed.open(encoding=encoding)
    followed.write(raw)
    await followed.until(lambda: followed.told)

    assert followed.lines == [text]


async def test_a_file_that_may_not_be_read_is_told_once_and_read_later(
    followed: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_refused, real = True, os.open

    def opened(path: Any, *given: Any, **more: Any) -> int:
        if is_refused and str(path).endswith("app.log"):
            raise PermissionError(13, "Permission denied", path)  # root may read anything
        return real(path, *given, **more)

    monkeypatch.setattr("perception.sensors.tail.file.os.open", opened)
    await followed.open()
    followed.write("one\n")
    await followed.rest(10)
    assert len(followed.reported) == 1
    assert "Permission denied" in followed.reported[0]["error"].message
    is_refused = False

    await followed.until(lambda: followed.lines == ["one"])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"paths": []}, "paths"),
        ({"paths": ["a"], "encoding": "klingon"}, "encoding: no encoding to read lines in: 'klingon'"),
        ({"paths": ["a"], "encoding": "utf-16"}, "utf-16-le"),
        ({"paths": ["a"], "encoding": "hex"}, "encoding"),
        ({"paths": ["a"], "begins": "(?=x)"}, "begins"),
        ({"paths": ["a"], "start": "middle"}, "'end' or 'beginning'"),
        ({"paths": ["a"], "longest": 3}, "longest"),
        ({}, "paths"),
    ],
)
def test_wrong_options_say_what_is_wrong(tmp_path: Path, options: dict[str, Any], said: str) -> None:
    home = Home(str(tmp_path), str(tmp_path), str(tmp_path))

    with pytest.raises(ConfigError) as refused:
        Registry().build("spar.sensors", ("sensors", 0), "tail", options, home=home)

    assert said in str(refused.value)


async def test_a_file_that_a_thread_reads_is_closed_when_it_has_read_it(followed: Followed) -> None:
    followed.write("first\n")
    await followed.open()
    await followed.until(lambda: followed.sensor is not None and followed.sensor._follower is not None)
    assert followed.sensor._follower is not None
    follower, happened = followed.sensor._follower, list[str]()
    begun, may_go_on, turn, close = threading.Event(), threading.Event(), follower.turn, follower.close

    def slow(now: float) -> Any:
        begun.set()
        may_go_on.wait(20)
        news = turn(now)
        happened.append("read")
        return news

    def closed() -> None:
        happened.append("closed")
        close()

    follower.turn, follower.close = slow, closed  # type: ignore[method-assign]
    await followed.until(begun.is_set)
    await followed.close()
    assert happened == []

    may_go_on.set()
    await followed.until(lambda: len(happened) == 2)
    assert happened == ["read", "closed"]
