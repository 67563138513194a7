"""Small HTTP servers on loopback: `http_served` in a thread, `Pages` in the loop of the test.

`web_served` keeps what it is asked, is an MCP server at `/mcp`, and answers `seen` elsewhere.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

#: The one tool that it has.
TOOL = {"name": "act", "description": "act", "inputSchema": {"type": "object", "properties": {}}}
#: What it answers as an MCP server, by JSON-RPC method.
ANSWERS: Mapping[str, Mapping[str, Any]] = {
    "initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                   "serverInfo": {"name": "web", "version": "1"}},
    "tools/list": {"tools": [TOOL]},
    "tools/call": {"content": [{"type": "text", "text": "done"}]},
}  # fmt: skip


class Request(NamedTuple):
    """One request: its path, its headers (names in lower case) and its body as JSON."""

    path: str
    headers: dict[str, str]
    message: dict[str, Any]


class Web:
    """What a server was asked, in order."""

    def __init__(self) -> None:
        self.url, self.requests = "", list[Request]()

    def calls(self) -> list[Request]:
        """The calls of tools that it was asked for."""
        return [each for each in list(self.requests) if each.message.get("method") == "tools/call"]

    def pages(self) -> list[Request]:
        """The requests that were not for the MCP server."""
        return [each for each in list(self.requests) if each.path != "/mcp"]


@contextmanager
def http_served(
    answer: Callable[[str, dict[str, str], bytes], tuple[int, bytes]], kind: str = "application/json", port: int = 0
) -> Iterator[str]:
    """Serve, for as long as the block, what a function answers to a path, headers (names in lower case) and a body.

    Args: kind: the type of what it answers.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            status, said = answer(self.path, headers, self.rfile.read(int(headers.get("content-length", 0))))
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        do_POST = do_DELETE = do_GET

        def log_message(self, *words: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5.0)


@contextmanager
def web_served() -> Iterator[Web]:
    """A server for as long as the block."""
    web = Web()

    def answer(path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        if path != "/mcp":
            web.requests.append(Request(path, headers, json.loads(body or b"{}")))
            return 200, b"seen"
        if not body:
            return 405, b""
        web.requests.append(Request(path, headers, message := json.loads(body)))
        if (number := message.get("id")) is None:
            return 202, b""
        found = ANSWERS.get(message["method"])
        said = {"error": {"code": -32601, "message": "Method not found"}} if found is None else {"result": found}
        return 200, json.dumps({"jsonrpc": "2.0", "id": number, **said}).encode()

    with http_served(answer) as web.url:
        yield web


# -- in the loop of the test


def reply(status: str = "200 OK", body: str | bytes = b"", **headers: str) -> bytes:
    """Return an answer as it is sent."""
    raw = body.encode() if isinstance(body, str) else body
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(raw)}", "Connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + raw


class Pages:
    """Answers by path with what a test puts there, else with `other`, and remembers the requests as it read them."""

    def __init__(self, host: str = "127.0.0.1", other: bytes = reply("404 Not Found")) -> None:
        self.host, self.port, self.other = host, 0, other
        self.answers: dict[str, bytes | Callable[[asyncio.StreamWriter, str], Awaitable[None]]] = {}
        self.requests: list[str] = []
        self.connections = 0

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def put(self, path: str, body: str | bytes, status: str = "200 OK", **headers: str) -> None:
        self.answers[path] = reply(status, body, **headers)

    @asynccontextmanager
    async def serving(self, port: int = 0, **more: Any) -> AsyncIterator[Pages]:
        """Serve for as long as the block."""
        listening = await asyncio.start_server(self._serve, self.host, port, **more)
        self.port = listening.sockets[0].getsockname()[1]
        yield self
        listening.close()
        await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            request = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            length = re.search(r"\ncontent-length: *(\d+)", request, re.I)
            request += (await reader.readexactly(int(length[1]) if length else 0)).decode("latin-1")
            self.requests.append(request)
            path = request.split(" ")[1]
            answer = self.answers.get(path, self.answers.get(path.partition("?")[0], self.other))
            if isinstance(answer, bytes):
                writer.write(answer)
            else:
                await answer(writer, request)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
