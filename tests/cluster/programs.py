"""Programs of the processes of a cluster: agents of one name on one database, driven and read from outside."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any

import psycopg

from tests.process.template import Forked, clean_environ

ROOT = Path(__file__).parents[2]

#: An agent whose tool writes who ran what into a table outside of the memory. It takes orders as lines of JSON: a
#: number, a word (`submit wait work owned nodes doubts stop`), its values; it answers each with number and result.
NODE = """
import asyncio, json, os, sys
import psycopg
from memory.postgres.store import PostgresMemory
from spar import Action, Agent, Call, tool

URL, NAME = sys.argv[1:3]
SLOW = float(sys.argv[3])

@tool(effect="once")
async def pay(id: str) -> str:
    "Write down that this was done."
    if id.startswith("only wait"):
        await asyncio.sleep(SLOW)
        return id
    if not id.startswith("quick"):
        await asyncio.sleep(SLOW)
    async with await psycopg.AsyncConnection.connect(URL, autocommit=True) as connection:
        await connection.execute("INSERT INTO oracle.done (id, node) VALUES (%s, %s)", (id, NAME))
    return id

async def plan(perceptions, context):
    if context.run is not None and context.run.number > 1:
        return Action(output="done")
    for perception in perceptions:
        if perception.text == "poison":
            os._exit(70)
        if perception.kind == "message":
            return Action(calls=[Call("pay", {"id": perception.text})])
    return None

def say(**answer):
    os.write(1, (json.dumps(answer) + "\\n").encode())

async def main():
    memory = PostgresMemory(URL, nodes=True)
    agent = Agent(plan=plan, tools=[pay], memory=memory, loop_interval="off", name="main",
                  settings={"runs": {"limit": 64}, "agent": {"min_interval": 0.001}})
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)

    async def work(session, times):
        for index in range(times):
            receipt = await agent.submit("only wait", session=session)
            status = await agent.wait(receipt.run_id, 60.0)
            assert status.status == "ok", status

    async def carry_out(number, word, rest):
        try:
            if word == "submit":
                session, key, text = rest
                receipt = await agent.submit(text, session=session, idempotency_key=key)
                say(number=number, run=receipt.run_id, at=receipt.accepted_at.timestamp())
            elif word == "wait":
                status = await agent.wait(rest[0], 60.0)
                begun = status.started_at and status.started_at.timestamp()
                say(number=number, status=status.status, error=status.error, begun=begun)
            elif word == "work":
                sessions, times = rest
                await asyncio.gather(*(work(session, times) for session in sessions))
                say(number=number)
            elif word == "owned":
                say(number=number, sessions=[session for session in rest[0] if memory.nodes.owns("main", session)])
            elif word == "nodes":
                say(number=number, **memory.nodes.snapshot())
            elif word == "doubts":
                doubts = await agent.recovery.restart.doubts.list()
                say(number=number, doubts=[doubt.call.params["id"] for doubt in doubts])
        except Exception as error:
            say(number=number, error=repr(error))

    tasks = set()
    async with agent:
        say(number=0, **memory.nodes.snapshot())
        while line := await reader.readline():
            number, word, *rest = json.loads(line)
            if word == "stop":
                break
            task = asyncio.create_task(carry_out(number, word, rest))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
    say(number=-1)

asyncio.run(main())
"""


class NodeProcess:
    """Process of one node."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._number = 0
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        pipe, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), self._process.stdout)
        with closing(pipe):
            while line := await reader.readline():
                answer = json.loads(line)
                self._answer_to(answer.pop("number")).set_result(answer)
        for future in self._answers.values():
            if not future.done():
                future.set_exception(ConnectionError("the process has ended"))
                future.exception()

    def _answer_to(self, number: int) -> asyncio.Future[dict[str, Any]]:
        return self._answers.setdefault(number, asyncio.get_running_loop().create_future())

    async def ready(self) -> dict[str, Any]:
        """Return its first word: it has begun."""
        async with asyncio.timeout(60):
            return await self._answer_to(0)

    async def ask(self, word: str, *rest: Any) -> dict[str, Any]:
        """Return the answer to an order. Raises: ConnectionError when the process has ended."""
        if self._reading.done():
            raise ConnectionError("the process has ended")
        self._number += 1
        number = self._number
        future = self._answer_to(number)
        self._write([number, word, *rest])
        async with asyncio.timeout(90):
            return await future

    def _write(self, order: list[Any]) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # the end of what it says is noticed
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            self._process.stdin.flush()

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def kill_now(self) -> None:
        """Send it SIGKILL."""
        self._process.kill()

    async def kill(self) -> None:
        """End it at once, whatever it does."""
        if not self.has_ended:
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()
        await self._end()

    async def stop(self) -> int:
        """Stop it in order. Return its exit code."""
        await self.ask_to_stop()
        return await self._end()

    async def _end(self) -> int:
        await self._reading
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        return await asyncio.to_thread(self._process.wait)

    async def ask_to_stop(self) -> None:
        self._write([-1, "stop"])
        async with asyncio.timeout(60):
            await self._answer_to(-1)


class ProcessCluster:
    """Database and the nodes on it; the table `oracle.done` says what was really done."""

    def __init__(self, url: str, slow: float) -> None:
        self.url, self._slow = url, slow
        self.nodes: list[NodeProcess] = []

    async def add(self, before: str = "") -> NodeProcess:
        """Return a new node that has begun. Args: before: code that it runs first."""
        name, slow = f"node{len(self.nodes)}", str(self._slow)
        command = [sys.executable, "-c", before + NODE, self.url, name, slow]
        environ = {**clean_environ(), "PYTHONPATH": str(ROOT)}
        node = NodeProcess(await asyncio.to_thread(Forked, command, stdin=-1, stdout=-1, env=environ))
        self.nodes.append(node)
        await node.ready()
        return node

    async def spread(self) -> None:
        """Wait until each node owns something and all is owned."""
        async with asyncio.timeout(60):
            while True:
                numbers = [row[0] for row in self.rows("SELECT count(*) FROM partition GROUP BY owner")]
                owners = {row[0] for row in self.rows("SELECT DISTINCT owner FROM partition")}
                living = [row[0] for row in self.rows("SELECT token FROM node")]
                if None not in owners and owners == set(living) and len(numbers) >= 1:
                    return
                await asyncio.sleep(0.1)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            return connection.execute(sql.encode()).fetchall()

    @property
    def done(self) -> list[str]:
        """Return the ids of what was done, as often as it was."""
        return [row[0] for row in self.rows("SELECT id FROM oracle.done")]


@asynccontextmanager
async def process_cluster(url: str, number: int, slow: float = 0.05, before: str = "") -> AsyncIterator[ProcessCluster]:
    """Run nodes on a database. Args: slow: seconds that a call takes; before: code that the first nodes run first."""
    cluster = ProcessCluster(url, slow)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS oracle CASCADE")
        connection.execute("CREATE SCHEMA oracle")
        connection.execute("CREATE TABLE oracle.done (id TEXT, node TEXT, at TIMESTAMPTZ DEFAULT clock_timestamp())")
    try:
        for _ in range(number):
            await cluster.add(before)
        await cluster.spread()
        yield cluster
    finally:
        for node in cluster.nodes:
            await node.kill()
