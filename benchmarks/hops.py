"""Count the steps through the house: `python -m benchmarks.hops [--way cycle]` (`make hops`).

A reader who follows what happens opens a file each time a function of another file is called. For each of these ways
this prints how often that is, through how many files of all packages, beside what is owed. `--way NAME` prints the way
itself.

    cycle      one cycle that carries out one call
    journalled the same with a journal on disk
    message    a message from `submit` to its answer, with a journal
    channel    a person's message on a channel from its arrival to its answer, with a journal, over all threads
    streamed   a call from the piece of a model's answer that holds it to its tool
    call       a call of the bare executor that does nothing, from `run` to its result

But for `channel`, only the thread of the event loop is followed. Comprehensions, lambdas and properties count as the
file they stand in.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from acting import Executor
from memory import Memory
from planning.llm.planner import ModelPlanner
from spar import Action, Agent, Call, Perception, tool
from spar.events import MessageDelivered
from spar.ports.channel import ChannelLimits, ChannelSpec
from spar.testing import MemoryChannel

HOME = Path(__file__).parents[1]
PACKAGES = ("spar", "perception", "planning", "acting", "reflection", "memory")


@dataclass
class Way:
    """The functions of all packages that were called on the way."""

    _steps: dict[int, list[tuple[str, str]]] = field(default_factory=lambda: defaultdict(list))
    _files: dict[CodeType, str] = field(default_factory=dict)
    _is_on: bool = False

    def begin(self) -> None:
        """Follow this thread from now on, and forget what was before."""
        self._steps.clear()
        self._is_on = True
        sys.setprofile(self.called)

    def end(self) -> None:
        self._is_on = False
        sys.setprofile(None)

    @property
    def steps(self) -> list[tuple[str, str]]:
        """The called functions as (file, function), in order, one thread after another."""
        return [step for steps in list(self._steps.values()) for step in steps]

    @property
    def files(self) -> list[str]:
        """The files in the order in which they are first met."""
        return list(dict.fromkeys(file for file, _ in self.steps))

    @property
    def changes(self) -> int:
        """How often the way goes on in another file."""
        before = ["", *(file for file, _ in self.steps)]
        return sum(one != other for one, other in itertools.pairwise(before))

    def called(self, frame: FrameType, event: str, _: Any) -> None:
        """Note a call; the profile function of a thread."""
        if event != "call" or not self._is_on:
            return
        code = frame.f_code
        file = self._files.get(code)
        if file is None:
            file = self._files[code] = self._file_of(code)
        if file:
            self._steps[threading.get_ident()].append((file, code.co_qualname))

    def _file_of(self, code: CodeType) -> str:
        try:
            path = Path(code.co_filename).relative_to(HOME)
        except ValueError:
            return ""
        return str(path) if path.parts[0] in PACKAGES else ""


@tool(effect="read")
async def nothing() -> None:
    """Do nothing."""


async def cycle(memory: Memory | None = None) -> Way:
    """One acting cycle, the fifth: from its sense to the next one's."""
    way, turned, over = Way(), 0, asyncio.Event()

    async def sense() -> list[Perception]:
        nonlocal turned
        turned += 1
        if turned == 5:
            way.begin()
        elif turned == 6:
            way.end()
            over.set()
        return [Perception(f"tick {turned}")]

    async def plan(perceptions: Any) -> Action:
        return Action(calls=[Call("nothing")])

    async with Agent(sense=sense, plan=plan, tools=[nothing], loop_interval=0, memory=memory):
        await over.wait()
    return way


async def journalled() -> Way:
    """One acting cycle of an agent that keeps a journal."""
    with tempfile.TemporaryDirectory() as folder:
        return await cycle(Memory(f"sqlite:///{folder}/memory.db"))


async def message() -> Way:
    """A message from `submit` to its answer, the third of its session."""
    way = Way()

    async def plan(perceptions: Any) -> Action:
        return Action(output="well")

    with tempfile.TemporaryDirectory() as folder:
        memory = Memory(f"sqlite:///{folder}/memory.db")
        async with Agent(plan=plan, loop_interval=3600, memory=memory) as agent:
            for _ in range(2):
                await agent.wait((await agent.submit("good morning", session="hops")).run_id, timeout=30)
            way.begin()
            status = await agent.wait((await agent.submit("good morning", session="hops")).run_id, timeout=30)
            way.end()
    if status.output != "well":
        raise RuntimeError(f"the message was answered by {status}")
    return way


