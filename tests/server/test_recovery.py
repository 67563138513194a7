"""The doors to what recovery left: what HTTP lists, takes and refuses, and what a person is shown."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from memory import Memory
from spar import Action, Agent, Call, Perception, facts, tool
from spar.config.load import load
from spar.operations.review import LONGEST_NAME, LONGEST_REASON
from spar.records.journal import DeadLetter, Doubt, Item
from spar.review.left_work import doubt_cells, doubt_full, letter_cells, letter_full
from spar.server.routes.applications import control
from spar.service.app import Service
from tests.journal.left import tell
from tests.waiting import until

NOW = datetime.now(UTC)
NASTY = "\u202e\u200b\x1b[2K\ud800"
IDS = ["c1/pay", "c1/..", "c2/a b?c#d%2F", "c3/resolve", "c4/one/two", "c5/\u202e"]


def doubt(id: str, **more: Any) -> Doubt:
    cycle, _, call = id.partition("/")
    given: dict[str, Any] = {"call": Call("pay", {"amount": 5}, id=call), "why": "cut off", **more}
    return Doubt(id, cycle_id=cycle, at=NOW - timedelta(minutes=2), **given)


def item(id: str, content: Any = "poison", **more: Any) -> Item:
    return Item(id, Perception(content, id=id, kind="message"), attempts=3, **more)


paid: list[int] = []


@tool(effect="once")
async def pay(amount: int) -> int:
    paid.append(amount)
    return amount


class Door:
    """An agent that runs on what an earlier process left, and its control API, asked by alice."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.seen: list[Perception] = []

    async def plan(self, perceptions: list[Perception]) -> Action | None:
        self.seen.extend(perceptions)
        return Action(output="fine") if perceptions else None

    async def left(self, tell: Callable[[Any], Any]) -> Door:
        async with Memory(f"sqlite:///{self._path / 'memory.db'}") as memory:
            tell(memory.journal)
            await memory.journal.safe()
        return self

    async def __aenter__(self) -> Door:
        paid.clear()
        memory = Memory(f"sqlite:///{self._path / 'memory.db'}")
        self.agent = Agent(plan=self.plan, tools=[pay], memory=memory, loop_interval="off")
        await self.agent.start()
        service = Service(load(None, environ={}), self.agent)
        transport = httpx.ASGITransport(control(service), client=("alice", 4711))  # raises what a server would log
        self._client = httpx.AsyncClient(transport=transport, base_url="http://spar")
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._client.aclose()
        await self.agent.stop()

    async def get(self, path: str) -> httpx.Response:
        return await self._client.get(path)

    async def post(self, path: str, body: Any = None, **headers: str) -> httpx.Response:
        if isinstance(body, bytes):
            return await self._client.post(path, content=body, headers=headers)
        return await self._client.post(path, json=body, headers=headers)

    async def answer(self, id: str, answer: str, **more: Any) -> httpx.Response:
        return await self.post(f"/v1/calls/in-doubt/{quote(id, safe='')}/resolve", {"answer": answer, **more})


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[Door]:
    def write(journal: Any) -> None:
        for number, id in enumerate(IDS):
            journal.append(facts.CallDoubted(session="main", doubt=doubt(id, session=f"s{number}")), "main")
        journal.append(facts.PutAside(session="main", item=item("d1", NASTY), reason="3 attempts failed"), "main")
        tell(journal, facts.PutAside, item=item("d2/x", kind="run"), reason="3 attempts failed")

    async with await Door(tmp_path).left(write) as door:
        yield door


# -- calls in doubt


async def test_calls_in_doubt_are_listed_until_they_are_answered(door: Door) -> None:
    assert [each["id"] for each in (await door.get("/v1/calls/in-doubt")).json()] == sorted(IDS)

    assert (await door.answer("c1/pay", "failed")).status_code == 200

    left = [each["id"] for each in (await door.get("/v1/calls/in-doubt")).json()]
    every = [each["id"] for each in (await door.get("/v1/calls/in-doubt?status=all")).json()]
    assert sorted([*left, "c1/pay"]) == sorted(every) == sorted(IDS)
    assert (await door.get("/v1/calls/in-doubt?status=odd")).status_code == 422


async def test_every_id_can_be_addressed_however_odd_it_is(door: Door) -> None:
    for id in IDS:
        shown = await door.get(f"/v1/calls/in-doubt/{quote(id, safe='')}")
        answered = await door.answer(id, "failed")

        assert (shown.status_code, shown.json()["id"]) == (200, id)
        assert (answered.status_code, answered.json()["answer"]) == (200, "failed")


