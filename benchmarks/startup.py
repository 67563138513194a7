"""How long until the first cycle when the journal is long: a million facts, a hundred open cycles, a thousand items.

    python -m benchmarks.startup FOLDER

starts an agent on the journal in that folder and says in its first act how much of the processor that took and what is
to be done. Measured is the time from the beginning of that process to these words, imports included, on a file that the
system has in its cache; beside it the same with a new one.
"""

from __future__ import annotations

import asyncio
import shutil
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.counted import ACTION, PERCEPTIONS, plan, reflect
from benchmarks.harness import Cost, Effort
from benchmarks.journalled import folder
from benchmarks.table import Line, number
from memory import Memory, events
from memory.sqlite import database, schema
from spar import Action, ActionResult, Agent, Call, Perception, facts
from spar.records.journal import Item, Unfinished

NAME, FILE = "agent", "memory.db"
FACTS, OPEN, WAITING = 1_000_000, 100, 1_000
AT_ONCE, CUT_OFF = 10_000, "what was cut off"
WITHIN = 120.0
#: What a cycle of one call leaves, with bodies of the usual length.
KINDS = ("opened", "acting", "planned", "started", "ended", "closed")
BODY = '{"attempt":1,"effect":"read","allowed":"","output":"' + 100 * "x" + '"}'


async def measure(effort: Effort) -> list[Line]:
    rows, times = (FACTS // 10, 1) if effort.is_quick else (FACTS, 3)
    with folder() as place:
        lived(Path(place, "long"), rows)
        await interrupted(Path(place, "long"))
        long = usual([await first_cycle(Path(place, "long"), CUT_OFF) for _ in range(times)])
        new = usual([await first_cycle(Path(place, "none"), ACTION.goal) for _ in range(times)])
    title = f"process to first cycle: {rows:,} facts, {OPEN} open cycles, {WAITING:,} waiting"
    times_of = [f"{number(cost.wall)} ({number(cost.cpu)}) s" for cost in (long, new)]
    return [Line(None, title, times_of[0], "a new file", times_of[1], long.wall, "s", owed=1, is_limit=True)]


def usual(costs: list[Cost]) -> Cost:
    return Cost(statistics.median(cost.wall for cost in costs), statistics.median(cost.cpu for cost in costs))


def lived(place: Path, rows: int) -> None:
    """Write a journal as a long life leaves it."""
    place.mkdir()
    connection = database.open_writer(str(place / FILE), "off")
    schema.migrate(connection)
    for first in range(0, rows, AT_ONCE):
        connection.execute("BEGIN")
        facts = [
            (1.8e9 + place, f"cyc_{place // len(KINDS):026d}", "", KINDS[place % len(KINDS)], BODY)
            for place in range(first, first + AT_ONCE)
        ]
        events.append(connection, facts)
        connection.execute("COMMIT")
    connection.close()


async def interrupted(place: Path) -> None:
    """Leave cycles open in it, and items waiting."""
    async with memory_in(place) as memory:
        journal = memory.journal
        for which in range(OPEN):
            cycle = Unfinished(f"cyc_open_{which}", "main", tuple(PERCEPTIONS))
            journal.append(facts.CycleOpened.of(cycle), NAME)

            journal.append(
                facts.Planned(
                    session="main", cycle=cycle.cycle_id, action=Action((Call("look"),), goal=CUT_OFF), effect="read"
                )
            )
        for which in range(WAITING):
            journal.append(
                facts.WorkChanged(session="main", item=Item(f"item_{which}", Perception(f"message {which}"))), NAME
            )
        await journal.safe()


def _itself(cycle: Unfinished) -> Unfinished:
    return cycle


def memory_in(place: Path) -> Memory:
    return Memory.open(f"sqlite:///{place}/{FILE}", durability="power")


async def first_cycle(origin: Path, goal: str) -> Cost:
    """What it costs to come to it, on a copy: whoever is killed in its first act leaves the file changed.

    Raises: RuntimeError when it has another goal: then nothing was recovered.
    """
    used = copied(origin)
    began = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.startup", str(used), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(WITHIN):
            words = (await process.stdout.readline()).decode().strip()
        took = time.perf_counter() - began
        processor, _, found = words.partition(" ")
        if found != goal:
            raise RuntimeError(f"the process that was to start said {words!r}, expected {goal!r} as what it is to do")
        return Cost(took, float(processor))
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def copied(origin: Path) -> Path:
    used = origin.with_name("used")
    shutil.rmtree(used, ignore_errors=True)
    if origin.exists():
        shutil.copytree(origin, used)
    return used


async def start(place: Path) -> None:
    async def sense() -> Any:
        return PERCEPTIONS

    async def act(action: Action) -> ActionResult:
        print(time.process_time(), action.goal, flush=True)
        await asyncio.Event().wait()
        raise AssertionError

    memory = memory_in(place)
    async with memory, Agent(name=NAME, sense=sense, plan=plan, act=act, reflect=reflect, memory=memory):
        await asyncio.sleep(WITHIN)


if __name__ == "__main__":
    asyncio.run(start(Path(sys.argv[1])))
