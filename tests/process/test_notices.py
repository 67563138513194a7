"""Notices from outside: a real service tells a real web hook and a real mail server, also after it was killed."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.process.conftest import Service, Spar
from tests.servers.web import http_served

pytestmark = pytest.mark.process

SENSOR = """
import pathlib

class Shaky:
    async def poll(self):
        if pathlib.Path("broken").exists():
            raise OSError("the line is cut")
        return []
"""
CONFIG = """
[agent]
loop_interval = 0.1

[[sensors]]
use = "own:Shaky"
name = "shaky"
every = 0.1
max_failures = 1
probe_after = 0.3

[[notifiers]]
use = "webhook"
name = "ops"
kinds = ["sensor"]
options = {{ url = "{url}", secret = {{ env = "HOOK_SECRET" }} }}

[log]
format = "json"
"""


class Hook:
    """A web hook that keeps what it is told; while `answers` is not 200 it refuses it."""

    def __init__(self) -> None:
        self.answers, self.url = 200, ""
        self.told: list[dict[str, Any]] = []
        self.refused: list[str] = []

    def answer(self, path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        key = headers["idempotency-key"]
        if self.answers == 200:
            wanted = hmac.new(b"hush-hush-hush", body, hashlib.sha256).hexdigest()
            is_signed = headers["x-spar-signature-256"] == f"sha256={wanted}"
            self.told.append({**json.loads(body), "key": key, "is_signed": is_signed})
        else:
            self.refused.append(key)
        return self.answers, b""


@pytest.fixture
def hook() -> Iterator[Hook]:
    hook = Hook()
    with http_served(hook.answer) as url:
        hook.url = f"{url}/alerts"
        yield hook


@pytest.fixture
def begin(spar: Spar, start: Callable[..., Service], hook: Hook) -> Callable[[], Service]:
    (spar.folder / "own.py").write_text(SENSOR)
    spar.write(CONFIG.format(url=hook.url))

    def begun() -> Service:
        return start(environ={"HOOK_SECRET": "hush-hush-hush"}).ready()

    return begun


def test_a_test_is_sent_and_what_is_wrong_is_said(spar: Spar, begin: Callable[[], Service], hook: Hook) -> None:
    service = begin()
    assert spar("notifiers", "test", "ops").out == "ops: sent\n"
    assert hook.told[0]["state"] == "test"
    assert spar("channels", "test", "ops").out == "ops: sent\n"
    hook.answers = 500
    refused = spar("notifiers", "test")
    again = spar("channels", "test", "ops")
    assert (again.code, "500" in again.err) == (1, True), again
    assert (refused.code, "500" in refused.err) == (1, True), refused
    assert "hush-hush-hush" not in service.err
    unknown = spar("notifiers", "test", "nobody")
    assert (unknown.code, "known: ops" in unknown.err) == (1, True), unknown
    assert [each["action"] for each in service.api("/v1/audit?action=notifier").json()] == ["notifier.test"] * 2
    assert [each["subject"] for each in service.api("/v1/audit?action=channel").json()] == ["ops"] * 2
    assert service.stop() == 0
