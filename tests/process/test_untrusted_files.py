"""A stranger's text that lies in a file of the workspace gives a running service no orders, however it is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from tests.process.conftest import PATIENCE
from tests.servers.web import http_served

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

    def answer(path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        paths.append(path)
        return 200, b""

    with http_served(answer) as url:
        yield int(url.rpartition(":")[2]), paths


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
