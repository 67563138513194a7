"""The control API while its agent starts and stops: nothing is taken that could be forgotten, and nothing breaks."""

from __future__ import annotations

import asyncio
import io
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import UnixStreamServer
from typing import Any, ClassVar

import httpx
import pytest

from memory import Memory
from spar import Agent
from spar.client import Client
from spar.config.load import load
from spar.errors import NotReadyError
from spar.observe.sink import configure
from spar.operations.runs import RunBody, submit
from spar.server.agent_loop import on_loop
from spar.server.routes.applications import control
from spar.service.app import Service
from tests.waiting import until

#: What takes work, decides, or answers with what is known.
DOORS = (
    ("POST", "/v1/runs", {"message": "hello"}),
    ("GET", "/v1/runs/r1", None),
    ("GET", "/v1/runs/r1/wait", None),
    ("GET", "/v1/runs/r1/events", None),
    ("POST", "/v1/runs/r1:abort", {}),
    ("GET", "/v1/approvals", None),
    ("GET", "/v1/approvals/a1", None),
    ("POST", "/v1/approvals/a1", {"digest": "d", "decision": "approve"}),
    ("GET", "/v1/grants", None),
    ("DELETE", "/v1/grants/g1", None),
    ("GET", "/v1/calls/in-doubt", None),
    ("POST", "/v1/calls/in-doubt/c1/resolve", {"answer": "done"}),
    ("GET", "/v1/dead-letters", None),
    ("POST", "/v1/dead-letters/d1/retry", {}),
    ("POST", "/v1/agent:step_sense", None),
    ("POST", "/v1/agent:pause", None),
    ("POST", "/v1/sensors/inbox:restore", None),
    ("GET", "/v1/cycles", None),
    ("GET", "/v1/memory/search?q=x", None),
)
#: Of those, what can still be asked while the agent stops.
READ = {
    "/v1/runs/r1",
    "/v1/runs/r1/wait",
    "/v1/runs/r1/events",
    "/v1/runs/r1:abort",
    "/v1/cycles",
    "/v1/memory/search?q=x",
}


class Held:
    """A part that is opened and closed when it is let."""

    def __init__(self) -> None:
        self.open, self.close = asyncio.Event(), asyncio.Event()

    async def __aenter__(self) -> Held:
        await self.open.wait()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close.wait()

    async def reflect(self, result: Any) -> None: ...


def held(path: Path) -> tuple[Agent, Held, httpx.AsyncClient]:
    part = Held()
    agent = Agent(memory=Memory(f"sqlite:///{path / 'm.db'}"), reflect=part, loop_interval="off")
    return agent, part, client_of(agent)


def client_of(agent: Agent) -> httpx.AsyncClient:
    service = Service(load(None, environ={}), agent)
    transport = httpx.ASGITransport(control(service), client=("alice", 1))  # raises what the server would log
    return httpx.AsyncClient(transport=transport, base_url="http://spar")


async def test_while_the_agent_starts_every_door_says_when_to_come_again(tmp_path: Path) -> None:
    agent, part, client = held(tmp_path)
    async with client:
        starting = asyncio.create_task(agent.start())
        await until(lambda: agent.requests.loop is not None)
        for method, path, body in DOORS:
            answer = await client.request(method, path, json=body)
            assert (answer.status_code, answer.headers.get("retry-after")) == (503, "1"), path
            assert "is starting" in answer.json()["detail"]
        assert (await client.get("/v1/status")).json()["agent"]["state"] == "created"
        part.open.set()
        await starting
        assert (await client.post("/v1/runs", json={"message": "hello"})).status_code == 202
        part.close.set()
        await agent.stop()


async def test_while_the_agent_stops_no_work_and_no_decision_is_taken(tmp_path: Path) -> None:
    agent, part, client = held(tmp_path)
    part.open.set()
    await agent.start()
    async with client:
        stopping = asyncio.create_task(agent.stop())
        await until(lambda: agent.state == "stopping")
        for method, path, body in DOORS:
            if path not in READ:
                answer = await client.request(method, path, json=body)
                assert (answer.status_code, answer.headers.get("retry-after")) == (503, None), path
                assert "is stopping" in answer.json()["detail"]
        assert (await client.get("/v1/runs/r1")).status_code == 503
        part.close.set()
        await stopping
        for method, path, body in DOORS:
            assert (await client.request(method, path, json=body)).status_code == 503, path


@pytest.mark.parametrize("ending", [asyncio.CancelledError(), RuntimeError("the store is closed")])
async def test_a_request_that_the_end_overtakes_is_refused_without_a_stack(ending: BaseException) -> None:
    said = io.StringIO()
    logs = configure("debug", "json", stream=said)
    agent = Agent(loop_interval="off")

    class Broken:
        async def cycles(self, **query: Any) -> Any:
            agent.core.state = "stopping"
            raise ending

    try:
        async with client_of(agent) as client:
            await agent.start()
            agent.memory = Broken()
            answer = await client.get("/v1/cycles")
    finally:
        logs.close()
    agent.core.state, agent.memory = "running", None
    await agent.stop()
    assert answer.status_code == 503
    assert "Traceback" not in said.getvalue()


async def test_what_the_agents_loop_cannot_answer_any_more_is_refused() -> None:
    async def cancelled() -> None:
        raise asyncio.CancelledError

    agent = Agent(loop_interval="off")
    async with agent:
        with pytest.raises(NotReadyError, match="ended before it could answer"):
            await on_loop(agent, cancelled(), 5.0)
        own = agent.requests.loop
        agent.requests.loop = asyncio.new_event_loop()
        agent.requests.loop.close()
        with pytest.raises(NotReadyError, match="ended before it could answer"):
            await on_loop(agent, cancelled(), 5.0)
        agent.requests.loop = own


class Starting(BaseHTTPRequestHandler):
    """Answers the first request with 503 and when to ask again, the others with an empty list."""

    bodies: ClassVar[list[bytes]] = []

    def do_POST(self) -> None:
        self.bodies.append(self.rfile.read(int(self.headers["content-length"])))
        status, answer = (503, b'{"detail": "starting"}') if len(self.bodies) == 1 else (200, b"[]")
        self.send_response(status)
        self.send_header("retry-after", "1")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: Any) -> None:
        return None


def test_the_command_line_asks_a_service_that_starts_again_until_it_is_open(tmp_path: Path) -> None:
    Starting.bodies.clear()
    with UnixStreamServer(str(tmp_path / "control.sock"), Starting) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            answer = Client(tmp_path).answer(submit, RunBody("hello"))
        finally:
            server.shutdown()
            thread.join()

    assert answer == []
    assert Starting.bodies == [b'{"message": "hello"}'] * 2
