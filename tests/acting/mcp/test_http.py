"""An MCP server over streamable HTTP: where it may be reached, and what may go wrong on the way."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from acting.mcp.server import McpServer
from acting.tooling.context import ToolContext
from spar.clock import SystemClock
from spar.errors import InDoubtError, PermanentError, TransientError
from spar.net.addresses import Guard
from spar.protocols import Home
from spar.threads import Threads
from spar.types import Call
from tests.waiting import until

pytestmark = pytest.mark.usefixtures("offline")

pytest.importorskip("mcp", reason="the MCP library (spar-agent[mcp]) is not installed")

TOOL = {"name": "act", "description": "d", "inputSchema": {"type": "object"}}


class Web:
    """A small HTTP server that answers MCP, or whatever the test says instead, in `answers` by JSON-RPC method."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, str], Any]] = []
        self.answers: dict[str, Callable[[], bytes]] = {}
        self.session = "one"
        self.port = 0

    @asynccontextmanager
    async def serving(self, port: int = 0) -> AsyncIterator[Web]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            line, *rest = head.strip().split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (each.partition(":") for each in rest)}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            message = json.loads(body) if body else {}
            self.requests.append((line, headers, message))
            writer.write(self._answer(line, headers, message))
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def _answer(self, line: str, headers: dict[str, str], message: dict[str, Any]) -> bytes:
        method, number = message.get("method", ""), message.get("id")
        if method in self.answers:
            return self.answers[method]()
        if line.startswith("GET"):
            return reply(405)
        if method == "initialize":
            about = {"capabilities": {"tools": {}}, "serverInfo": {"name": "web", "version": "1"}}
            found = {"protocolVersion": "2025-06-18", **about}
            return reply(200, result(number, found), **{"Mcp-Session-Id": self.session})
        if number is None:
            return reply(202)
        if headers.get("mcp-session-id", self.session) != self.session:
            return reply(404)
        if method == "tools/list":
            return reply(200, result(number, {"tools": [TOOL]}))
        if method == "tools/call":
            return reply(200, result(number, {"content": [{"type": "text", "text": "done"}]}))
        error = {"jsonrpc": "2.0", "id": number, "error": {"code": -32601, "message": "Method not found"}}
        return reply(200, json.dumps(error).encode())


