"""A small HTTP server on a loopback port: it keeps what it is asked, is an MCP server at `/mcp`, and answers `seen`
elsewhere."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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
def web_served() -> Iterator[Web]:
    """A server for as long as the block."""
    web = Web()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            message = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or b"{}")
            web.requests.append(
                Request(self.path, {name.lower(): value for name, value in self.headers.items()}, message)
            )
            if self.path != "/mcp":
                self._answer(200, b"seen")
            elif (number := message.get("id")) is None:
                self._answer(202)
            else:
                found = ANSWERS.get(message["method"])
                said = (
                    {"error": {"code": -32601, "message": "Method not found"}} if found is None else {"result": found}
                )
                self._answer(200, json.dumps({"jsonrpc": "2.0", "id": number, **said}).encode())

        def do_GET(self) -> None:
            if self.path == "/mcp":
                self._answer(405)
            else:
                self.do_POST()

        def _answer(self, status: int, body: bytes = b"") -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *words: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    web.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield web
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
