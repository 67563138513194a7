"""Count the steps through the house: `python -m benchmarks.hops [--way cycle]` (`make hops`).

A reader who follows what happens opens a file each time a function of another file is called. For each way this
prints how often that is, through how many files of all packages, beside what is owed. `--way NAME` prints the way
itself.

    cycle      one cycle that carries out one call
    journalled the same with a journal on disk
    message    a message from `submit` to its answer, with a journal
    streamed   a call from the piece of a model's answer that holds it to its tool
    call       a call of the bare executor that does nothing, from `run` to its result
    show       `spar runs show` of a run of an earlier process, the command and the service together
    tokens     `GET /v1/tokens` at the port, with a token
    submit     `POST /v1/runs` at the port, with a wait for its answer
    channel    a message on a channel, until its answer is delivered, its cycle is closed and all of it is on disk
    build      an agent from the profile "bare", from the file to the agent

Of the first five only the thread of the event loop is followed, and the writer's timer stands still; of the others
every thread; there what a writer commits together varies by a few steps. The watchdog, which looks by the time, is left
out. Comprehensions, lambdas and properties count as the file they stand in.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import itertools
import json
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from acting import Executor
from memory import Memory
from memory.journal import handover
from planning.llm.planner import ModelPlanner
from spar import Action, Agent, Call, Perception, tool
from spar.agent.agent import build_agent
from spar.channels.conversations import ChannelAttachment
from spar.cli.main import main as spar
from spar.cli.templates import template
from spar.config.load import from_mapping, load
from spar.events import LoopCompleted, MessageDelivered
from spar.ports.channel import ChannelLimits, ChannelSpec
from spar.server.front import Front
from spar.service.app import Service
from spar.testing import MemoryChannel

HOME = Path(__file__).parents[1]
PACKAGES = ("spar", "perception", "planning", "acting", "reflection", "memory")


#: The module that works by the time.
WATCHDOG = "spar/health/watchdog.py"
#: Seconds after which an agent has nothing left to do.
RESTS_AFTER = 0.3


@dataclass
class Way:
    """The functions of all packages that were called on the way, as (file, function), in the order of each thread."""

    threads: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    _files: dict[CodeType, str] = field(default_factory=dict)
    _is_open: bool = False

    def begin(self) -> None:
        """Follow this thread from now on, with the others of `everywhere`, and forget what was before."""
        self.threads.clear()
        self._is_open = True
        sys.setprofile(self._called)

    def end(self) -> None:
        self._is_open = False
        sys.setprofile(None)

    @contextmanager
    def everywhere(self) -> Iterator[None]:
        """Follow also the threads that start in this block."""
        threading.setprofile(self._called)
        sys.setprofile(self._called)
        try:
            yield
        finally:
            self.end()
            threading.setprofile(None)  # type: ignore[arg-type]

    @property
    def steps(self) -> list[tuple[str, str]]:
        """The steps of one thread after the other."""
        return [step for steps in self.threads.values() for step in steps]

    @property
    def files(self) -> list[str]:
        """The files in the order in which they are first met."""
        return list(dict.fromkeys(file for file, _ in self.steps))

    @property
    def changes(self) -> int:
        """How often the way goes on in another file."""
        pairs = (itertools.pairwise(["", *(file for file, _ in steps)]) for steps in self.threads.values())
        return sum(one != other for one, other in itertools.chain.from_iterable(pairs))

    def _called(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or not self._is_open:
            return
        code = frame.f_code
        file = self._files.get(code)
        if file is None:
            file = self._files[code] = self._file_of(code)
        if file and file != WATCHDOG:
            self.threads.setdefault(threading.current_thread().name, []).append((file, code.co_qualname))

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


@contextmanager
def gathering() -> Iterator[None]:
    """Hold the timer of the writer still, which hands rows over by the time: how often it comes on a way depends on the
    machine. What a way waits for is handed over at once."""
    gather_for, handover.GATHER_FOR = handover.GATHER_FOR, 3600.0
    try:
        yield
    finally:
        handover.GATHER_FOR = gather_for


async def journalled() -> Way:
    """One acting cycle of an agent that keeps a journal."""
    with tempfile.TemporaryDirectory() as folder, gathering():
        return await cycle(Memory(f"sqlite:///{folder}/memory.db"))


async def well(perceptions: Any) -> Action:
    """Plan one answer."""
    return Action(output="well")


async def message() -> Way:
    """A message from `submit` to its answer, the third of its session, to an agent that rests."""
    way = Way()
    with tempfile.TemporaryDirectory() as folder:
        memory = Memory(f"sqlite:///{folder}/memory.db")
        async with Agent(plan=well, loop_interval=3600, memory=memory) as agent:
            for _ in range(2):
                await agent.wait((await agent.submit("good morning", session="hops")).run_id, timeout=30)
            await asyncio.sleep(RESTS_AFTER)
            with gathering():
                way.begin()
                status = await agent.wait((await agent.submit("good morning", session="hops")).run_id, timeout=30)
                way.end()
    if status.output != "well":
        raise RuntimeError(f"the message was answered by {status}")
    return way


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


@asynccontextmanager
async def served(folder: str) -> AsyncIterator[tuple[Agent, Callable[..., Any]]]:
    """Serve an agent with the store of a folder; yields it, and a function that asks the port."""
    loaded = load(None, environ={})
    async with Agent(plan=well, loop_interval=3600, memory=Memory(f"sqlite:///{folder}/memory.db")) as agent:
        service = Service(loaded, agent)
        front = Front(service, Path(folder), "127.0.0.1", 0, with_probes=True)
        front.open()
        name = f"hops-{len(await service.tokens.list())}"
        token = (await service.tokens.create(name, ["admin"])).token

        def ask(method: str, path: str, body: Any = None) -> Any:
            with closing(http.client.HTTPConnection("127.0.0.1", front.port)) as connection:
                headers = {"authorization": f"Bearer {token}"}
                connection.request(method, path, None if body is None else json.dumps(body), headers)
                answer = connection.getresponse()
                content = json.loads(answer.read())
            if answer.status >= 300:
                raise RuntimeError(f"{method} {path} was answered by {content}")
            return content

        try:
            yield agent, ask
        finally:
            front.close()


async def followed(way: Way, work: Callable[[], Any]) -> None:
    """Follow work of another thread, the third time that it is done."""
    for _ in range(2):
        await asyncio.to_thread(work)

    def third() -> None:
        way.begin()
        work()
        way.end()

    await asyncio.to_thread(third)


async def show() -> Way:
    """`spar runs show` of a run of an earlier process."""
    way = Way()
    with tempfile.TemporaryDirectory() as folder, way.everywhere():
        async with served(folder) as (agent, _):
            run_id = (await agent.submit("good morning")).run_id
            await agent.wait(run_id, timeout=30)
        (config := Path(folder, "config.toml")).write_text('[service]\nstate_dir = "."\n')

        def command() -> None:
            with redirect_stdout(StringIO()) as shown, suppress(SystemExit):
                spar(["-c", str(config), "runs", "show", run_id])
            if shown.getvalue().split()[-2:] != ["reply", "well"]:
                raise RuntimeError(f"the run was shown as {shown.getvalue()}")

        async with served(folder):
            await followed(way, command)
    return way


async def tokens() -> Way:
    """`GET /v1/tokens` at the port."""
    way = Way()
    with tempfile.TemporaryDirectory() as folder, way.everywhere():
        async with served(folder) as (_, ask):
            await followed(way, lambda: ask("GET", "/v1/tokens"))
    return way


async def submit() -> Way:
    """`POST /v1/runs` at the port, with a wait for its answer."""
    way = Way()
    with tempfile.TemporaryDirectory() as folder, way.everywhere():
        async with served(folder) as (_, ask):

            def work() -> None:
                run_id = ask("POST", "/v1/runs", {"message": "good morning", "session": "hops"})["run_id"]
                ask("GET", f"/v1/runs/{run_id}/wait")

            await followed(way, work)
    return way


async def channel() -> Way:
    """A message on a channel, until its answer is delivered, its cycle is closed and all of it is on disk; the third
    of its conversation. It begins and ends with an agent that rests, so that no step of another message counts."""
    way, line, ended = Way(), MemoryChannel(ChannelLimits()), asyncio.Semaphore(0)
    allowed = {"agent": {"loop_interval": 3600}, "senders": {"allow": [{"senders": ["line:alice"]}]}}
    with tempfile.TemporaryDirectory() as folder, way.everywhere():
        memory = Memory(f"sqlite:///{folder}/memory.db")
        attach = ["senders", ChannelAttachment([ChannelSpec("line", line)])]
        agent = Agent(plan=well, memory=memory, settings=from_mapping(allowed), attach=attach)
        async with agent:
            await asyncio.sleep(RESTS_AFTER)
            for kind in (MessageDelivered, LoopCompleted):
                agent.events.subscribe(kind, lambda event: ended.release())
            for _ in range(3):
                way.begin()
                line.say("good morning")
                await ended.acquire()
                await ended.acquire()
                await asyncio.sleep(RESTS_AFTER)
            way.end()
    return way


async def build() -> Way:
    """An agent from the profile "bare", the second that is built."""
    way = Way()
    with tempfile.TemporaryDirectory() as folder:
        (config := Path(folder, "config.toml")).write_text(template("profile", "bare.toml"))
        build_agent(load(config, environ={}))
        way.begin()
        build_agent(load(config, environ={}))
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
    "streamed": Owed(streamed, files=20),
    "call": Owed(call, files=8, changes=24),
    "show": Owed(show, changes=55),
    "tokens": Owed(tokens, changes=25),
    "submit": Owed(submit, changes=480),
    "channel": Owed(channel, changes=560),
    "build": Owed(build, changes=280),
}


def main() -> int:
    """Print the table, or one way step by step. Returns: 0, or 1 when more steps are taken than are owed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hops", description="Steps through the house.")
    parser.add_argument("--way", choices=WAYS, help="print this way, a line for each function that is called")
    given = parser.parse_args()
    if given.way:
        way = asyncio.run(_played(given.way))
        for thread, steps in way.threads.items():
            print(f"thread {thread}")
            before = ""
            for file, name in steps:
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
