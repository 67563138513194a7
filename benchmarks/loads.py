"""What grows with what it is given, and what holds the event loop up: loads that once cost too much.

Growth is the processor time of one item when there are many, over its time when there are few: 1x is in proportion.
The hold-up is how late the event loop comes round to a beat of the kernel's while the load is carried out, beyond
what it is late by when nothing happens; in brackets without its thread's wait for a processor.
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
import os
import random
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from acting import Executor
from acting.process.launcher import run as run_program
from acting.process.program import Program
from benchmarks.beat import Beat, beating
from benchmarks.harness import Effort, as_served
from benchmarks.table import Line, amount, number
from memory import Memory
from perception import Sense
from perception.sensors.directory import DirectorySensor
from spar import Action, Agent, Call, Perception, tool
from spar.protocols import Home, SensorSpec

#: Milliseconds by which a load may hold the loop up beyond an idle one's.
HOLD_UP = 50.0
#: How much dearer an item may become when there are four times as many.
GROWTH = 1.3


class Section:
    """The part of a load that is measured: processor seconds, and by how much the loop was late at most."""

    def __init__(self) -> None:
        self.cpu, self.late = 0.0, Beat(0.0, 0.0)

    @asynccontextmanager
    async def measured(self) -> AsyncIterator[None]:
        await asyncio.sleep(0.05)
        with beating() as beats:
            began = time.process_time()
            yield
            self.cpu = time.process_time() - began
            await asyncio.sleep(0.02)
        self.late = Beat(max(beat.late for beat in beats), max(beat.own for beat in beats))


#: A load of so many items; what is made ready before is not measured.
Load = Callable[[int, Section], Awaitable[None]]


@tool(effect="read", brings_untrusted=True, safe_with_untrusted=True)
async def fetch(n: int) -> int:
    return n


@tool(effect="read", safe_with_untrusted=True)
async def use(n: int) -> int:
    return n


@tool(effect="once", approval="ask")
async def risky() -> int:
    return 1


@tool(effect="read")
async def large() -> str:
    return "x" * 1_000_000


async def measure(effort: Effort) -> list[Line]:
    with as_served():
        return await _measured(effort)


async def _measured(effort: Effort) -> list[Line]:
    lines: list[Line] = []
    scale = 4 if effort.is_quick else 1
    for title, load, few in GROWING:
        few, many = few // scale, few * 4 // scale
        await carried_out(load, few)
        small = min([(await carried_out(load, few)).cpu / few for _ in range(2)])
        big = min([(await carried_out(load, many)).cpu / many for _ in range(2)])
        each = f"{number(small * 1e6)}, then {number(big * 1e6)} µs each"
        name = f"{title}: {many:,} over {few:,}"
        lines.append(
            amount(
                None, name, big / small, "x", owed=GROWTH, against="in proportion", other=each, is_limit=True, by="cpu"
            )
        )
    idle = (await carried_out(nothing, 0)).late
    for title, load, items in [*HOLDING, *((title, load, few * 4) for title, load, few in GROWING)]:
        await carried_out(load, 1)  # what only the first start imports is no part of the load
        late = (await carried_out(load, items // scale)).late
        beyond = max(late.own - idle.own, 0.0) * 1e3
        name, found = (
            f"loop held up: {title} ({items // scale:,})",
            f"{number(late.late * 1e3)} ({number(late.own * 1e3)}) ms",
        )
        lines.append(amount(None, name, beyond, "ms", owed=HOLD_UP, against="late at most", other=found, is_limit=True))
    return lines


async def carried_out(load: Load, items: int) -> Section:
    section = Section()
    gc.collect()
    gc.freeze()  # what others have left is not this load's to look through
    await load(items, section)
    gc.unfreeze()
    return section


async def nothing(_: int, section: Section) -> None:
    async with section.measured():
        await asyncio.sleep(1.0)


# -- what grows


async def sessions(count: int, section: Section) -> None:
    """One message to each of so many sessions."""

    async def plan(perceptions: list[Perception]) -> Action:
        return Action(output="a")

    agent = Agent(plan=plan, loop_interval=0.01, settings={"runs": {"limit": 16}})
    async with agent, section.measured():
        receipts = [await agent.submit("hello", session=f"s{number}") for number in range(count)]
        for receipt in receipts:
            await agent.wait(receipt.run_id, 300)


async def tainted(count: int, section: Section) -> None:
    """Half of the calls bring in text from outside, each of the others reads what one of them wrote."""
    calls = []
    for n in range(count // 2):
        calls.append(Call("fetch", {"n": n}, output_path=f"†state.a{n}"))
        calls.append(Call("use", {"n": f"†state.a{n}"}, output_path=f"†state.b{n}"))
    await _executed(Executor([fetch, use], settings={"approval": {}}), calls, section)


async def parked(count: int, section: Section) -> None:
    """One call waits for a person, all others for that one."""
    calls = [Call("risky", output_path="†state.a")]
    calls += [Call("use", {"n": "†state.a"}, output_path=f"†state.b{n}") for n in range(count)]
    await _executed(Executor([risky, use], settings={"approval": {"hold": 0.0}}), calls, section)


async def _executed(executor: Executor, calls: list[Call], section: Section) -> None:
    async with executor, section.measured():
        await executor.run(calls)


async def deleted(count: int, section: Section) -> None:
    """So many files of a watched folder are deleted at once; what is measured is until all of them are told."""
    async with _watched(count) as (inbox, seen), section.measured():
        await asyncio.to_thread(shutil.rmtree, inbox / "sub")
        await _told(seen, 2 * count)


@asynccontextmanager
async def _watched(count: int) -> AsyncIterator[tuple[Path, list[Perception]]]:
    seen: list[Perception] = []

    async def plan(perceptions: list[Perception]) -> None:
        seen.extend(each for each in perceptions if each.kind.startswith("file."))

    with tempfile.TemporaryDirectory() as folder:
        inbox = Path(folder, "inbox")
        (inbox / "sub").mkdir(parents=True)
        for n in range(count):
            (inbox / "sub" / f"file-{n:06d}.txt").write_text(str(n))
        sensor = DirectorySensor(str(inbox), home=Home(folder, folder, folder), recursive=True, settle=0.0)
        agent = Agent(sense=Sense([SensorSpec("inbox", sensor)]), plan=plan, loop_interval=0.01)
        async with agent:
            await _told(seen, count)
            yield inbox, seen


async def _told(seen: list[Perception], count: int) -> None:
    """Wait until so many perceptions were planned on, or nothing more has come for ten seconds."""
    last, since = -1, time.monotonic()
    while len(seen) < count:
        if len(seen) != last:
            last, since = len(seen), time.monotonic()
        if time.monotonic() - since > 10:
            raise RuntimeError(f"only {len(seen)} of {count} files were told")
        await asyncio.sleep(0.01)


# -- what holds up


async def batch_of_texts(count: int, section: Section) -> None:
    """One poll brings so many texts of thirty words."""
    chosen = random.Random(1)
    words = [f"w{n}" for n in range(5000)]
    await _sensed([Perception(" ".join(chosen.choices(words, k=30)), source="x") for _ in range(count)], section)


async def batch_of_payloads(count: int, section: Section) -> None:
    """One poll brings so many structured payloads of 10 kB."""
    texts = [{f"field {k}": f"value {k} of {n}" for k in range(330)} for n in range(count)]
    await _sensed([Perception(text, source="x") for text in texts], section)


async def _sensed(perceptions: list[Perception], section: Section) -> None:
    class Once:
        every = 3600.0

        async def open(self, context: Any) -> None:
            return None

        async def poll(self) -> list[Perception]:
            return perceptions

        async def close(self) -> None:
            return None

    planned = asyncio.Event()

    async def plan(noticed: list[Perception]) -> None:
        planned.set()

    agent = Agent(sense=Sense([SensorSpec("once", Once())]), plan=plan, loop_interval=0.01)
    async with section.measured(), agent:
        await asyncio.wait_for(planned.wait(), 60)


async def program_of(megabytes: int, section: Section) -> None:
    """A program of so many megabytes is started under an approval that is bound to its content."""
    with tempfile.TemporaryDirectory() as folder:
        program = _large_program(Path(folder, "large"), megabytes)
        async with section.measured():
            await run_program(program, timeout=60)


def _large_program(path: Path, megabytes: int) -> Program:
    path.write_bytes(Path("/bin/true").read_bytes() + os.urandom(1 << 20) * megabytes)
    path.chmod(0o755)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return Program(str(path), (path.name,), str(path.parent), {"PATH": "/usr/bin"}, digest=digest)


async def record_of(results: int, section: Section) -> None:
    """A cycle with so many results of a megabyte each is written to the journal."""
    done = asyncio.Event()
    waiting = [[Perception("go")]]

    async def sense() -> list[Perception]:
        if waiting:
            return waiting.pop()
        done.set()
        return []

    async def plan(noticed: list[Perception]) -> Action:
        return Action(calls=[Call("large") for _ in range(results)])

    with tempfile.TemporaryDirectory() as folder:
        memory = Memory.open(f"sqlite:///{folder}/m.db", durability="off")
        async with section.measured(), Agent(sense=sense, plan=plan, tools=[large], memory=memory, loop_interval=0.01):
            await asyncio.wait_for(done.wait(), 120)


GROWING: tuple[tuple[str, Load, int], ...] = (
    ("message, sessions", sessions, 2000),
    ("call, tainted paths", tainted, 2000),
    ("call, parked dependants", parked, 500),
    ("file, deleted at once", deleted, 2000),
)
HOLDING: tuple[tuple[str, Load, int], ...] = (
    ("perceiving texts in one batch", batch_of_texts, 1000),
    ("perceiving payloads of 10 kB in one batch", batch_of_payloads, 990),
    ("starting an approved program of MB", program_of, 100),
    ("recording results of 1 MB in one cycle", record_of, 64),
)
