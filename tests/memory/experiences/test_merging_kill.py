"""A process that dies in the middle of what a cycle learns has learnt all of it or nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import memory as package
from memory import Memory
from memory.care.integrity import verify

pytestmark = pytest.mark.process

CODE = """
import asyncio
from datetime import UTC, datetime
from memory import Memory
from spar.facts import CycleOpened, CycleWritten
from spar.records.journal import Closing
from spar.types import Credit, CycleRecord, Experience, Feedback

AT = datetime(2026, 6, 1, tzinfo=UTC)

def made(id, run):
    return Experience("nginx is down", id=id, key="alert", success=True, run_id=run, at=AT)

async def main():
    async with Memory.open("sqlite:///PATH", ballast=0) as memory:
        await memory.store(made("e0", "run0"))
        await memory.flush()
        closing = Closing(
            "acted", CycleRecord("c", "main", "main", AT, 0.1, "acted"), (made("e1", "run1"),),
            credits=(Credit("e0", has_helped=True),), feedback=(Feedback("run0", success=False, by="verify"),),
        )
        memory.journal.append(CycleOpened(session="main", cycle="c"), "main")
        memory.journal.append(CycleWritten(session="main", cycle="c", closing=closing), "main")
        await memory.journal.safe()

asyncio.run(main())
"""


def live(path: Path, label: str) -> int:
    env = {**os.environ, "PYTHONPATH": str(Path(package.__file__).parents[1])} | (
        {"SPAR_CRASH": label} if label else {}
    )
    code = textwrap.dedent(CODE).replace("PATH", str(path))
    return subprocess.run([sys.executable, "-c", code], env=env, timeout=60, check=False).returncode


@pytest.mark.parametrize("label", ["memory.index:2", "memory.credit:1", "memory.feedback:1", "journal.txn_open:1", ""])
async def test_all_that_a_cycle_learnt_or_nothing(tmp_path: Path, label: str) -> None:
    path = tmp_path / "memory.db"
    assert (live(path, label) == 0) == (not label)

    async with Memory.open(f"sqlite:///{path}", ballast=0) as memory:
        found = {each.id: each for each in await memory.recall("", 10)}

    state = {id: (each.success, each.helped, each.count) for id, each in found.items()}
    nothing = {"e0": (True, 0, 1)}
    everything = {"e1": (True, 1, 1), "e0": (False, 0, 1)}
    assert state == (nothing if label else everything)
    assert verify(str(path)).is_whole
