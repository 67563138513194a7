"""The audit log at the door: what comes twice leaves one entry, what changes nothing none.

That each operation that changes something leaves one is in tests/recorded, whose last commands list the entries.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from memory import Memory
from spar import Action, Agent, Call, Perception, facts, tool
from spar.agent.lifecycle import Lifecycle
from spar.config.load import load
from spar.records.audit import AuditEntry
from spar.records.journal import Doubt, Item
from spar.server.routes.applications import control
from spar.service.app import Service
from tests.doubles import LearningSense
from tests.journal.left import tell


@tool(effect="once", approval="ask")
async def deploy() -> str:
    """Deploy."""
    return "done"


class Sensing(LearningSense):
    """Sense module whose sensor can be tried again."""

    def restore(self, sensor: str) -> None:
        if sensor != "inbox":
            raise LookupError(f"no sensor {sensor!r}")


async def plan(perceptions: list[Perception]) -> Action | None:
    if not perceptions:
        return None
    return Action(calls=[Call("deploy")]) if "deploy" in perceptions[0].text else Action(output="fine")


class Door:
    """An agent with its control API, asked by alice."""

    def __init__(self, agent: Agent, memory: Memory, service: Service) -> None:
        self.agent, self.memory, self.application = agent, memory, control(service)
        transport = httpx.ASGITransport(self.application, client=("alice", 4711))
        self.client = httpx.AsyncClient(transport=transport, base_url="http://spar")

    async def ask(self, method: str, path: str, body: Any = None) -> httpx.Response:
        return await self.client.request(method, path, json=body)

    async def entries(self, **chosen: Any) -> list[AuditEntry]:
        return await self.memory.audit.entries(1_000, **chosen)

    async def pending(self) -> dict[str, Any]:
        """A call that waits for approval."""
        session = f"s{len(await self.entries())}"
        await self.agent.submit("deploy", session=session)
        async with asyncio.timeout(20):
            while True:
                for row in (await self.ask("GET", "/v1/approvals")).json():
                    if row["session"] == session:
                        return dict(row)
                await asyncio.sleep(0.001)


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[Door]:
    url = f"sqlite:///{tmp_path / 'memory.db'}"
    async with Memory(url) as memory:
        journal = memory.journal
        journal.append(facts.CallDoubted(session="main", doubt=Doubt("c1/pay", Call("pay", id="pay"), "c1")), "main")
        for id in ("d1", "d2"):
            tell(journal, facts.PutAside, item=Item(id, Perception("x", id=id)), reason="3 attempts failed")
        await journal.safe()
    memory = Memory(url)
    agent = Agent(sense=Sensing(), plan=plan, tools=[deploy], memory=memory, loop_interval="off",
                  attach=["senders"])  # fmt: skip
    async with agent:
        door = Door(agent, memory, Service(load(None, environ={}), agent, reload=lambda: load(None, environ={})))
        yield door
        await door.client.aclose()


async def test_a_request_that_comes_twice_under_its_key_leaves_one_entry_and_a_token_is_told_once(door: Door) -> None:
    asked: dict[str, tuple[str, Any]] = {
        "/v1/agent:pause": ("agent.pause", None),
        "/v1/senders:deny": ("sender.deny", {"sender": "mail:b@example.org"}),
        "/v1/dead-letters/d1/drop": ("dead_letter.drop", None),
        "/v1/tokens": ("token.create", {"name": "ci", "scopes": ["read"]}),
    }
    for path, (action, body) in asked.items():
        first, again = [
            await door.client.post(path, json=body, headers={"idempotency-key": action}) for _ in range(2)
        ]  # fmt: skip
        assert first.status_code < 300, (action, first.text)
        if action == "token.create":
            assert (again.status_code, "answered 201; its answer is not kept" in again.text) == (409, True)
            assert first.json()["token"] not in str(await door.memory.records("request"))
        else:
            assert (again.status_code, again.json()) == (first.status_code, first.json()), action
    entries = await door.entries()
    assert [entry.action for entry in entries][::-1] == [action for action, _ in asked.values()]
    assert {(entry.actor, entry.origin, entry.agent) for entry in entries} == {("alice", "http", "main")}
    assert await door.memory.audit.verify() == ""


async def test_what_is_refused_or_only_looked_at_leaves_none(door: Door) -> None:
    asked = [
        await door.ask("GET", "/v1/status"), await door.ask("GET", "/v1/audit"),
        await door.ask("POST", "/v1/runs", {"message": "hello"}),
        await door.ask("POST", "/v1/agent:fly"), await door.ask("POST", "/v1/dead-letters/none/drop"),
        await door.ask("POST", "/v1/approvals/none", {"digest": "x", "decision": "deny"}),
        await door.ask("POST", "/v1/senders:deny", {"sender": "nonsense"}),
        await door.ask("PATCH", "/v1/sessions/room", {"defaults": {"speed": 3}}),
        await door.ask("PATCH", "/v1/sessions/nobody", {}),
    ]  # fmt: skip
    assert [answer.status_code < 300 for answer in asked] == [True, True, True, *[False] * 6]
    assert (asked[-1].status_code, (await door.ask("GET", "/v1/sessions/nobody")).status_code) == (404, 404)
    assert await door.entries() == []


async def test_what_took_too_long_or_failed_after_it_had_begun_leaves_one_that_says_so(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def late(*_: Any, **__: Any) -> None:
        raise TimeoutError("agent 'main' did not answer within 10 s")

    monkeypatch.setattr(Lifecycle, "pause", late)
    answer = await door.ask("POST", "/v1/agent:pause")

    assert answer.status_code == 504
    (entry,) = await door.entries()
    assert (entry.action, entry.detail["answered"]) == ("agent.pause", 504)


async def test_a_second_answer_is_refused_and_leaves_none(door: Door) -> None:
    row = await door.pending()
    body = {"digest": row["digest"], "decision": "deny"}
    answers = await asyncio.gather(*(door.ask("POST", f"/v1/approvals/{row['id']}", body) for _ in range(3)))
    assert sorted(answer.status_code for answer in answers) == [200, 409, 409]
    (entry,) = await door.entries()
    assert (entry.action, entry.subject, entry.detail["tool"]) == ("approval.deny", row["id"], "deploy")
    assert entry.before != entry.after != ""


async def test_a_pause_and_its_end_are_written_with_the_row_that_keeps_them(door: Door) -> None:
    await door.ask("POST", "/v1/agent:pause")
    await door.ask("POST", "/v1/agent:resume")

    resumed, paused = await door.entries()

    assert (paused.action, resumed.action) == ("agent.pause", "agent.resume")
    assert paused.after == resumed.before != ""


async def test_a_step_that_a_stop_cuts_off_has_its_entry(tmp_path: Path) -> None:
    effects, has_begun = list[str](), asyncio.Event()

    @tool(effect="once")
    async def write() -> str:
        """Write, then hang."""
        effects.append("did")
        has_begun.set()
        await asyncio.Event().wait()
        return ""

    url = f"sqlite:///{tmp_path / 'memory.db'}"
    agent = Agent(tools=[write], memory=(memory := Memory(url)), loop_interval="off")
    async with agent:
        door = Door(agent, memory, Service(load(None, environ={}), agent))
        await agent.pause()
        step = asyncio.create_task(door.ask("POST", "/v1/agent:step_act", [{"_tool": "write"}]))
        await has_begun.wait()
        await agent.stop(0.0)
        assert (await step).status_code >= 500
        await door.client.aclose()

    async with Memory(url) as memory:
        entries = await memory.audit.entries(10, action="agent.step_act")
    assert (effects, [entry.actor for entry in entries]) == (["did"], ["alice"])


async def test_data_and_numbers_that_cannot_be_read_are_the_mistake_of_the_caller(door: Door) -> None:
    for body in ({"lines": "{}"}, {"lines": "no JSON"}, {"lines": "[]"}):
        answer = await door.ask("POST", "/v1/memory/experiences:import", body)
        assert (answer.status_code, "nothing was imported" in answer.text) == (422, True), answer.text
    for number in (10**30, -(10**30), 2**63):
        assert (await door.ask("GET", f"/v1/audit?before={number}")).status_code == 422
    assert await door.entries() == []


async def test_a_session_is_shown_whatever_its_key_ends_with(door: Door) -> None:
    for key in ("a/prompt", "prompt", "a:prompt", ":prompt", "a%2Fb", "a/b:reset", "ä.ö/…", "a/./b"):
        await door.agent.submit("hello", session=key)
        path = f"/v1/sessions/{quote(key, safe='')}"

        assert (await door.ask("GET", path)).json()["key"] == key
        assert (await door.ask("PATCH", path, {"title": "t"})).json()["key"] == key
        assert (await door.ask("GET", f"{path}:prompt")).status_code == 409  # a planner without a model has none
        assert (await door.ask("POST", f"{path}:reset")).json()["key"] == key