async def channel() -> Way:
    """A message of a person on a channel until its answer is delivered, the shortest way of seven messages: the
    writer's thread takes more or fewer rows at once."""
    ways, delivered = [Way() for _ in range(7)], asyncio.Queue[MessageDelivered]()
    current = ways[0]

    async def plan(perceptions: Any) -> Action:
        return Action(output="well")

    threading.setprofile(lambda *called: current.called(*called))
    with tempfile.TemporaryDirectory() as folder:
        memory, people = Memory(f"sqlite:///{folder}/memory.db"), MemoryChannel(ChannelLimits())
        senders = {"senders": {"allow": [{"senders": ["chat:alice"]}]}}
        agent = Agent(plan=plan, loop_interval=3600, memory=memory, settings=senders)
        agent.channels.take([ChannelSpec("chat", people)])
        agent.events.subscribe(MessageDelivered, delivered.put_nowait)
        async with agent:
            for current in ways:
                current.begin()
                people.say("good morning")
                await asyncio.wait_for(delivered.get(), 30)
                current.end()
                await asyncio.sleep(0.1)  # the writer's thread is done with this message
    threading.setprofile(None)
    if people.texts() != ["well"] * len(ways):
        raise RuntimeError(f"the messages were answered by {people.texts()}")
    return min(ways[2:], key=lambda way: way.changes)


async def streamed() -> Way:
    """The second call of an answer that comes piece by piece, from its piece to its tool."""
    way = Way()

    @tool(effect="read")
    async def work(number: int) -> int:
        if number == 2:
            way.end()
        return number

    class Pieces:
        """A stream whose second piece begins the way when it is taken."""

        def __init__(self) -> None:
            self.told = 0

        def __aiter__(self) -> Pieces:
            return self

        async def __anext__(self) -> Any:
            await asyncio.sleep(0.05)
            self.told += 1
            if self.told > 2:
                raise StopAsyncIteration
            if self.told == 2:
                way.begin()
            return {"_tool": "work", "number": self.told}

    async def model(request: Any) -> Any:
        return Pieces() if not way.steps else {"output": "done"}

    planner = ModelPlanner(model)
    async with Agent(plan=planner, tools=[work], loop_interval=3600) as agent:
        await agent.wait((await agent.submit("work, please", session="hops")).run_id, timeout=30)
    way.end()
    return way


async def call() -> Way:
    """A call of the bare executor that does nothing."""
    way = Way()
    executor = Executor([nothing])
    for _ in range(3):
        await executor.run([Call("nothing")])
    way.begin()
    await executor.run([Call("nothing")])
    way.end()
    return way


@dataclass(frozen=True)
class Owed:
    """At most so many files and changes of file."""

    play: Callable[[], Awaitable[Way]]
    changes: int | None = None
    files: int | None = None


WAYS = {
    "cycle": Owed(cycle, files=28, changes=85),
    "journalled": Owed(journalled, files=42, changes=160),
    "message": Owed(message, files=50, changes=190),
    "channel": Owed(channel, changes=560),
    "streamed": Owed(streamed, files=20),
    "call": Owed(call, files=8, changes=24),
}


def main() -> int:
    """Print the table, or one way step by step. Returns: 0, or 1 when more steps are taken than are owed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hops", description="Steps through the house.")
    parser.add_argument("--way", choices=WAYS, help="print this way, a line for each function that is called")
    given = parser.parse_args()
    if given.way:
        way = asyncio.run(_played(given.way))
        before = ""
        for file, name in way.steps:
            print(f"{'>' if file != before else ' '} {file:40} {name}")
            before = file
        return 0
    is_more = False
    print(f"{'way':12}{'calls':>8}{'files':>8}{'changes':>9}   owed")
    for name, owed in WAYS.items():
        way = asyncio.run(_played(name))
        counts = [(owed.files, len(way.files), "files"), (owed.changes, way.changes, "changes")]
        too_many = any(most is not None and number > most for most, number, _ in counts)
        goals = ", ".join(f"at most {most} {what}" for most, _, what in counts if most is not None)
        verdict = f"{goals}, not reached" if too_many else goals
        print(f"{name:12}{len(way.steps):8}{len(way.files):8}{way.changes:9}   {verdict}")
        is_more |= too_many
    return int(is_more)


async def _played(name: str) -> Way:
    return await WAYS[name].play()


if __name__ == "__main__":
    sys.exit(main())
