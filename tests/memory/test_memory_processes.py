"""Two processes and one file."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import memory as package
from memory import Memory
from spar.errors import ConfigError, PermanentError
from spar.types import Experience

ROOT = Path(package.__file__).parents[1]

pytestmark = pytest.mark.process

PRELUDE = """
import asyncio, os, sys
from memory import Memory
from spar.types import Experience

def say(*words):
    print(*words, flush=True)
"""


@contextmanager
def child(code: str, path: Path) -> Iterator[subprocess.Popen[str]]:
    """A real process that runs `main(url)`, until the end of the block at the latest."""
    script = f"{PRELUDE}\n{textwrap.dedent(code)}\nasyncio.run(main('sqlite:///{path}/memory.db'))"
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=30)


def is_empty(folder: Path) -> bool:
    return not any(folder.iterdir())


def line_of(process: subprocess.Popen[str], within: float = 20.0) -> str:
    ready, _, _ = select.select([process.stdout], [], [], within)
    assert ready, "the child said nothing"
    return process.stdout.readline().strip()


HOLD = """
async def main(url):
    async with Memory.open(url) as memory:
        await memory.store(Experience("disk full", id="first"))
        await memory.flush()
        say("open")
        number = 0
        while True:
            number += 1
            await memory.store(Experience(f"more {number}"))
            await asyncio.sleep(0.001)
"""


async def test_a_second_process_is_refused_and_told_who_has_it(tmp_path: Path) -> None:
    with child(HOLD, tmp_path) as process:
        assert line_of(process) == "open"

        with pytest.raises(ConfigError, match=rf"memory\.db' is in use by process {process.pid}; stop it first"):
            async with Memory.open(f"sqlite:///{tmp_path}/memory.db"):
                pass

    async with Memory.open(f"sqlite:///{tmp_path}/memory.db") as memory:  # its death freed the lock
        assert (await memory.recall("disk"))[0].id == "first"


async def test_a_second_opening_in_one_process_and_by_another_name_is_refused_too(tmp_path: Path) -> None:
    (tmp_path / "alias.db").symlink_to(tmp_path / "memory.db")

    async with Memory.open(f"sqlite:///{tmp_path}/memory.db"):
        for name in ("memory.db", "alias.db"):
            with pytest.raises(ConfigError, match=rf"in use by this process \(pid {os.getpid()}\)"):
                async with Memory.open(f"sqlite:///{tmp_path}/{name}"):
                    pass


async def test_reading_goes_on_while_another_process_writes(tmp_path: Path) -> None:
    with child(HOLD, tmp_path) as process:
        assert line_of(process) == "open"

        async with Memory.open(f"sqlite:///{tmp_path}/memory.db", read_only=True) as memory:
            counts = [(await memory.counts())["experiences"]]
            deadline = time.monotonic() + 20.0
            while counts[-1] <= counts[0] + 5 and time.monotonic() < deadline:
                counts.append((await memory.counts())["experiences"])
            assert counts == sorted(counts)
            assert counts[-1] > counts[0] + 5, "what the other commits is seen"
            assert (await memory.recall("disk"))[0].id == "first"

            for refused in (memory.store(Experience("x")), memory.save("k", 1), memory.forget("first")):
                with pytest.raises(PermanentError, match="open read-only"):
                    await refused
            with pytest.raises(PermanentError, match="open read-only"):
                await memory.import_(tmp_path / "none.jsonl")
            await memory.flush()
        assert process.poll() is None


async def test_reading_what_is_not_there_is_refused_and_makes_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no memory at .*memory\.db' yet"):
        async with Memory.open(f"sqlite:///{tmp_path}/memory.db", read_only=True):
            pass
    assert is_empty(tmp_path)


def test_importing_the_package_loads_no_driver(tmp_path: Path) -> None:
    code = "import sys, memory; from memory import Memory; Memory(); assert 'apsw' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": str(ROOT)}, cwd=tmp_path)
    assert is_empty(tmp_path)
