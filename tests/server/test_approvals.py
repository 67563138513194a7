"""The doors to approvals: what HTTP lists, takes and refuses, who is said to have decided, and what the log tells."""

from __future__ import annotations

import asyncio
import io
import json
import os
import pwd
import re
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from msgspec.structs import replace

from spar import Agent
from spar.config.load import load
from spar.errors import TransientError
from spar.events import ApprovalExpired, ApprovalRequested, ApprovalResolved
from spar.observe.sink import configure
from spar.operations.review import LONGEST_REASON
from spar.records.approvals import Approval, DecidedError, DigestMismatchError, Grant
from spar.review.pending_approvals import Waiting
from spar.server.front import peer
from spar.server.routes.applications import control
from spar.service.app import Service
from spar.types import Action, ActionResult, Call
from tests.waiting import until

NOW = datetime.now(UTC)
HOUR = timedelta(hours=1)


def asked(id: str, **more: Any) -> Approval:
    given: dict[str, Any] = {"call": Call("note", {"text": "hello"}), **more}
    return Approval(id=id, digest=f"d-{id}", asked_at=NOW - timedelta(minutes=2), expires_at=NOW + HOUR, **given)


class Keeps:
    """An act module that keeps approvals by the book, in memory."""

    def __init__(self, *approvals: Approval) -> None:
        self.rows = {approval.id: approval for approval in approvals}
        self.granted: dict[str, Grant] = {}
        self.decisions: list[dict[str, Any]] = []
        self.failure: Exception | None = None
        self.looks = 0
        self.approvals = self

    async def act(self, action: Action) -> ActionResult:
        return ActionResult(action)

    async def list(self, status: str | None = "pending") -> Sequence[Approval]:
        self.looks += 1
        if self.failure is not None:
            raise self.failure
        await asyncio.sleep(0)
        return [row for row in self.rows.values() if status is None or row.status == status]

    async def get(self, id: str) -> Approval:
        found = [row for row in self.rows.values() if row.id.startswith(id)]
        if len(found) != 1:
            raise LookupError(f"{len(found)} approvals begin with {id!r}")
        return found[0]

    async def decide(self, id: str, digest: str, decision: str, *, by: str, reason: str = "",
                     params: Mapping[str, Any] | None = None, call: Mapping[str, Any] | None = None,
                     grant_for: float | None = None, grant_session: bool = True) -> Approval:  # fmt: skip
        row = self.rows[id]
        if row.status != "pending":
            raise DecidedError(f"approval {id} takes no decision any more: it is {row.status}")
        if row.digest != digest:
            raise DigestMismatchError("another call waits")
        if params is not None and set(params) - {"text"}:
            raise ValueError(f"tool 'note' takes no {sorted(set(params) - {'text'})}")
        self.decisions.append({"id": id, "decision": decision, "by": by, "reason": reason, "params": params,
                               "call": call, "grant_for": grant_for, "grant_session": grant_session})  # fmt: skip
        if grant_for is not None:
            self.granted["g-1"] = Grant("g-1", row.call.tool, row.call.params, NOW + timedelta(seconds=grant_for))
        status: Any = "denied" if decision == "deny" else "approved"
        self.rows[id] = replace(row, status=status, decided_by=by, reason=reason, decided_at=NOW)
        return self.rows[id]

    async def grants(self) -> Sequence[Grant]:
        return list(self.granted.values())

    async def revoke(self, id: str) -> Grant:
        if id not in self.granted:
            raise LookupError(f"no grant {id!r}")
        return self.granted.pop(id)


@pytest.fixture
def keeps() -> Keeps:
    return Keeps(
        asked("aa11"), asked("aa22", call=Call("note", {"text": "\u202e\ud800"}), trust="untrusted"),
        asked("bb", status="denied"), asked("cc", status="expired"), asked("dd", status="used"),
        asked("ee", status="void"),
    )  # fmt: skip


@pytest.fixture
async def api(keeps: Keeps) -> AsyncIterator[httpx.AsyncClient]:
    async with serving(Agent(act=keeps, loop_interval="off")) as client:
        yield client


