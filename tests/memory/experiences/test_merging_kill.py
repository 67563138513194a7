"""A process that dies in the middle of what a cycle learns has learnt all of it or nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import memory as package
from memory import Memory
from memory.care.integrity import verify

pytestmark = pytest.mark.process

CODE = """
import asyncio, os, sys
from datetime import UTC, datetime
from memory import Memory
from spar.failpoints import arm
from spar.facts import CycleOpened, CycleWritten
from spar.records.journal import Closing
from spar.types import Credit, CycleRecord, Experience, Feedback

AT = datetime(2026, 6, 1, tzinfo=UTC)

def made(id, run):
    return Experience("nginx is down", id=id, key="alert", success=True, run_id=run, at=AT)

async def main(path):
    async with Memory.open(f"sqlite:///{path}", ballast=0) as memory:
        await memory.store(made("e0", "run0"))
        await memory.flush()
        closing = Closing(
            "acted", CycleRecord("c", "main", "main", AT, 0.1, "acted"), (made("e1", "run1"),),
            credits=(Credit("e0", has_helped=True),), feedback=(Feedback("run0", success=False, by="verify"),),
        )
        memory.journal.append(CycleOpened(session="main", cycle="c"), "main")
        memory.journal.append(CycleWritten(session="main", cycle="c", closing=closing), "main")
        await memory.journal.safe()

for number, label in enumerate(LABELS):
    if (pid := os.fork()) == 0:
        arm({"SPAR_CRASH": label})
        asyncio.run(main(f"{sys.argv[1]}/{number}.db"))
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
LABELS = ["memory.index:2", "memory.credit:1", "memory.feedback:1", "journal.txn_open:1", ""]


def lives(folder: Path) -> list[bytes]:
    """Let a process die at each label, and one live; return their exit codes."""
    env = {**os.environ, "PYTHONPATH": str(Path(package.__file__).parents[1])}
    code = [sys.executable, "-c", CODE.replace("LABELS", repr(LABELS)), str(folder)]
    return subprocess.run(code, env=env, timeout=60, check=True, capture_output=True).stdout.split()


async def test_all_that_a_cycle_learnt_or_nothing(tmp_path: Path) -> None:
    assert [code == b"0" for code in lives(tmp_path)] == [not label for label in LABELS]

    for number, label in enumerate(LABELS):
        path = tmp_path / f"{number}.db"
        async with Memory.open(f"sqlite:///{path}", ballast=0) as memory:
            found = {each.id: each for each in await memory.recall("", 10)}
        state = {id: (each.success, each.helped, each.count) for id, each in found.items()}
        nothing = {"e0": (True, 0, 1)}
        everything = {"e1": (True, 1, 1), "e0": (False, 0, 1)}
        assert state == (nothing if label else everything), label
        assert verify(str(path)).is_whole, label
