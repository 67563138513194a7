"""What a client leaves behind that goes away before its answer, over real connections in the loop of the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from uvicorn.server import ServerState

from memory import Memory
from spar import Action, Agent, Perception
from spar.config.load import load
from spar.events import StateChanged
from spar.operations.operation import Method, Nothing, Operation, Stream
from spar.server import event_streams
from spar.server.api.dispatch import HANDLERS, OperationRoute
from spar.server.api.repeated import Repeated
from spar.server.front import BoundedConfig, BoundedProtocol, Bounds, port
from spar.server.problems import LARGEST_BODY
from spar.server.routes.applications import control
from spar.service.app import Service
from spar.service.feed import Feed
from spar.service.token_rows import Scope
from tests.waiting import until

#: Clients that come and leave.
CLIENTS = 20


class Served:
    """An application on a Unix socket or a port, in the loop of the test."""

    def __init__(self, address: Any) -> None:
        self.address = address

    async def open(self, method: str, path: str, token: str = "", *, body: bytes = b"",
                   length: int | None = None) -> asyncio.StreamWriter:  # fmt: skip
        """Send a request and return its connection."""
        if isinstance(self.address, Path):
            reader, writer = await asyncio.open_unix_connection(str(self.address))
        else:
            reader, writer = await asyncio.open_connection(*self.address)
        self.reader = reader
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length or len(body)}\r\n"
        if token:
            head += f"Authorization: Bearer {token}\r\n"
        writer.write(head.encode() + b"\r\n" + body)
        await writer.drain()
        return writer


@asynccontextmanager
async def served(application: Any, folder: Path, *, is_port: bool = False) -> AsyncIterator[Served]:
    config = BoundedConfig(application, Bounds(), log_config=None, lifespan="off", ws="none")
    config.load()
    loop, state = asyncio.get_running_loop(), ServerState()
    if is_port:
        server = await loop.create_server(lambda: BoundedProtocol(config, state, {}), "127.0.0.1", 0)
        address: Any = server.sockets[0].getsockname()
    else:
        address = folder / "control.sock"
        server = await loop.create_unix_server(lambda: BoundedProtocol(config, state, {}), str(address))
    async with server:
        yield Served(address)


class Held:
    """Operation that never answers by itself: it counts who waits, whose wait was cancelled, and who was answered."""

    def __init__(self) -> None:
        self.waiting = self.cancelled = self.answered = 0
        self.may_end = asyncio.Event()

    async def answer(self, service: Service, given: Nothing) -> str:
        """Answer when the test says so."""
        self.waiting += 1
        try:
            await self.may_end.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.waiting -= 1
        self.answered += 1
        return "answered"

    def application(self, method: Method, scope: Scope) -> Any:
        """Return an application with this operation."""
        operation = Operation(self.answer, "held", f"{method} /held", scope, where="service", served="always")
        service = Service(load(None, environ={}), Agent(loop_interval="off"))
        return Starlette(routes=[OperationRoute(operation, service, Repeated(service))], exception_handlers=HANDLERS)


@pytest.mark.parametrize(
    ("method", "scope", "is_read"),
    [("GET", "read", True), ("GET", "admin", True), ("POST", "read", True), ("POST", "operate", False),
     ("PATCH", "operate", False), ("DELETE", "admin", False)],
)  # fmt: skip
async def test_a_read_ends_with_its_client_and_a_change_does_not(
    tmp_path: Path, method: Method, scope: Scope, is_read: bool
) -> None:
    held = Held()
    async with served(held.application(method, scope), tmp_path) as door:
        tasks = len(asyncio.all_tasks())
        clients = [await door.open(method, "/held") for _ in range(CLIENTS)]
        await until(lambda: held.waiting == CLIENTS)

        for client in clients:
            client.close()
            await client.wait_closed()
        await until(lambda: held.waiting == 0 or not is_read)
        staying = await door.open(method, "/held")
        await until(lambda: held.waiting == (1 if is_read else CLIENTS + 1))
        held.may_end.set()
        answer = await door.reader.readuntil(b'"answered"')

        assert answer.startswith(b"HTTP/1.1 200")
        assert (held.cancelled, held.answered) == ((CLIENTS, 1) if is_read else (0, CLIENTS + 1))
        staying.close()
        await until(lambda: len(asyncio.all_tasks()) == tasks)


async def test_the_body_of_a_read_has_its_limit_also_while_the_read_waits(tmp_path: Path) -> None:
    held = Held()
    async with served(held.application("GET", "read"), tmp_path) as door:
        writer = await door.open("GET", "/held", body=b"x", length=LARGEST_BODY)
        await until(lambda: held.waiting == 1)
        writer.close()
        await until(lambda: held.waiting == 0)


class Slow:
    """Planner whose runs end when they are let."""

    def __init__(self) -> None:
        self.may_end = asyncio.Event()

    async def plan(self, perceptions: list[Perception]) -> Action | None:
        if perceptions:
            await self.may_end.wait()
        return None


@pytest.mark.parametrize("is_port", [False, True])
async def test_waits_and_streams_that_are_left_leave_nothing(tmp_path: Path, is_port: bool) -> None:
    memory = Memory(f"sqlite:///{tmp_path / 'memory.db'}")
    planner = Slow()
    agent = Agent(plan=planner, memory=memory, loop_interval="off")
    async with agent:
        service = Service(load(None, environ={}), agent)
        application = port(service, "127.0.0.1") if is_port else control(service)
        token = (await service.tokens.create("reader", ["read"])).token if is_port else ""
        run_id = (await agent.submit("hello")).run_id
        await until(lambda: agent.runs.open == 1 and next(agent.runs.newest).started_at is not None)
        try:
            async with served(application, tmp_path, is_port=is_port) as door:
                paths = [f"/v1/runs/{run_id}/wait?timeout=3600", f"/v1/runs/{run_id}/events", "/v1/events",
                         "/v1/events?after=0", "/v1/status", "/v1/memory/search?q=x", "/v1/sessions"]  # fmt: skip
                tasks = len(asyncio.all_tasks())
                for path in paths:
                    clients = [await door.open("GET", path, token) for _ in range(CLIENTS)]
                    if "/wait" in path or "/events" in path:
                        await until(lambda: len(asyncio.all_tasks()) >= tasks + CLIENTS)
                    for client in clients:
                        client.close()
                    await until(lambda: len(asyncio.all_tasks()) == tasks)

                run = agent.runs.find(run_id)
                assert run is not None
                assert run.has_ended is not None
                assert len(run.has_ended._waiters) == 0
                assert service.feed._readers == 0
                for _ in range(3 * CLIENTS // 2):  # more than may watch at once
                    (await door.open("GET", "/v1/events", token)).close()
                await until(lambda: len(asyncio.all_tasks()) == tasks and service.feed._readers == 0)
                stream = await door.open("GET", "/v1/events", token)
                assert (await door.reader.readline()).startswith(b"HTTP/1.1 200")
                stream.close()
        finally:
            planner.may_end.set()


# -- streams of many clients: each event is encoded once, and all together ask the agent at a bounded rate


async def test_five_hundred_clients_encode_an_event_once_and_rest_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded, rests = list[Any](), list[float]()
    encode, sleep = event_streams.encode, asyncio.sleep
    monkeypatch.setattr(event_streams, "encode", lambda event: encoded.append(event) or encode(event))

    async def rest(seconds: float) -> None:
        rests.append(seconds)
        await sleep(0)

    monkeypatch.setattr(event_streams.asyncio, "sleep", rest)
    async with Agent(loop_interval="off") as agent:
        feed = Feed(agent.events, agent.core.clock, lambda: [], str)
        readers = [feed.read(None, frozenset({StateChanged}), None) for _ in range(500)]
        agent.events.publish(StateChanged(old="a", new="b"))

        async def first(reader: Any) -> bytes:
            stream = Stream(reader, lambda event: str(event.type))
            async with aclosing(event_streams.frames(agent, stream, lambda: True, lambda: 500)) as frames:
                assert b"retry" in await anext(frames)
                frame = await anext(frames)
                asyncio.get_running_loop().call_soon(reader.close)
                assert [rest async for rest in frames] == []
                return frame

        answers = await asyncio.gather(*map(first, readers))
    assert len(set(answers)) == 1
    assert b"event: StateChanged" in answers[0]
    assert len(encoded) == 1
    assert [seconds for seconds in rests if seconds] == [500 * event_streams.REST] * 500