async def test_a_plain_slash_and_a_unique_beginning_do_as_well(door: Door) -> None:
    assert (await door.get("/v1/calls/in-doubt/c1/pay")).json()["id"] == "c1/pay"
    assert (await door.get("/v1/calls/in-doubt/c3")).json()["id"] == "c3/resolve"
    assert (await door.post("/v1/calls/in-doubt/c4/one/two/resolve", {"answer": "failed"})).status_code == 200
    several = await door.get("/v1/calls/in-doubt/c1")
    assert several.status_code == 404
    assert several.json()["detail"] == "several call in doubt 'c1'; they are: c1/.., c1/pay"


async def test_an_answer_is_kept_with_who_gave_it_and_the_plan_is_told(door: Door) -> None:
    answer = await door.answer("c1/pay", "done", output={"receipt": 7}, by="the bank", reason="on the statement")

    assert answer.status_code == 200
    told = answer.json()
    assert (told["answer"], told["answered_by"], told["output"]) == ("done", "alice for the bank", {"receipt": 7})
    assert "by alice for the bank" in told["text"]
    assert "on the statement" in told["text"]
    assert '"receipt": 7' in told["text"]
    await until(lambda: door.seen)
    assert (door.seen[0].kind, door.seen[0].attributes["output"]) == ("call.done", {"receipt": 7})
    assert paid == []


async def test_what_is_to_be_made_again_is_made_once(door: Door) -> None:
    answers = await asyncio.gather(*(door.answer("c1/pay", "again") for _ in range(20)))

    assert sorted(answer.status_code for answer in answers) == [200, *[409] * 19]
    await until(lambda: paid)
    await door.agent.stop()
    assert paid == [5]


async def test_a_call_is_shown_with_the_values_that_it_was_started_with(tmp_path: Path) -> None:
    def write(journal: Any) -> None:
        tell(journal, facts.AttemptStarted, cycle="c1", call="pay", attempt=1, effect="once", values={"amount": 7})
        tell(journal, facts.CallDoubted, doubt=doubt("c1/pay", call=Call("pay", {"amount": "†state.a"}, id="pay")))

    async with await Door(tmp_path).left(write) as door:
        found = (await door.get("/v1/calls/in-doubt/c1%2Fpay")).json()

    assert found["call"]["params"] == {"amount": 7}
    assert '"amount": 7' in found["text"]


async def test_who_comes_too_late_is_told_who_was_first_and_when(door: Door) -> None:
    await door.answer("c1/pay", "failed")

    late = await door.answer("c1/pay", "done")

    assert late.status_code == 409
    assert late.headers["content-type"] == "application/problem+json"
    assert "c1/pay is not in doubt any more: it was answered 'failed' by alice at 20" in late.json()["detail"]
    assert (await door.get("/v1/calls/in-doubt/c1%2Fpay")).json()["answer"] == "failed"


async def test_the_same_answer_sent_again_under_a_key_is_answered_as_the_first_time(door: Door) -> None:
    path, body = "/v1/calls/in-doubt/c1%2Fpay/resolve", {"answer": "done", "output": 1}
    key = {"Idempotency-Key": "k"}
    first = await door.post(path, body, **key)

    again = await door.post(path, body, **key)
    other = await door.post(path, {**body, "output": 2}, **key)

    assert (first.status_code, again.status_code, other.status_code) == (200, 200, 409)
    assert again.json()["answered_at"] == first.json()["answered_at"]


async def test_a_body_that_says_more_less_or_other_is_refused_and_answers_nothing(door: Door) -> None:
    assert LONGEST_NAME == 200
    bodies: list[Any] = [
        {}, {"answer": "yes"}, {"answer": "done", "who": "root"}, {"answer": "done", "answered_by": "root"},
        {"answer": "done", "call": {"_tool": "pay"}}, {"answer": "failed", "output": 1},
        {"answer": "again", "output": None}, {"answer": "done", "by": 7}, {"answer": "done", "by": "x" * 201},
        {"answer": "done", "reason": "x" * (LONGEST_REASON + 1)}, [], "done", b"", b"{", b"\xff", b"[" * 5000,
    ]  # fmt: skip
    for body in bodies:
        refused = await door.post("/v1/calls/in-doubt/c1%2Fpay/resolve", body)

        assert refused.status_code == 422, body
        assert refused.json()["detail"]
    assert door.agent.recovery.snapshot()["in_doubt"] == len(IDS)


async def test_what_is_not_there_is_refused_with_what_is(door: Door) -> None:
    for method, path, known in (
        ("GET", "/v1/calls/in-doubt/zz", "no call in doubt 'zz'; known: c1/.., c1/pay"),
        ("GET", "/v1/calls/in-doubt/", "no call in doubt ''; known: "),
        ("POST", "/v1/calls/in-doubt/zz/resolve", "no call in doubt 'zz'; known: "),
        ("GET", "/v1/dead-letters/zz", "no dead letter 'zz'; known: d1, d2/x"),
        ("POST", "/v1/dead-letters/zz/retry", "no dead letter 'zz'; known: d1, d2/x"),
    ):
        body = {"answer": "done"} if "resolve" in path else None
        answer = await (door.get(path) if method == "GET" else door.post(path, body))

        assert answer.status_code == 404
        assert known in answer.json()["detail"]


