"""One life of an agent: it is given what was promised, people answer it, it ends when nothing is left to do.

Who gives the work is a producer as it should be: what was not promised is offered again under the same key, and now and
then something that was promised as well.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from acting import Executor
from memory import Memory
from spar import Agent
from spar.errors import ConflictError
from spar.records.approvals import Approver, DecidedError
from spar.records.journal import Answer
from tests.faults.rows import left_open
from tests.faults.world import Want, World

#: Seconds after which a life that does not come to its end is given up (exit 75).
WITHIN = 20.0
#: What may be used in an hour, and the most of it that a plan reserves: more than is needed.
EFFECTS, MOST_TOKENS = 1000, 100
UNFINISHED = 75
#: The variable that says who answers calls in doubt.
ANSWERS = "FAULTS_ANSWERS"
#: Seconds in which files must have been closed that a thread of a closed part still had.
_LETTING_GO = 1.0

Feed = Callable[[Agent], Awaitable[None]]
Person = Callable[[Agent], Coroutine[Any, Any, None]]


class Workload(Struct, frozen=True):
    """`main` is one life in this world, `wants` what must have come of it in the end; `excused` events kill who takes
    them, and are to be put aside. `points` are patterns of the only crash points that it is there for; none: all."""

    name: str
    main: Callable[[World], Coroutine[Any, Any, None]]
    wants: tuple[Want, ...]
    excused: frozenset[str] = frozenset()
    points: tuple[str, ...] = ()


def agent(
    world: World, *, sense: Any = None, plan: Any, tools: Any = None, keep_days: float = 365, **approval: Any
) -> Agent:
    """A real one: memory on disk, real executor, real time, short waits."""
    world.state.mkdir(exist_ok=True)
    return Agent(
        sense=sense,
        plan=plan,
        act=Executor(tools or world.tools(), settings={"approval": approval} if approval else {}),
        reflect=_reflector(),
        memory=_memory(world, keep_days),
        settings={"budgets": {"hour": {"effects": EFFECTS, "tokens": 100 * MOST_TOKENS}}},
        loop_interval=0.02,
        home=world.home,
    )


def _memory(world: World, keep_days: float) -> Memory:
    if not world.is_on_server:
        return Memory.open(world.url, keep_days=keep_days)
    from memory.postgres.store import PostgresMemory

    return PostgresMemory(world.url, keep_days=keep_days, standby=True, home=world.home)


def _reflector() -> Any:
    from reflection.reflect import Reflect

    return Reflect()


async def live(world: World, made: Agent, feed: Feed, *people: Person) -> None:
    """From the start to the end of all work, or to `WITHIN`."""
    began, files = time.monotonic(), _open_files()
    try:
        async with asyncio.timeout(WITHIN):
            async with made:
                world.marks.write(told="started", after=time.monotonic() - began)
                tasks = [asyncio.create_task(each(made)) for each in (*people, _answer_doubts(world))]
                await feed(made)
                await _rest(made, world, tasks)
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)
    except TimeoutError:
        sys.stdout.write(f"not at rest after {WITHIN:g} s: {_left_open(world)}\n")
        sys.stdout.flush()
        os._exit(UNFINISHED)
    deadline = time.monotonic() + _LETTING_GO
    while (more := _open_files() - files) > 0 and time.monotonic() < deadline:
        await asyncio.sleep(0.005)
    world.marks.write(told="ended", after=time.monotonic() - began, files=max(0, more))


def _left_open(world: World) -> dict[str, int]:
    return left_open(world, answered=os.environ.get(ANSWERS) != "none")


def _open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


async def _rest(made: Agent, world: World, tasks: Sequence[asyncio.Task[None]]) -> None:
    """Return once nothing is left: no run, nothing that waits or is open in the database, no file that was not seen."""
    for line in world.acked().values():
        if run_id := line.get("run"):
            with suppress(LookupError):  # what is forgotten is found out by the oracle
                await made.wait(run_id, None)
    while any(lane.has_work or lane.cycle for lane in made.sessions.by_key.values()) or _left_open(world):
        for task in tasks:
            if task.done():
                task.result()
        await asyncio.sleep(0.02 if world.is_on_server else 0.005)


# -- who gives work


async def submit(world: World, made: Agent, events: Sequence[str], sessions: Sequence[str] = ("main",)) -> None:
    """Offer each as a message; what was promised in an earlier life only now and then."""
    acked = world.acked()
    for number, event in enumerate(events):
        if event in acked and number % 2:
            continue
        if event not in acked:
            world.events.write(event=event, told="offered")
        session = sessions[number % len(sessions)]
        receipt = await made.submit(event, session=session, idempotency_key=f"key-{event}")
        world.events.write(event=event, told="acked", run=receipt.run_id)


def drop(world: World, events: Sequence[str]) -> None:
    """Offer each as a file; it is promised by being there."""
    world.inbox.mkdir(exist_ok=True)
    acked = world.acked()
    for event in events:
        if event not in acked:
            new, there = world.folder / f"{event}.new", world.inbox / f"{event}.txt"
            if not there.exists():
                new.write_text(event)
                new.rename(there)
            world.events.write(event=event, told="acked", file=there.name)


# -- people


def _answer_doubts(world: World) -> Person:
    """Somebody who looks what really happened and says so; with `ANSWERS` set to "none" there is nobody."""

    async def answer(made: Agent) -> None:
        doubts = made.recovery.restart.doubts
        while os.environ.get(ANSWERS) != "none":
            for doubt in await doubts.list():
                params = doubt.call.params
                word: Answer = "done" if world.happened(params["event"], params["step"]) else "again"
                world.answers.write(doubt=doubt.id, event=params["event"], step=params["step"], answer=word)
                with suppress(ConflictError):
                    await doubts.resolve(doubt.id, word, by="oracle", output=params)
            await asyncio.sleep(0.005)

    return answer


def signing(world: World, decide: Callable[[str], tuple[str, float]]) -> Person:
    """Somebody who answers every question three times at once: as `decide(event)` says, after so many seconds."""

    async def answer(made: Agent) -> None:
        desk: Approver = made.setup.modules["act"].part.approvals
        while True:
            for row in await desk.list():
                event = str(row.call.params["event"])
                decision, delay = decide(event)
                if time.time() - row.asked_at.timestamp() < delay:
                    continue
                fact = {"approval": row.id, "event": event, "step": row.call.params["step"], "digest": row.digest}
                world.approvals.write(told="deciding", decision=decision, **fact)
                answers = [desk.decide(row.id, row.digest, decision, by="oracle") for _ in range(3)]  # type: ignore[arg-type]
                outcomes = await asyncio.gather(*answers, return_exceptions=True)
                if wrong := [
                    each for each in outcomes if isinstance(each, BaseException) and not isinstance(each, DecidedError)
                ]:
                    raise wrong[0]
                counted = sum(not isinstance(each, BaseException) for each in outcomes)
                world.approvals.write(told="decided", decision=decision, counted=counted, **fact)
            await asyncio.sleep(0.005)

    return answer
