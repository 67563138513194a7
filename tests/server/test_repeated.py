"""A change under an idempotency key is made once, however often its request comes, also after a restart."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from memory import Memory
from spar import Agent
from spar.agent.lifecycle import Lifecycle
from spar.config.load import load
from spar.operations.agent import step_input
from spar.server.api.repeated import KEPT_FOR, KIND, LONGEST_KEY
from spar.server.routes.applications import control
from spar.service.app import Service
from spar.types import ActionResult, Call, Perception, utcnow

DENIED = {"sender": "mail:a@example.org"}


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[Client]:
    memory = Memory(f"sqlite:///{folder / 'memory.db'}")
    async with Agent(memory=memory, loop_interval="off", attach=["senders"]) as agent:
        yield Client(agent, memory)


class Client:
    """A client of one service, which may be asked as several users."""

    def __init__(self, agent: Agent, memory: Memory) -> None:
        self.agent, self.memory, self.application = agent, memory, control(Service(load(None, environ={}), agent))

    async def post(self, path: str, body: Any, key: str, user: str = "alice") -> httpx.Response:
        transport = httpx.ASGITransport(self.application, client=(user, 1), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://spar") as client:
            return await client.post(path, json=body, headers={"idempotency-key": key})

    async def entries(self) -> int:
        return len(await self.memory.audit.entries(100))


async def test_the_next_process_knows_the_answers_of_the_one_before(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        first = await client.post("/v1/senders:deny", DENIED, "k")
    async with served(tmp_path) as client:
        again = await client.post("/v1/senders:deny", DENIED, "k")
        assert (again.status_code, again.json()) == (200, first.json())
        assert await client.entries() == 1


async def test_a_key_belongs_to_its_caller_and_to_one_request(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        await client.post("/v1/senders:deny", DENIED, "k")
        for path, body in (("/v1/senders:deny", {"sender": "mail:b@example.org"}), ("/v1/senders:allow", DENIED)):
            other = await client.post(path, body, "k")
            assert (other.status_code, "belongs to another request" in other.text) == (409, True)
        assert (await client.post("/v1/senders:allow", DENIED, "k", "bob")).status_code == 200
        too_long = await client.post("/v1/senders:deny", DENIED, "k" * (LONGEST_KEY + 1))
        assert (too_long.status_code, "at most 256 characters, found 257" in too_long.text) == (422, True)


async def test_what_was_refused_may_be_asked_again_under_its_key(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        for _ in range(2):
            assert (await client.post("/v1/senders:deny", {"sender": "nonsense"}, "k")).status_code == 422
        assert (await client.post("/v1/senders:deny", DENIED, "k")).status_code == 200


async def test_two_at_once_are_one(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        answers = await asyncio.gather(*(client.post("/v1/senders:deny", DENIED, "k") for _ in range(5)))
        assert sorted(answer.status_code for answer in answers) == [200, 409, 409, 409, 409]
        assert {answer.headers.get("retry-after") for answer in answers} == {None, "1"}
        assert await client.entries() == 1


async def test_a_request_that_was_cut_off_is_not_carried_out_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def late(*_: Any) -> None:
        raise TimeoutError("no answer")

    async with served(tmp_path) as client:
        monkeypatch.setattr(Lifecycle, "pause", late)
        assert (await client.post("/v1/agent:pause", None, "k")).status_code == 504
        monkeypatch.undo()
    async with served(tmp_path) as client:
        again = await client.post("/v1/agent:pause", None, "k")
        assert (again.status_code, "was cut off, and nobody knows" in again.text) == (409, True)
        assert client.agent.state == "running"


async def test_a_message_has_the_key_of_its_head_or_its_body(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        first = await client.post("/v1/runs", {"message": "hello"}, "k")
        again = await client.post("/v1/runs", {"message": "hello"}, "k")
        other = await client.post("/v1/runs", {"message": "hello", "idempotency_key": "l"}, "k")
        assert first.json() == again.json() != other.json()
        assert await client.memory.records(KIND) == []


async def test_a_key_is_forgotten_after_a_day(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        await client.post("/v1/senders:deny", DENIED, "k")
        (record,) = await client.memory.records(KIND)
        for id, age in (("alice\nk", KEPT_FOR), ("alice\nl", KEPT_FOR), ("alice\nm", KEPT_FOR / 2)):
            await client.memory.keep(KIND, id, {**record.value, "at": (utcnow() - age).isoformat()})
    async with served(tmp_path) as client:
        assert (await client.post("/v1/senders:allow", DENIED, "k")).status_code == 200
        assert [record.id for record in await client.memory.records(KIND)] == ["alice\nk", "alice\nm"]


# -- what a step is given as JSON: actions, lists of calls, calls in their fields and on the wire


WIRE = {"_tool": "note", "text": "hello", "_id": "c1", "_outputPath": "†state.note", "_detach": True}
FIELDS = {
    "tool": "note",
    "params": {"text": "hello"},
    "id": "c1",
    "output_path": "†state.note",
    "meta": {"_detach": True},
}
CALL = Call("note", {"text": "hello"}, id="c1", output_path="†state.note", meta={"_detach": True})


@pytest.mark.parametrize(
    "given",
    [WIRE, [WIRE], [FIELDS], {"calls": [WIRE]}, {"calls": [FIELDS]}],
    ids=["a call", "a list", "a list of fields", "an action of the wire", "an action"],
)
def test_an_action_may_be_given_in_every_form_of_the_docs(given: Any) -> None:
    assert step_input("act", given).calls == (CALL,)


def test_an_action_keeps_what_else_it_says() -> None:
    action = step_input("act", {"calls": [WIRE, FIELDS], "reason": "because", "trust": "untrusted"})
    assert (len(action.calls), action.reason, action.trust) == (2, "because", "untrusted")
    assert step_input("act", {"output": 42}).output == 42
    assert step_input("act", []).calls == ()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([{"_tool": 5}], r"calls\[0\]: 'tool' of a call must be text, found 5"),
        ([WIRE, 7], r"calls\[1\]: Expected `object`, got `int`"),
        ({"calls": [{"params": {}}]}, r"calls\[0\]: Object missing required field `tool`"),
        ("note", "Expected `object`, got `str`"),
        ({"calls": 5}, "the given value does not fit"),
    ],
)
def test_what_is_no_action_is_refused_with_its_place(given: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        step_input("act", given)


def test_the_other_phases_take_what_the_step_before_brought() -> None:
    (perception,) = step_input("plan", [{"content": "disk full", "kind": "message"}])
    assert isinstance(perception, Perception)
    assert isinstance(step_input("reflect", {"action": {"calls": []}}), ActionResult)
    with pytest.raises(ValueError, match="does not fit"):
        step_input("plan", {"no": "list"})
