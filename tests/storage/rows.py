"""What is written in these tests, by whom it was acknowledged, and what a store that opens again has to hold of it.

`Truth` stands outside the store: it knows what was offered and what was acknowledged, and `compare` says what of that
is lost, there twice, or there and never written.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import apsw

from memory import Memory
from spar.types import Experience

Ack = tuple[str, str, int]  # kind, id, version: this much is safe


def text_of(name: str, size: int) -> str:
    """A text that nothing else has, the same each time."""
    seed = hashlib.sha256(name.encode()).hexdigest()
    return (seed * (size // 64 + 1))[:size]


@dataclass
class Broken:
    """How a store falls short of the truth."""

    lost: int = 0
    doubled: int = 0
    corrupt: int = 0
    stuck: int = 0
    what: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.lost or self.doubled or self.corrupt or self.stuck)


@dataclass
class Found:
    """What a store holds."""

    records: dict[str, tuple[int, Any]]
    experiences: list[Experience]
    cursor: Any


async def found_in(memory: Memory) -> Found:
    """Everything that is in a store."""
    records = {record.id: (record.version, record.value) for record in await memory.records("row")}
    return Found(records, await memory.recall("", 10_000), await memory.load("cursor"))


class Truth:
    """What was offered to a store."""

    def __init__(self) -> None:
        self.offered: dict[str, list[Any]] = {}
        self.told: set[str] = set()
        self.cursor = 0
        self._riding: list[str] = []  # experiences that were handed over and not flushed yet

    async def keep(self, memory: Memory, id: str, size: int, safe: Callable[[Ack], None]) -> None:
        """Write a record; `safe` hears of it, and of what rode along, once the store has acknowledged it."""
        riding = tuple(self._riding)
        values = self.offered.setdefault(id, [])
        version = len(values) + 1
        values.append({"version": version, "text": text_of(f"{id} {version}", size)})
        assert await memory.keep("row", id, values[-1]) == version, "acknowledged as something else"
        self._arrived(riding, safe)
        safe(("record", id, version))

    async def ride(self, memory: Memory, id: str) -> None:
        """Hand over an experience, which whatever is flushed next takes along, and let it be written before that."""
        self.told.add(id)
        await memory.store(Experience(text_of(id, 100), id=id))
        self._riding.append(id)
        while memory.snapshot()["queued"] and not memory.snapshot()["is_failing"]:
            await asyncio.sleep(0.002)

    async def settle(self, memory: Memory, safe: Callable[[Ack], None]) -> None:
        """Flush what rides along, with nothing else to write."""
        riding = tuple(self._riding)
        await memory.flush()
        self._arrived(riding, safe)

    def _arrived(self, riding: Iterable[str], safe: Callable[[Ack], None]) -> None:
        for id in riding:
            if id in self._riding:
                self._riding.remove(id)
                safe(("experience", id, 0))

    async def store(self, memory: Memory, id: str, safe: Callable[[Ack], None]) -> None:
        """Write an experience and a cursor, and flush them."""
        self.told.add(id)
        self.cursor = cursor = self.cursor + 1
        await memory.store(Experience(text_of(id, 100), id=id))
        await memory.save("cursor", cursor)
        await memory.flush()
        safe(("experience", id, cursor))

    async def write(self, memory: Memory, random: Random, safe: Callable[[Ack], None], *, rows: int, size: int) -> None:
        """Some groups of rows, new ones and changed ones, some at once."""
        while rows > 0:
            group = random.choice([1, 1, 2, 8, 20])
            ids = [
                f"r{random.randrange(40)}" if random.random() < 0.3 else f"n{len(self.offered) + n}"
                for n in range(group)
            ]
            await asyncio.gather(*(self.keep(memory, id, random.randrange(size), safe) for id in ids))
            if random.random() < 0.3:
                await self.ride(memory, f"e{len(self.told)}")
                if random.random() < 0.5:
                    await self.settle(memory, safe)
            if random.random() < 0.3:
                await self.store(memory, f"e{len(self.told)}", safe)
            rows -= group

    def compare(self, found: Found, acks: Iterable[Ack]) -> Broken:
        """What of the acknowledged is not there, and what is there that should not be."""
        broken, cursor = Broken(), 0
        experiences = [experience.id for experience in found.experiences]
        for kind, id, version in acks:
            if kind == "record" and found.records.get(id, (0, None))[0] < version:
                broken.lost += 1
                broken.what.append(f"record {id} version {version}")
            elif kind == "experience":
                cursor = max(cursor, version)
                if id not in experiences:
                    broken.lost += 1
                    broken.what.append(f"experience {id}")
        if (found.cursor or 0) < cursor:
            broken.lost += 1
            broken.what.append(f"cursor {cursor}, found {found.cursor}")
        for id, (version, value) in found.records.items():
            values = self.offered.get(id, [])
            if version > len(values):
                broken.doubled += 1
                broken.what.append(f"record {id} was written {version} times instead of {len(values)}")
            elif value != values[version - 1]:
                broken.corrupt += 1
                broken.what.append(f"record {id} version {version} holds something else")
        for experience in found.experiences:
            if experience.id not in self.told or experience.situation != text_of(experience.id, 100):
                broken.corrupt += 1
                broken.what.append(f"experience {experience.id} holds something else")
        broken.doubled += len(experiences) - len(set(experiences))
        return broken


def integrity(path: Path) -> list[str]:
    """What SQLite itself finds wrong with a file; empty when nothing."""
    connection = apsw.Connection(str(path))
    try:
        rows = [str(row[0]) for row in connection.execute("PRAGMA integrity_check")]
    finally:
        connection.close()
    return [row for row in rows if row != "ok"]


async def examine(folder: Path, truth: Truth, acks: Iterable[Ack], **options: Any) -> Broken:
    """Open the store in a folder, compare it with the truth, and look at the file once it is closed."""
    path = folder / "memory.db"
    try:
        async with Memory.open(f"sqlite:///{path}", **options) as memory:
            found = await found_in(memory)
        wrong = integrity(path)
    except Exception as error:  # whatever it is: it does not open
        return Broken(corrupt=1, what=[f"{type(error).__name__}: {error}"])
    broken = truth.compare(found, acks)
    broken.corrupt += len(wrong)
    broken.what += wrong
    return broken
