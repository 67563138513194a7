"""A real process under strace: in which order it flushes and acknowledges, and what it does when the kernel says no.

`order` reads a trace: everything that was written to the log before an acknowledgement must have been flushed before
it. `inject` makes single system calls fail or kills the process at one of them, and compares what was acknowledged
with what is there afterwards. Calls are counted from the first one of a thread on the store's files.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import memory as package
from tests.storage.rows import Truth, examine, text_of
from tests.storage.tally import Tally

ROOT = Path(package.__file__).parents[1]
CALLS = "pwrite64,write,fdatasync,fsync,ftruncate,unlink"
_CALL = re.compile(
    r"^(?P<task>\d+) +(?P<resumed><\.\.\. )?(?P<name>\w+)(?: resumed>|\((?:\d+<(?P<file>[^>]*)>)?)(?P<rest>.*)"
)
PATIENCE = 90.0


def missing() -> str:
    """Why system calls cannot be traced here; empty when they can."""
    if shutil.which("strace") is None:
        return "strace is not installed"
    tried = subprocess.run(["strace", "-qq", "-o", "/dev/null", "true"], capture_output=True, timeout=20, check=False)
    return f"strace cannot trace: {tried.stderr.decode().strip()}" if tried.returncode else ""


@dataclass
class Run:
    """How one worker fared."""

    code: int
    acks: list[tuple[str, int]] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    stored: dict[str, int] | None = None
    reached: set[str] = field(default_factory=set)
    trace: list[str] = field(default_factory=list)
    err: str = ""

    @property
    def is_closed(self) -> bool:
        """Whether it did all its work and closed the store."""
        return "closed" in self.reached

    @property
    def is_stuck(self) -> bool:
        """Whether it was open, was not killed, and did not come to its end although every fault was over in time."""
        return "open" in self.reached and not self.is_closed and not self.is_killed

    @property
    def is_killed(self) -> bool:
        return self.code in (-signal.SIGKILL, 128 + signal.SIGKILL)

    @property
    def fired(self) -> bool:
        """Whether the injected fault was met."""
        return self.is_killed or any("(INJECTED)" in line for line in self.trace)


def run(folder: Path, inject: Sequence[str] = (), *, traced: bool = True, **options: Any) -> Run:
    """Run a worker in a folder to its end."""
    path, said, trace = folder / "memory.db", folder / "said", folder / "trace"
    given = {"rows": 12, "size": 300, "seed": 0, "durability": "power", "patience": 10.0, "room": 0,
             "together": [1, 1, 1, 3], **options}  # fmt: skip
    command = [sys.executable, "-m", "tests.storage.worker", str(path), str(said), json.dumps(given)]
    if traced:
        watched = [path, f"{path}-wal", f"{path}-journal", said, folder]
        paths = [part for each in watched for part in ("-P", str(each))]
        faults = [part for each in inject for part in ("-e", f"inject={each}")]
        tracer = ["strace", "-f", "-y", "-qq", "-o", str(trace), "-e", f"trace={CALLS}"]
        command = [*tracer, *paths, *faults, *command]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, timeout=PATIENCE, check=False
    )
    result = Run(done.returncode, err=done.stderr.decode(errors="replace"))
    for line in said.read_text().splitlines() if said.exists() else ():
        word, _, rest = line.partition(" ")
        if word == "ack":
            id, version = rest.split()
            result.acks.append((id, int(version)))
        elif word == "stored":
            result.stored = json.loads(rest)
        elif word in ("open", "closed"):
            result.reached.add(word)
        else:
            {"told": result.told, "failed": result.failed}[word].append(rest)
    result.trace = trace.read_text(errors="replace").splitlines() if trace.exists() else []
    return result


def events(trace: Iterable[str]) -> Iterator[tuple[str, str]]:
    """What happened to which file: ("write" | "sync" | "ack" | "truncate", the file's name), in order.

    A write or an acknowledgement counts from where it begins, a flush from where it has ended.
    """
    begun: dict[str, tuple[str, str]] = {}
    for line in trace:
        match = _CALL.match(line)
        if match is None or "(INJECTED)" in line:
            continue
        task, name, rest = match["task"], match["name"], match["rest"]
        file = Path(match["file"] or "").name
        is_sync = name in ("fdatasync", "fsync")
        if match["resumed"]:
            if is_sync and task in begun and rest.rstrip().endswith("= 0"):
                yield begun.pop(task)
        elif rest.endswith("<unfinished ...>"):
            if is_sync:
                begun[task] = ("sync", file)
            else:
                yield _event(name, file)
        elif not is_sync or rest.rstrip().endswith("= 0"):
            yield _event(name, file)


def _event(name: str, file: str) -> tuple[str, str]:
    kinds = {"pwrite64": "write", "fdatasync": "sync", "fsync": "sync", "ftruncate": "truncate", "unlink": "unlink"}
    return (kinds.get(name, "ack" if file == "said" else "write"), file)


def order(trace: Iterable[str]) -> tuple[int, list[str]]:
    """How many acknowledgements there are, and which things came before what they had to wait for."""
    acks, wrong, unsynced = 0, list[str](), dict[str, int]()
    for kind, file in events(trace):
        if kind == "ack":
            acks += 1
            if waiting := unsynced.get("memory.db-wal"):
                wrong.append(f"acknowledgement {acks} with {waiting} writes to the log not flushed")
        elif kind == "sync":
            unsynced[file] = 0
        elif kind == "write":
            unsynced[file] = unsynced.get(file, 0) + 1
            if file == "memory.db" and unsynced.get("memory.db-wal"):
                wrong.append("a page moved into the file before the log was flushed")
        elif file == "memory.db-wal" and unsynced.get("memory.db"):
            wrong.append(f"{kind} of {file} before the file was flushed")
    return acks, wrong


def judge(tally: Tally, label: str, folder: Path, done: Run, *, size: int, must_fire: bool = True) -> None:
    """Compare what a worker was told with what is there now."""
    truth = Truth()
    acks = [("record", id, version) for id, version in done.acks]
    # What was offered beyond the acknowledgements may be there or not, but once at most.
    for number in range(40):
        truth.offered[f"n{number}"] = [{"version": 1, "text": text_of(f"n{number} 1", size)}]
    broken = asyncio.run(examine(folder, truth, acks))
    lied = [id for id, version in done.acks if done.stored is not None and done.stored.get(id, 0) < version]
    if done.is_closed and done.stored is not None:  # it lived: what is there is what was acknowledged, no more
        more = set(done.stored) - {id for id, _ in done.acks}
        broken.doubled += len(more)
        broken.what += [f"{id} is there though refused" for id in sorted(more)]
    broken.lost += len(lied)
    broken.stuck = done.is_stuck
    broken.what += [f"{id} acknowledged and not there" for id in lied]
    if broken and done.err:
        broken.what.insert(0, done.err.splitlines()[-1])
    tally.add(broken, label, fired=done.fired or not must_fire)


#: What the kernel is made to say, by class: `{}` is the number of the call.
FAULTS = {
    "no space for a write": "pwrite64:error=ENOSPC:when={0}..{2}",
    "a write that fails": "pwrite64:error=EIO:when={0}",
    "a flush that fails": "fdatasync,fsync:error=EIO:when={0}..{1}",
    "killed at a write": "pwrite64:signal=KILL:when={0}",
    "killed at a flush": "fdatasync,fsync:signal=KILL:when={0}",
}


def sweep(name: str, whens: Iterable[int]) -> Tally:
    """One class of faults at each of these calls."""
    tally = Tally(name)

    def one(when: int) -> tuple[int, Path, Run]:
        folder = Path(scratch) / str(when)
        folder.mkdir()
        return when, folder, run(folder, [FAULTS[name].format(when, when + 1, when + 2)])

    with TemporaryDirectory(prefix="spar-calls-") as scratch, ThreadPoolExecutor(2) as pool:
        for when, folder, done in pool.map(one, whens):
            judge(tally, f"{name}, call {when}", folder, done, size=300)
    return tally


def short_writes(rooms: Iterable[int]) -> Tally:
    """Files may grow by so many bytes only, in the midst of a page: the kernel writes less than it was asked to."""
    tally = Tally("short write")
    with TemporaryDirectory(prefix="spar-calls-") as scratch:
        for room in rooms:
            folder = Path(scratch) / str(room)
            folder.mkdir()
            done = run(folder, traced=False, room=room)
            judge(tally, f"room for {room} bytes", folder, done, size=300, must_fire=False)
            tally.fired -= not done.told
    return tally


def long() -> Iterator[Tally]:
    """The long form: every class at each of its calls, and short writes of many lengths."""
    for name in FAULTS:
        yield sweep(name, range(1, 12 if "flush" in name else 42))
    yield short_writes(range(1, 40_000, 1_777))
