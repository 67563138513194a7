"""The audit log at the door: each request that changes something leaves one entry, what changes nothing none."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from functools import partial
from itertools import count
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
from spar.server.routes.applications import control, served
from spar.service.app import Service
from spar.types import PHASES, Experience
from tests.doubles import LearningSense

Key = tuple[str, str]
#: Operations other than reads that leave no entry: a message has its origin, and a tried example is not stored.
NOT_AUDITED = {"runs submit", "examples try", "config check", "stops attach"}


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
            journal.append(
                facts.PutAside(session="main", item=Item(id, Perception("x", id=id)), reason="3 attempts failed"),
                "main",
            )
        await journal.safe()
    memory = Memory(url)
    agent = Agent(sense=Sensing(), plan=plan, tools=[deploy], memory=memory, loop_interval="off",
                  attach=["senders"])  # fmt: skip
    async with agent:
        door = Door(agent, memory, Service(load(None, environ={}), agent, reload=lambda: load(None, environ={})))
        yield door
        await door.client.aclose()


async def decide(door: Door, decision: str, **more: Any) -> httpx.Response:
    row = await door.pending()
    return await door.ask("POST", f"/v1/approvals/{row['id']}",
                          {"digest": row["digest"], "decision": decision, **more})  # fmt: skip


async def revoke(door: Door) -> httpx.Response:
    await decide(door, "approve", grant_for=60)
    grant, *_ = (await door.ask("GET", "/v1/grants")).json()
    return await door.ask("DELETE", f"/v1/grants/{grant['id']}")


async def pair(door: Door) -> httpx.Response:
    admission = await door.agent.attachments.get("senders").meet("mail", "bob@example.org", is_verified=True)
    code = re.search(r"[A-Z0-9]{4}-[A-Z0-9]{4}", admission.answer)
    assert code is not None
    return await door.ask("POST", "/v1/senders:pair", {"code": code[0], "person": "bob"})


async def forget_sender(door: Door) -> httpx.Response:
    await door.ask("POST", "/v1/senders:deny", {"sender": "mail:eve@example.org"})
    return await door.ask("POST", "/v1/senders:forget", {"sender": "mail:eve@example.org"})


LINE = '{"situation": "the disk is full", "id": "e1"}'


async def forget_experience(door: Door) -> httpx.Response:
    await door.memory.store(Experience("the disk is full", id="e1"))
    return await door.ask("DELETE", "/v1/memory/experiences/e1")


async def said(door: Door, method: str, verb: str, body: Any = None) -> httpx.Response:
    receipt = await door.agent.submit("hello", session="room")
    await door.agent.wait(receipt.run_id, 20)
    return await door.ask(method, f"/v1/sessions/room{verb}", body)


async def abort(door: Door) -> httpx.Response:
    await door.pending()
    (run, *_) = door.agent.runs.open_in(next(iter(door.agent.sessions.by_key.values())).key) or [None]
    receipt = await door.agent.submit("hello", session="other")
    return await door.ask("POST", f"/v1/runs/{run.id if run is not None else receipt.run_id}:abort")


async def feedback(door: Door) -> httpx.Response:
    receipt = await door.agent.submit("hello")
    await door.agent.wait(receipt.run_id, 20)
    return await door.ask("POST", f"/v1/runs/{receipt.run_id}/feedback", {"good": False, "why": "not what I asked"})


async def step(door: Door, phase: str) -> httpx.Response:
    given = {"plan": [{"content": "x"}], "act": [], "reflect": {"action": {"calls": []}}}
    return await door.ask("POST", f"/v1/agent:step_{phase}", given.get(phase))


async def revoke_token(door: Door) -> httpx.Response:
    await door.ask("POST", "/v1/tokens", {"name": "bot", "scopes": ["admin"]})
    return await door.ask("DELETE", "/v1/tokens/bot")


WALK: Mapping[Key, tuple[tuple[str, Callable[[Door], Coroutine[Any, Any, httpx.Response]]], ...]] = {
    **{("POST", f"/v1/agent:step_{phase}"): (
        ("agent.pause", lambda door: door.ask("POST", "/v1/agent:pause")),
        (f"agent.step_{phase}", partial(step, phase=phase)),
    ) for phase in PHASES},
    ("POST", "/v1/agent:pause"): (("agent.pause", lambda door: door.ask("POST", "/v1/agent:pause")),),
    ("POST", "/v1/agent:resume"): (
        ("agent.pause", lambda door: door.ask("POST", "/v1/agent:pause")),
        ("agent.resume", lambda door: door.ask("POST", "/v1/agent:resume")),
    ),
    ("POST", "/v1/agent:reload"): (("agent.reload", lambda door: door.ask("POST", "/v1/agent:reload")),),
    ("POST", "/v1/agent:stop"): (("agent.stop", lambda door: door.ask("POST", "/v1/agent:stop")),),
    ("POST", "/v1/sensors/{sensor}:restore"): (
        ("sensor.restore", lambda door: door.ask("POST", "/v1/sensors/inbox:restore")),
    ),
    ("POST", "/v1/runs/{run_id:path}:abort"): (("run.abort", abort),),
    ("POST", "/v1/runs/{run_id:path}/feedback"): (("run.feedback", feedback),),
    ("POST", "/v1/approvals/{id}"): (
        ("approval.approve", lambda door: decide(door, "approve", grant_for=60)),
        ("approval.deny", lambda door: decide(door, "deny", reason="not today")),
        ("approval.edit", lambda door: decide(door, "edit", params={})),
    ),
    ("DELETE", "/v1/grants/{id}"): (("grant.revoke", revoke),),
    ("POST", "/v1/calls/in-doubt/{id:path}/resolve"): (
        ("doubt.resolve", lambda door: door.ask(
            "POST", f"/v1/calls/in-doubt/{quote('c1/pay', safe='')}/resolve", {"answer": "failed"})),
    ),
    ("POST", "/v1/dead-letters/{id:path}/drop"): (
        ("dead_letter.drop", lambda door: door.ask("POST", "/v1/dead-letters/d1/drop")),
    ),
    ("POST", "/v1/dead-letters/{id:path}/retry"): (
        ("dead_letter.retry", lambda door: door.ask("POST", "/v1/dead-letters/d2/retry")),
    ),
    ("POST", "/v1/senders:pair"): (("sender.pair", pair),),
    ("POST", "/v1/senders:allow"): (
        ("sender.allow", lambda door: door.ask("POST", "/v1/senders:allow", {"sender": "mail:a@example.org"})),
    ),
    ("POST", "/v1/senders:deny"): (
        ("sender.deny", lambda door: door.ask("POST", "/v1/senders:deny", {"sender": "mail:b@example.org"})),
    ),
    ("POST", "/v1/senders:forget"): (("sender.forget", forget_sender),),
    ("POST", "/v1/sessions/{key:path}:reset"): (("session.reset", lambda door: said(door, "POST", ":reset")),),
    ("POST", "/v1/sessions/{key:path}:fork"): (
        ("session.fork", lambda door: said(door, "POST", ":fork", {"name": "copy"})),
    ),
    ("PATCH", "/v1/sessions/{key:path}"): (
        ("session.change", lambda door: said(door, "PATCH", "", {"title": "Room"})),
    ),
    ("DELETE", "/v1/sessions/{key:path}"): (("session.forget", lambda door: said(door, "DELETE", "")),),
    ("DELETE", "/v1/memory/experiences/{id}"): (("experience.forget", forget_experience),),
    ("POST", "/v1/memory/experiences:forget"): (
        ("experience.forget", lambda door: door.ask("POST", "/v1/memory/experiences:forget", {"session": "room"})),
    ),
    ("POST", "/v1/memory/experiences:import"): (
        ("experience.import", lambda door: door.ask("POST", "/v1/memory/experiences:import", {"lines": LINE})),
    ),
    ("POST", "/v1/tokens"): (
        ("token.create", lambda door: door.ask("POST", "/v1/tokens", {"name": "ci", "scopes": ["read"]})),
    ),
    ("DELETE", "/v1/tokens/{name}"): (("token.revoke", revoke_token),),
    ("POST", "/v1/examples:teach"): (
        ("example.teach", lambda door: door.ask("POST", "/v1/examples:teach", {"text": "hi", "label": "greeting"})),
    ),
    ("POST", "/v1/examples:forget"): (
        ("example.forget", lambda door: door.ask("POST", "/v1/examples:forget", {"id": "e1"})),
    ),
}  # fmt: skip
#: Walked by `tests/recorded`, whose last command lists the entries, by `tests/process/test_breakpoints.py`, and by
#: `tests/cluster/test_services.py`.
ELSEWHERE = {
    ("POST", "/v1/deliveries/{id}:retry"),
    ("POST", "/v1/deliveries/{id}:drop"),
    ("POST", "/v1/incidents/{id}:close"),
    ("POST", "/v1/notifiers/{name}:test"),
    ("POST", "/v1/channels/{name}:test"),
    ("POST", "/v1/breakpoints"),
    ("DELETE", "/v1/breakpoints/{name}"),
    ("POST", "/v1/stops/{stop}:change"),
    ("POST", "/v1/stops/{stop}:go"),
    ("POST", "/v1/stops:detach"),
    ("POST", "/v1/nodes/{node}:drain"),
}


def test_every_route_that_changes_something_has_a_name_and_is_walked() -> None:
    changing = [operation for operation in served() if operation.method != "GET"]
    assert {operation.name for operation in changing if operation.audit is None} == NOT_AUDITED
    audited = {(operation.method, operation.path) for operation in changing if operation.audit is not None}
    assert set(WALK) | ELSEWHERE == audited


async def repeat(door: Door, action: str, answer: httpx.Response) -> None:
    """Send a request with its key again; what it answered before comes again, but no token."""
    again = await door.client.send(answer.request)
    if action == "token.create":
        assert (again.status_code, "answered 201; its answer is not kept" in again.text) == (409, True)
        assert answer.json()["token"] not in str(await door.memory.records("request"))
    elif action != "agent.stop":  # the service is stopping meanwhile
        assert (again.status_code, again.json()) == (answer.status_code, answer.json()), action


async def test_each_request_that_changes_something_leaves_one_entry_also_if_it_comes_twice(door: Door) -> None:
    keys, before = count(), 0

    async def give_a_key(request: httpx.Request) -> None:
        request.headers.setdefault("idempotency-key", f"k{next(keys)}")

    door.client.event_hooks = {"request": [give_a_key]}
    for key in sorted(WALK, key=lambda key: key == ("POST", "/v1/agent:stop")):  # after which nothing is answered
        for action, ask in WALK[key]:
            answer = await ask(door)
            assert answer.status_code < 300, (action, answer.text)
            if action != "doubt.resolve":  # which recognizes a repetition itself, and leaves an entry that says so
                await repeat(door, action, answer)
        every = await door.entries()
        left, before = [entry.action for entry in every[: len(every) - before]], len(every)
        walked = {action for action, _ in WALK[key]}
        assert walked <= set(left) <= walked | {"approval.approve", "sender.deny", "token.create"}
        assert len(left) == len(set(left)), left
        assert {(entry.actor, entry.origin, entry.agent) for entry in every} == {("alice", "http", "main")}
        await door.agent.resume() if door.agent.state == "paused" else None
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