def client_of(service: Service) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(control(service), client=("alice", 4711))  # raises what the server would log
    return httpx.AsyncClient(transport=transport, base_url="http://spar")


class serving:
    """A client of the control API of an agent that runs; whoever asks is called alice."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent

    async def __aenter__(self) -> httpx.AsyncClient:
        await self.agent.start()
        self.service = Service(load(None, environ={}), self.agent)
        self.client = client_of(self.service)
        return self.client

    async def __aexit__(self, *exc: object) -> None:
        await self.client.aclose()
        await self.agent.stop()


# -- looking


@pytest.mark.parametrize(
    ("query", "ids"),
    [("", ["aa11", "aa22"]), ("?status=pending", ["aa11", "aa22"]), ("?status=denied", ["bb"]),
     ("?status=expired", ["cc"]), ("?status=used", ["dd"]), ("?status=void", ["ee"]), ("?status=approved", []),
     ("?status=all", ["aa11", "aa22", "bb", "cc", "dd", "ee"])],
)  # fmt: skip
async def test_approvals_are_listed_by_status(api: httpx.AsyncClient, query: str, ids: list[str]) -> None:
    answer = await api.get(f"/v1/approvals{query}")

    assert answer.status_code == 200
    assert [found["id"] for found in answer.json()] == ids


async def test_one_is_shown_whole_and_as_text_that_is_safe_to_print(api: httpx.AsyncClient) -> None:
    found = (await api.get("/v1/approvals/aa2")).json()

    assert (found["id"], found["digest"], found["trust"]) == ("aa22", "d-aa22", "untrusted")
    assert '"text": "\\u{202e}\\u{d800}"' in found["text"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/v1/approvals?status=odd", 422), ("GET", "/v1/approvals/zz", 404), ("GET", "/v1/approvals/aa", 404),
     ("DELETE", "/v1/approvals/aa11", 405), ("DELETE", "/v1/grants/zz", 404), ("POST", "/v1/grants", 405)],
)  # fmt: skip
async def test_what_is_not_there_is_said_so(api: httpx.AsyncClient, method: str, path: str, status: int) -> None:
    assert (await api.request(method, path)).status_code == status


async def test_an_agent_that_keeps_none_says_so() -> None:
    async with serving(Agent(loop_interval="off", act=lambda action: ActionResult(action))) as api:
        for path in ("/v1/approvals", "/v1/approvals/x", "/v1/grants"):
            answer = await api.get(path)
            assert answer.status_code == 404
            assert answer.headers["content-type"] == "application/problem+json"
            assert "keeps no approvals" in answer.json()["detail"]


async def test_a_store_that_cannot_be_read_now_is_told_apart(keeps: Keeps, api: httpx.AsyncClient) -> None:
    keeps.failure = TransientError("the store is busy")

    assert (await api.get("/v1/approvals")).status_code == 503


# -- deciding


async def test_a_decision_is_handed_on_with_who_took_it(keeps: Keeps, api: httpx.AsyncClient) -> None:
    answer = await api.post("/v1/approvals/aa1", json={"digest": "d-aa11", "decision": "approve", "reason": "fine"})

    assert answer.status_code == 200
    assert (answer.json()["status"], answer.json()["decided_by"]) == ("approved", "alice")
    assert "by alice" in answer.json()["text"]
    assert keeps.decisions == [{"id": "aa11", "decision": "approve", "by": "alice", "reason": "fine", "params": None,
                                "call": None, "grant_for": None, "grant_session": True}]  # fmt: skip


@pytest.mark.parametrize(
    ("body", "handed_on"),
    [
        ({"decision": "deny"}, {"decision": "deny"}),
        ({"decision": "edit", "params": {"text": "calm"}}, {"params": {"text": "calm"}}),
        ({"decision": "edit", "params": {}}, {"params": {}}),
        ({"decision": "replace", "call": {"_tool": "note", "text": "x"}}, {"call": {"_tool": "note", "text": "x"}}),
        ({"decision": "approve", "grant_for": 3600}, {"grant_for": 3600.0, "grant_session": True}),
        ({"decision": "approve", "grant_for": 60, "grant_session": False}, {"grant_for": 60.0, "grant_session": False}),
    ],
)  # fmt: skip
async def test_each_decision_brings_what_goes_with_it(
    keeps: Keeps, api: httpx.AsyncClient, body: dict[str, Any], handed_on: dict[str, Any]
) -> None:
    answer = await api.post("/v1/approvals/aa11", json={"digest": "d-aa11", **body})

    assert answer.status_code == 200
    assert handed_on.items() <= keeps.decisions[0].items()


@pytest.mark.parametrize(
    "body",
    [
        {"decision": "approve"},
        {"digest": "d-aa11"},
        {"digest": "d-aa11", "decision": "allow"},
        {"digest": "d-aa11", "decision": "approve", "approved": True},
        {"digest": "d-aa11", "decision": "approve", "args": {"text": "other"}},
        {"digest": "d-aa11", "decision": "approve", "by": "root"},
        {"digest": "d-aa11", "decision": "approve", "decided_by": "root"},
        {"digest": "d-aa11", "decision": "approve", "params": {"text": "other"}},
        {"digest": "d-aa11", "decision": "approve", "call": {"_tool": "shell"}},
        {"digest": "d-aa11", "decision": "approve", "grant_session": False},
        {"digest": "d-aa11", "decision": "deny", "grant_for": 60},
        {"digest": "d-aa11", "decision": "edit"},
        {"digest": "d-aa11", "decision": "edit", "params": ["text"]},
        {"digest": "d-aa11", "decision": "edit", "params": {"text": "x"}, "call": {"_tool": "note"}},
        {"digest": "d-aa11", "decision": "edit", "params": {"wrong": 1}},
        {"digest": "d-aa11", "decision": "replace"},
        {"digest": "d-aa11", "decision": "approve", "reason": "x" * (LONGEST_REASON + 1)},
        {"digest": 7, "decision": "approve"},
        [],
        "approve",
    ],
)  # fmt: skip
async def test_a_body_that_says_more_less_or_other_is_refused_and_decides_nothing(
    keeps: Keeps, api: httpx.AsyncClient, body: Any
) -> None:
    answer = await api.post("/v1/approvals/aa11", json=body)

    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["detail"]
    assert keeps.decisions == []
    assert keeps.rows["aa11"].status == "pending"


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b'{"digest": "\\ud800"}', b"[" * 5000])
async def test_what_is_no_json_is_refused(keeps: Keeps, api: httpx.AsyncClient, content: bytes) -> None:
    assert (await api.post("/v1/approvals/aa11", content=content)).status_code == 422
    assert keeps.decisions == []


@pytest.mark.parametrize(
    ("id", "digest", "status"),
    [("aa11", "d-aa22", 409), ("aa11", "", 409), ("aa11", "d-aa1", 409), ("bb", "d-bb", 409), ("dd", "d-dd", 409),
     ("cc", "d-cc", 410), ("ee", "d-ee", 410), ("zz", "d-zz", 404), ("aa", "d-aa", 404)],
)  # fmt: skip
async def test_what_cannot_be_decided_is_refused_by_its_own_code(
    keeps: Keeps, api: httpx.AsyncClient, id: str, digest: str, status: int
) -> None:
    answer = await api.post(f"/v1/approvals/{id}", json={"digest": digest, "decision": "approve"})

    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert keeps.decisions == []


async def test_grants_are_listed_and_ended(keeps: Keeps, api: httpx.AsyncClient) -> None:
    await api.post("/v1/approvals/aa11", json={"digest": "d-aa11", "decision": "approve", "grant_for": 60})

    assert [found["id"] for found in (await api.get("/v1/grants")).json()] == ["g-1"]
    assert (await api.delete("/v1/grants/g-1")).json()["tool"] == "note"
    assert (await api.get("/v1/grants")).json() == []


async def test_before_the_agent_was_started_nothing_is_decided(keeps: Keeps) -> None:
    service = Service(load(None, environ={}), Agent(act=keeps))
    async with client_of(service) as api:
        answer = await api.post("/v1/approvals/aa11", json={"digest": "d-aa11", "decision": "approve"})

    assert answer.status_code == 503
    assert keeps.decisions == []


def test_the_kernel_says_who_is_at_the_other_end() -> None:
    one, other = socket.socketpair(socket.AF_UNIX)
    with one, other:
        assert peer(one) == (pwd.getpwuid(os.getuid()).pw_name, os.getpid())


# -- what waits


async def test_the_status_says_how_many_wait_and_for_how_long(keeps: Keeps) -> None:
    agent = Agent(act=keeps, loop_interval="off")
    service = Service(load(None, environ={}), agent)
    assert service.status()["agent"]["approvals"] == {"pending": 0, "oldest_age_seconds": None}

    async with agent:
        await until(lambda: service.waiting.pending(NOW))

        told = service.status()["agent"]["approvals"]
        assert told["pending"] == 2
        assert told["oldest_age_seconds"] == pytest.approx((datetime.now(UTC) - NOW).total_seconds() + 120, abs=10)
        page = service.metrics.render()[0].decode()
        assert re.search(r'spar_approvals_oldest_seconds\{agent="main"\} [1-9]', page)
        assert service.waiting.pending(NOW + 2 * HOUR) == []


async def test_the_log_tells_of_questions_and_answers_and_never_with_which_parameters(keeps: Keeps) -> None:
    agent, out = Agent(act=keeps, loop_interval="off"), io.StringIO()
    logs = configure("info", "json", stream=out)
    try:
        waiting = Waiting(agent.core, agent.setup)
        async with agent:
            await until(lambda: len(waiting.pending(NOW)) == 2)
            new = asked("ff", call=Call("shell", {"argv": ["rm", "secret-file"]}), session="bob")
            keeps.rows["ff"] = new
            agent.events.publish(ApprovalRequested(call=new.call))
            await until(lambda: len(waiting.pending(NOW)) == 3)
            await keeps.decide("ff", "d-ff", "deny", by="alice")
            agent.events.publish(ApprovalResolved(call=new.call, decision="deny"))
            keeps.rows["aa11"] = replace(keeps.rows["aa11"], status="expired")
            agent.events.publish(ApprovalExpired(call=Call("note")))
            del keeps.rows["aa22"]
            await until(lambda: not waiting.pending(NOW))
    finally:
        logs.close()

    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    told = [
        (line["msg"], line["id"], line["tool"], line["session"])
        for line in lines
        if line["msg"].startswith("approval ")
    ]
    assert sorted(told[:2]) == [
        ("approval still waits", "aa11", "note", "main"),
        ("approval still waits", "aa22", "note", "main"),
    ]
    assert told[2] == ("approval requested", "ff", "shell", "bob")
    assert sorted(told[3:]) == [
        ("approval expired", "aa11", "note", "main"),
        ("approval resolved", "ff", "shell", "bob"),
    ]
    assert all(line["level"] == "info" for line in lines if line["msg"].startswith("approval "))
    assert "secret" not in out.getvalue()


async def test_many_events_at_once_share_their_looks(keeps: Keeps) -> None:
    agent = Agent(act=keeps, loop_interval="off")
    Waiting(agent.core, agent.setup)
    async with agent:
        await until(lambda: keeps.looks)
        await agent.events.drain()
        before = keeps.looks

        for _ in range(500):
            agent.events.publish(ApprovalRequested(call=Call("note")))
        await agent.events.drain()

    assert keeps.looks - before <= 3


async def test_a_look_that_fails_is_told_and_the_next_event_looks_again(keeps: Keeps) -> None:
    agent = Agent(act=keeps, loop_interval="off")
    waiting = Waiting(agent.core, agent.setup)
    keeps.failure = OSError("the disk is gone")
    async with agent:
        await until(lambda: keeps.looks)
        await agent.events.drain()
        assert waiting.pending(NOW) == []

        keeps.failure = None
        agent.events.publish(ApprovalRequested(call=Call("note")))

        await until(lambda: len(waiting.pending(NOW)) == 2)
