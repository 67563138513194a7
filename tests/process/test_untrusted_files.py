"""A stranger's text that lies in a file of the workspace gives a running service no orders, however it is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import httpx
import pytest

from tests.process.conftest import PATIENCE

pytestmark = pytest.mark.process

CONFIG = """
[[sensors]]
use = "webhook"
name = "hook"
options = {{ unauthenticated = true }}

[[tools]]
use = "files"

[[tools]]
use = "shell"
options = {{ sandbox = 0 }}

[[tools]]
use = "http"
options = {{ allow = ["127.0.0.1:{port}"] }}

[[rules]]
name = "keep what was posted"
when = {{ source = "hook" }}

[[rules.calls]]
tool = "files"
params = {{ op = "write", path = "x.txt", content = "{{content}}" }}

[[rules]]
name = "do what a file says"
when = {{ kind = "message", pattern = '^viashell (?P<file>\\S+)$' }}

[[rules.calls]]
tool = "shell"
params = {{ argv = ["cat", "{{slots.file}}"] }}
output = "†state.told"

[[rules.calls]]
tool = "http"
params = {{ url = "†state.told.stdout" }}
"""


@pytest.fixture
def asked() -> Iterator[tuple[int, list[str]]]:
    """A server, and the paths that it was asked for."""
    paths: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *arguments: Any) -> None:
            return None

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1], paths
    server.shutdown()
    server.server_close()


def test_a_request_that_a_posted_text_asks_for_waits_also_if_a_program_has_read_it(
    spar: Any, start: Callable[..., Any], asked: tuple[int, list[str]]
) -> None:
    port, paths = asked
    spar.write(CONFIG.format(port=port))
    service = start().ready()
    text, plain = f"http://127.0.0.1:{port}/stolen", {"content-type": "text/plain"}
    posted = httpx.post(
        f"{service.address}/hooks/hook", content=text, headers=plain, timeout=PATIENCE, trust_env=False, verify=False
    )
    assert posted.status_code == 202, posted.text
    spar.until(lambda: (spar.workspace / "x.txt").read_text(), "the file")

    service.api("/v1/runs", "POST", json={"message": "viashell x.txt"})
    (row,) = spar.until(lambda: service.api("/v1/approvals").json(), "the question")
    assert (row["call"]["tool"], row["trust"], paths) == ("http", "untrusted", [])
    service.api(f"/v1/approvals/{row['id']}", "POST", json={"digest": row["digest"], "decision": "approve"})

    spar.until(lambda: paths == ["/stolen"], "the request")
