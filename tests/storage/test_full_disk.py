"""A disk that is full: nothing acknowledged is lost, reading goes on, and it recovers by itself.

A real one where a small file system can be mounted (as root), one that only says so everywhere.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from memory import Memory
from spar.errors import ConfigError
from spar.types import Fault
from tests.storage.child import PATIENCE, child, until
from tests.storage.disk import Disk
from tests.storage.rows import Ack, Truth, examine, found_in, integrity


async def test_a_full_disk_loses_nothing_and_the_store_goes_on_by_itself_when_there_is_room(tmp_path: Path) -> None:
    disk, truth, acks, told = Disk(tmp_path), Truth(), list[Ack](), list[Fault | None]()
    with disk.in_use():
        memory = Memory.open(f"sqlite:///{tmp_path}/memory.db")
        memory.on_fault = told.append
        async with memory:
            await truth.keep(memory, "first", 1000, acks.append)
            disk.capacity = disk.used() + 50_000
            writing = [asyncio.ensure_future(truth.keep(memory, f"n{n}", 10_000, acks.append)) for n in range(20)]
            await until(lambda: told, "a fault")

            assert told[0] is not None
            assert "full" in told[0].message
            held = (await found_in(memory)).records
            assert {id for _, id, _ in acks} <= held.keys(), "what was acknowledged can be read meanwhile"
            assert not all(task.done() for task in writing)

            disk.capacity = None
            await asyncio.wait_for(asyncio.gather(*writing), PATIENCE)
            await until(lambda: told[-1] is None, "the fault taken back")

    assert disk.fired
    assert len(acks) == 21
    assert not await examine(tmp_path, truth, acks)


#: Leaves some megabytes of the disk and fills them until the store says so; then either another's file goes, or rows.
FILL = """
async def main(frees):
    folder = os.path.dirname(path)
    told, acked, hog = [], [], os.path.join(folder, "hog")
    memory = Memory.open(url)
    memory.on_fault = lambda fault: told.append(str(fault.message if fault else "ok"))
    async with memory:
        async def keep(number):
            await memory.keep("row", f"n{number:04}", {"text": text_of(str(number), 50_000)})
            acked.append(number)

        async def kept(number):
            while True:  # what was held in reserve is held again before anything new is taken
                try:
                    return await keep(number)
                except NoRoomError:
                    await asyncio.sleep(0.1)

        await keep(0)
        for _ in range(100):  # until it has taken what it holds in reserve
            if os.path.exists(f"{path}.ballast"):
                break
            await asyncio.sleep(0.1)
        disk = os.statvfs(folder)
        with open(hog, "wb") as file:
            os.posix_fallocate(file.fileno(), 0, disk.f_bavail * disk.f_frsize - (10 << 20))
        number, writing = 1, []
        while number < 2_000:
            writing.append(asyncio.ensure_future(keep(number)))
            number += 1
            is_done = bool((await asyncio.wait(writing[-1:], timeout=1.0))[0])
            if not is_done or writing[-1].exception() or (told and frees == "rows at once"):
                break
        refused = [task for task in writing if task.done() and task.exception()]
        say("refused", all(isinstance(task.exception(), NoRoomError) for task in refused))
        say("told", told[0])
        held = {record.id for record in await memory.records("row")}
        say("readable", {f"n{each:04}" for each in acked} <= held)
        if frees == "hog":
            os.unlink(hog)
        else:
            for each in range(number // 2):
                await asyncio.wait_for(memory.drop("row", f"n{each:04}"), 10)
            acked[:] = [each for each in acked if each >= number // 2]
        done, late = await asyncio.wait(writing, timeout=20)
        say("late", len(late))
        for each in range(number, number + 20):
            await asyncio.wait_for(kept(each), 20)
        for _ in range(100):  # with its own rows gone the disk is as full as it was, but for itself
            if frees != "hog" or told[-1] == "ok":
                break
            await asyncio.sleep(0.1)
        say("recovered", frees != "hog" or told[-1] == "ok")
    if frees != "hog":
        os.unlink(hog)
    async with Memory.open(url) as memory:
        held = {record.id: record.value["text"] for record in await memory.records("row")}
    lost = [each for each in acked if held.get(f"n{each:04}") != text_of(str(each), 50_000)]
    say("lost", len(lost), "of", len(acked))

asyncio.run(main(%r))
"""


def can_mount() -> bool:
    if os.geteuid() or shutil.which("unshare") is None:
        return False
    return not subprocess.run(["unshare", "-m", "true"], capture_output=True, timeout=20, check=False).returncode


@pytest.mark.process
@pytest.mark.skipif(not can_mount(), reason="needs root, to mount a small file system")
@pytest.mark.parametrize(
    "frees",
    ["hog", "rows at once", "rows when nothing goes any more"],
    ids=["another's file goes", "rows are deleted at once", "rows are deleted when nothing goes any more"],
)
def test_on_a_disk_that_is_really_full_it_recovers_once_there_is_room(tmp_path: Path, frees: str) -> None:
    mounted = ["unshare", "-m", "sh", "-c", f'mount -t tmpfs -o size=256m none "{tmp_path}" && exec "$@"', "sh"]

    with child(FILL % frees, tmp_path / "memory.db", before=mounted) as process:
        said = dict(line.split(" ", 1) for line in process.rest())

    assert "full" in said["told"], said
    assert said["readable"] == "True"
    assert said["late"] == "0", "what was accepted while it was full is written afterwards"
    assert said["recovered"] == "True"
    assert said["lost"].startswith("0 of ")


async def test_a_store_that_cannot_be_opened_for_want_of_room_is_left_as_it_was(tmp_path: Path) -> None:
    async with Memory.open(f"sqlite:///{tmp_path}/memory.db") as memory:
        await memory.keep("row", "a", 1)
    disk = Disk(tmp_path)
    disk.capacity = 0
    with disk.in_use():
        with pytest.raises(ConfigError, match=r"cannot be opened: .*full.* has room"):
            async with Memory.open(f"sqlite:///{tmp_path}/memory.db"):
                pass
        async with Memory.open(f"sqlite:///{tmp_path}/memory.db", read_only=True) as memory:
            assert [record.id for record in await memory.records("row")] == ["a"], "it can be read all the same"

    assert integrity(tmp_path / "memory.db") == []
    async with Memory.open(f"sqlite:///{tmp_path}/memory.db") as memory:
        assert [record.id for record in await memory.records("row")] == ["a"]