def result(number: Any, value: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": number, "result": value}).encode()


def reply(status: int, body: bytes = b"", **headers: str) -> bytes:
    given = {"Content-Type": "application/json", "Content-Length": str(len(body)), "Connection": "close", **headers}
    lines = "".join(f"{name}: {value}\r\n" for name, value in given.items())
    return f"HTTP/1.1 {status} X\r\n{lines}\r\n".encode() + body


@pytest.fixture
async def web() -> AsyncIterator[Web]:
    async with Web().serving() as web:
        yield web


def source(folder: Path, web: Web, host: str = "127.0.0.1", **options: Any) -> McpServer:
    home = Home(str(folder), str(folder / "workspace"), str(folder / "state"))
    made = McpServer(home=home, url=f"http://{host}:{web.port}/mcp", **options)
    made.name = "web"
    return made


async def call(server: McpServer) -> Any:
    (tool,) = server.tools()
    return await tool(_context=ToolContext(Call(tool.name)))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"], ids=["by address", "by a name inside"])
async def test_tools_are_called_by_no_proxy_and_the_configured_headers_go_along(
    tmp_path: Path, web: Web, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with source(tmp_path, web, host, headers={"Authorization": "Bearer x"}) as server:
        assert await call(server) == "done"

    assert {headers["authorization"] for _, headers, _ in web.requests} == {"Bearer x"}
    assert {headers["host"] for _, headers, _ in web.requests} == {f"{host}:{web.port}"}
    assert web.requests[-1][0].startswith("DELETE")  # it takes its leave


@pytest.mark.parametrize(
    ("allow", "url", "why"),
    [
        (["example.org:80"], "http://127.0.0.1:8080/", "is not allowed; allowed: example.org:80"),
        (["*"], "http://localhost/", "a loopback address"),
        (["*"], "http://[::ffff:127.0.0.1]/", "a loopback address"),
        (["metadata.internal:80", "*"], "http://169.254.169.254/", "cloud metadata"),
        (["*"], "http://127.1/", "a loopback address"),
    ],
)
async def test_addresses_that_are_not_permitted_are_not_connected_to(allow: list[str], url: str, why: str) -> None:
    import httpx2

    from acting.mcp.http import GuardedTransport

    judged = GuardedTransport(Guard.of(allow), Threads("test", SystemClock()))
    response = await judged.handle_async_request(httpx2.Request("POST", url, content=b"{}"))
    await judged.aclose()

    assert why in response.json()["error"]["message"]


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_a_redirect_to_another_host_is_not_followed(tmp_path: Path, web: Web, status: int) -> None:
    async with Web().serving() as other, source(tmp_path, web, headers={"Authorization": "x"}) as server:
        web.answers["tools/call"] = lambda: reply(status, Location=f"http://127.0.0.1:{other.port}/mcp")
        with pytest.raises((PermanentError, TransientError), match="not followed"):
            await call(server)

        assert other.requests == []


async def test_a_server_that_is_not_there_is_found_when_it_comes(tmp_path: Path) -> None:
    web = Web()
    async with web.serving():
        pass
    async with source(tmp_path, web) as server:
        assert "cannot connect to '127.0.0.1'" in server.snapshot()["error"]
        async with web.serving(web.port):
            await until(lambda: server.snapshot()["state"] == "connected")
            assert await call(server) == "done"


async def test_a_forgotten_session_is_no_effect_and_is_made_anew(tmp_path: Path, web: Web) -> None:
    async with source(tmp_path, web) as server:
        web.session = "two"  # it was restarted
        with pytest.raises(TransientError, match="the server has forgotten the session"):
            await call(server)
        await until(lambda: server.snapshot()["state"] == "down")
        await until(lambda: server.snapshot()["state"] == "connected")

        assert await call(server) == "done"


@pytest.mark.parametrize(
    "answer",
    [
        lambda: b"",
        lambda: b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{",
        lambda: reply(502, b"<html>", **{"Content-Type": "text/html"}),
        lambda: reply(200, b"", **{"Content-Type": "text/event-stream"}),
        lambda: reply(200, gzip.compress(b"0" * 10_000_000), **{"Content-Encoding": "gzip"}),
    ],
    ids=["nothing", "half a body", "a gateway", "an empty stream", "a bomb"],
)
async def test_an_answer_that_breaks_off_leaves_a_call_in_doubt_and_others_alone(
    tmp_path: Path, web: Web, answer: Callable[[], bytes]
) -> None:
    async with source(tmp_path, web) as server:
        web.answers["tools/call"] = answer
        with pytest.raises(InDoubtError, match="broke during the call"):
            await call(server)
        del web.answers["tools/call"]

        assert await call(server) == "done"


@pytest.mark.parametrize(
    "answer",
    [
        lambda: reply(200, b"x" * (5 << 20)),
        lambda: reply(200, b"data: " + b"x" * (5 << 20), **{"Content-Type": "text/event-stream"}),
        lambda: reply(200, b"{nonsense"),
        lambda: reply(200, b"<html>", **{"Content-Type": "text/html"}),
        lambda: reply(500, b"oh", **{"Content-Type": "text/plain"}),
    ],
    ids=["too large", "too large an event", "no JSON", "a page", "an error"],
)
async def test_an_answer_that_makes_no_sense_fails_its_own_call_only(
    tmp_path: Path, web: Web, answer: Callable[[], bytes]
) -> None:
    async with source(tmp_path, web, effects={"act": "read"}) as server:
        web.answers["tools/call"] = answer
        with pytest.raises((PermanentError, TransientError)):
            await call(server)
        del web.answers["tools/call"]

        assert await call(server) == "done"
        assert server.snapshot()["failures"] == 0
