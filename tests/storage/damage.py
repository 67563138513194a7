"""A file that was damaged while nobody had it open: noticed, or without effect on what it says.

A store is written and closed; then a bit is flipped, a part is overwritten, the end is cut off. What opens again must
either say the same as before (the damage hit bytes that nobody reads) or somebody must be told: the opening says so,
the damaged file is set aside, a fault is told, a read is refused, or the chain of facts does not fit.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import apsw

from memory import Memory
from memory.engine import hash_chain
from memory.sqlite import database
from spar.errors import SparError
from spar.records.journal import Item
from spar.types import CycleRecord, Experience, Fault, Perception
from tests.journal.left import accept
from tests.storage.disk import empty
from tests.storage.power import scratch
from tests.storage.rows import Broken, text_of
from tests.storage.tally import Tally

#: Files that belong to a store that is well.
KNOWN = ("", "-wal", "-shm", "-journal", ".lock", ".ballast", ".hand", ".mark", ".snapshot")
AGENT = "main"


async def fill(folder: Path, *, is_open: bool = False) -> None:
    """Write a store of some hundred rows of all sorts; with `is_open` as a killed process leaves it."""
    live = empty(folder / "live")
    async with Memory.open(f"sqlite:///{live}/memory.db") as memory:
        began = datetime.now(UTC) - timedelta(hours=1)
        for number in range(40):
            await memory.keep("row", f"r{number}", {"text": text_of(f"r{number}", 300)})
            await accept(memory.journal, Item(f"i{number}", Perception(text_of(f"i{number}", 200))), agent=AGENT)
            await memory.store(Experience(text_of(f"e{number}", 200), id=f"e{number}"))
            at = began + timedelta(seconds=number)
            await memory.record(CycleRecord(f"c{number}", AGENT, "main", at, 0.1, "acted"))
            await memory.save(f"s{number}", {"cursor": text_of(f"s{number}", 100)})
        await memory.flush()
        if is_open:
            copied(live, folder / "whole")
    if not is_open:
        copied(live, folder / "whole")


def copied(source: Path, target: Path) -> Path:
    """A copy of a folder, without what only its process has a use for."""
    empty(target)
    for path in source.iterdir():
        if not path.name.endswith(("-shm", ".lock", ".ballast")):
            shutil.copy(path, target / path.name)
    return target


async def content(memory: Memory) -> str:
    """Everything that a store says, as one text."""
    rows: list[Any] = [[record.id, record.version, record.value] for record in await memory.records("row")]
    rows += sorted([repr(experience) for experience in await memory.recall("", 10_000)])
    rows += [repr(await memory.cycle(f"c{number}")) for number in range(40)]
    rows += [await memory.load(f"s{number}") for number in range(40)]
    rows += sorted([repr(item) for item in await memory.journal.views.items(AGENT)])
    return json.dumps(rows)


def strangers(folder: Path) -> list[str]:
    """Files that do not belong to a store that is well."""
    return [path.name for path in folder.iterdir() if path.name not in {f"memory.db{end}" for end in KNOWN}]


@dataclass
class Seen:
    """What opening a store came to: what it said, and by what one notices that something is wrong."""

    content: str | None
    noticed: str


async def look(folder: Path) -> Seen:
    """Open a store, read all of it, and look for everything that tells of damage."""
    path, told, said = folder / "memory.db", list[Fault](), None
    memory = Memory.open(f"sqlite:///{path}")
    memory.on_fault = lambda fault: told.append(fault) if fault is not None else None
    try:
        async with memory:
            said = await content(memory)
            unreadable = memory.snapshot()["unreadable"]
            await asyncio.sleep(0)
        if told:
            return Seen(said, f"told: {told[0].message}")
        if unreadable:
            return Seen(said, f"{unreadable} unreadable rows counted")
    except (SparError, LookupError) as error:
        return Seen(said, f"refused: {error}")
    if aside := strangers(folder):
        return Seen(said, f"set aside: {', '.join(aside)}")
    connection = database.open_reader(str(path))
    try:
        broken = hash_chain.check(connection)
    except apsw.Error as error:
        return Seen(said, f"the chain cannot be read: {error}")
    finally:
        connection.close()
    return Seen(said, str(broken or ""))


def flip(content: bytearray, random: Random) -> str:
    at, bit = random.randrange(len(content)), random.randrange(8)
    content[at] ^= 1 << bit
    return f"bit {bit} of byte {at} flipped"


def scribble(content: bytearray, random: Random) -> str:
    at, length = random.randrange(len(content)), random.choice([1, 16, 512, 4096])
    content[at : at + length] = random.randbytes(length)[: len(content) - at]
    return f"{length} bytes at {at} overwritten"


def scribble_header(content: bytearray, random: Random) -> str:
    at = random.randrange(100)
    content[at] = (content[at] + random.randrange(1, 256)) % 256
    return f"byte {at} of the header changed to {content[at]}"


def wipe(content: bytearray, random: Random) -> str:
    at = random.randrange(len(content) // 4096) * 4096
    content[at : at + 4096] = bytes(4096)
    return f"page at {at} wiped"


def cut(content: bytearray, random: Random) -> str:
    size = random.choice([0, random.randrange(100), random.randrange(len(content)), len(content) - 4096])
    del content[size:]
    return f"cut off at {size}"


DAMAGE = {"flip": flip, "scribble": scribble, "header": scribble_header, "wiped page": wipe, "cut off": cut}


async def damage(name: str, number: int, *, seed: int = 0, file: str = "memory.db") -> Tally:
    """One class of damage, `number` times, each to a fresh copy."""
    tally = Tally(f"{name} of {file}")
    with scratch() as folder:
        await fill(folder, is_open=file != "memory.db")
        whole = folder / "whole"
        healthy = await look(copied(whole, folder / "seen"))
        assert healthy.content is not None, healthy
        assert not healthy.noticed, healthy
        for each in range(seed, seed + number):
            random = Random(f"{name} {each}")
            target = copied(whole, folder / "seen") / file
            changed = bytearray(target.read_bytes())
            what = DAMAGE[name](changed, random)
            target.write_bytes(changed)
            try:
                seen = await look(folder / "seen")
            except Exception as error:  # of no kind that says that the file is damaged
                broken = Broken(corrupt=1, what=[f"{type(error).__name__}: {error}"])
            else:
                is_silent = not seen.noticed and seen.content != healthy.content
                broken = Broken(corrupt=is_silent, what=["says something else, and nothing tells"])
            tally.add(broken, f"seed {each}, {what}")
    return tally


def long(seed: int = 0) -> Iterator[Tally]:
    """The long form: 200 flips, 100 of each other damage, of the file and of a log that a killed process left."""
    for name in DAMAGE:
        yield asyncio.run(damage(name, 200 if name == "flip" else 100, seed=seed))
    for name in ("flip", "cut off"):
        yield asyncio.run(damage(name, 100, seed=seed, file="memory.db-wal"))