async def test_an_unknown_verb_is_refused_with_the_known_requests(door: Door) -> None:
    answer = await door.post("/v1/dead-letters/d1/bury")

    assert answer.status_code == 405
    assert "POST /v1/dead-letters/{id}/retry, POST /v1/dead-letters/{id}/drop" in answer.json()["detail"]


async def test_an_agent_without_a_journal_says_so() -> None:
    agent = Agent(loop_interval="off")
    transport = httpx.ASGITransport(control(Service(load(None, environ={}), agent)), client=("alice", 1))
    async with agent, httpx.AsyncClient(transport=transport, base_url="http://spar") as api:
        for path in ("/v1/calls/in-doubt", "/v1/calls/in-doubt/c", "/v1/dead-letters", "/v1/dead-letters/d"):
            answer = await api.get(path)
            assert answer.status_code == 404
            assert "keeps no journal now" in answer.json()["detail"]


# -- dead letters


async def test_dead_letters_are_listed_shown_tried_again_and_dropped(door: Door) -> None:
    assert [each["id"] for each in (await door.get("/v1/dead-letters")).json()] == ["d1", "d2/x"]
    assert (await door.get("/v1/dead-letters/d2%2Fx")).json()["id"] == "d2/x"

    tried = await door.post("/v1/dead-letters/d2%2Fx/retry")
    dropped = await door.post("/v1/dead-letters/d1/drop")

    assert (tried.status_code, tried.json()["attempts"], dropped.status_code) == (200, 0, 200)
    await until(lambda: [each.id for each in door.seen] == ["d2/x"])
    assert (await door.get("/v1/dead-letters")).json() == []
    assert (await door.post("/v1/dead-letters/d1/retry")).status_code == 404


async def test_of_many_who_deal_with_a_dead_letter_at_once_one_does(door: Door) -> None:
    answers = await asyncio.gather(*(door.post("/v1/dead-letters/d1/drop") for _ in range(20)))

    assert [answer.status_code for answer in answers].count(200) == 1
    assert {answer.status_code for answer in answers} <= {200, 404, 409}


async def test_a_run_of_an_earlier_process_can_be_waited_for(door: Door) -> None:
    put_aside = await door.get("/v1/runs/d2%2Fx/wait?timeout=5")
    await door.post("/v1/dead-letters/d2%2Fx/retry")

    answered = await door.get("/v1/runs/d2%2Fx/wait?timeout=5")

    assert (put_aside.json()["status"], put_aside.json()["error"]) == ("error", "3 attempts failed")
    assert (answered.json()["status"], answered.json()["output"]) == ("ok", "fine")
    assert (await door.get("/v1/runs/zz/wait?timeout=5")).status_code == 404


# -- what a person is shown


def test_nothing_that_is_shown_hides_or_moves_or_is_left_out() -> None:
    call = Call("pay", {NASTY: [NASTY]}, id=NASTY, reason=NASTY)
    one = Doubt(f"c/{NASTY}", call, "c", NASTY, NASTY, NOW, NASTY, answer="done", output={NASTY: NASTY},
                answered_by=NASTY, answered_at=NOW)  # fmt: skip
    said = Perception(NASTY, source=NASTY, kind=NASTY, id=NASTY, attributes={NASTY: NASTY})
    letter = DeadLetter(NASTY, Item(NASTY, said, session=NASTY), NOW, NASTY)

    texts = [doubt_full(one, NOW), " ".join(doubt_cells(one, NOW)), letter_full(letter, NOW),
             " ".join(letter_cells(letter, NOW))]  # fmt: skip

    for text in texts:
        assert not set(NASTY) - set("[2K") & set(text)
    assert texts[0].count("\\u{202e}") >= 10
    assert texts[2].count("\\u{202e}") >= 8
    assert "WARNING" in texts[0]
    assert "WARNING" in texts[1]


async def test_what_cannot_be_written_as_it_is_is_shown_nevertheless(door: Door) -> None:
    found = (await door.get("/v1/dead-letters/d1")).json()

    assert '"\\u{202e}\\u{200b}\\u{1b}[2K\\u{d800}"' in found["text"]


def test_a_list_says_by_how_much_it_cuts() -> None:
    line = doubt_cells(doubt("c/a", call=Call("pay", {"text": "x" * 500})), NOW)[-1]
    whole = doubt_full(doubt("c/a", call=Call("pay", {"text": "x" * 500})), NOW)

    assert "characters more)" in line
    assert "x" * 500 in whole
