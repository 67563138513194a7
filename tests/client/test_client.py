"""The client of programs, over real sockets: typed answers, refusals, what is repeated, streams that go on."""

from __future__ import annotations

import asyncio
import json
import math
import re
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from memory import Memory
from spar import Action, Agent, Perception
from spar.client import AsyncClient, BrokenOffError, Client, MisfitError, NotRunningError, RefusedError
from spar.client.async_client import Paced
from spar.client.client import AGAIN_AFTER
from spar.config.load import load
from spar.operations.access import TokenBody, create, list_tokens
from spar.operations.agent import status
from spar.operations.operation import TimedChoice
from spar.operations.runs import FollowRun, RunBody, RunId, RunsChoice, Wait, follow, list_runs, show, submit, wait
from spar.server.front import Front
from spar.service.app import Service
from spar.testing import VirtualClock


async def plan(perceptions: list[Perception]) -> Action | None:
    return Action(output=f"heard: {perceptions[0].text}") if perceptions else None


@pytest.fixture
async def front(tmp_path: Path) -> AsyncIterator[Front]:
    agent = Agent(plan=plan, memory=Memory(f"sqlite:///{tmp_path / 'memory.db'}"), loop_interval="off")
    async with agent:
        front = Front(Service(load(None, environ={}), agent), tmp_path, "127.0.0.1", 0, with_probes=True)
        front.open()
        try:
            yield front
        finally:
            await asyncio.to_thread(front.close)


async def test_answers_have_the_types_of_their_operations(front: Front, tmp_path: Path) -> None:
    client = AsyncClient(tmp_path)

    receipt = await client.call(submit, RunBody("hello", session="ann"))
    run = await client.call(wait, Wait(receipt.run_id))

    assert (run.status, run.output) == ("ok", "heard: hello")
    assert (await client.call(status)).agent.name == "main"
    assert [row.session for row in await client.call(list_runs, RunsChoice(limit=1))] == ["ann"]
    events = [event async for event in client.events(follow, FollowRun(receipt.run_id))]
    assert (events[-1]["stream"], events[-1]["data"]["phase"]) == ("lifecycle", "end")


async def test_a_refusal_has_its_status_and_its_reason(front: Front, tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="no run 'none'") as refusal:
        await AsyncClient(tmp_path).call(show, RunId("none"))

    assert refusal.value.status == 404


async def test_the_port_is_asked_with_a_token_and_its_scopes(front: Front, tmp_path: Path) -> None:
    made = await AsyncClient(tmp_path).call(create, TokenBody("reader", ["read"]))
    client = AsyncClient(front.address, token=made.token)

    assert (await client.call(status)).agent.state == "running"
    with pytest.raises(RefusedError, match="this needs 'operate'") as refusal:
        await client.call(submit, RunBody("hello"))
    assert refusal.value.status == 403


def test_where_no_service_runs_the_error_says_where(tmp_path: Path) -> None:
    with pytest.raises(NotRunningError, match=str(tmp_path)):
        Client(tmp_path).call(status)


def whole_request(connection: socket.socket) -> bytes:
    """Return the head and the body of a request, which may come in several pieces."""
    request = connection.recv(65536)
    while (length := re.search(rb"content-length: (\d+)", request, re.I)) and not (
        len(request) - request.find(b"\r\n\r\n") - 4 >= int(length[1])
    ):
        request += connection.recv(65536)
    return request


@contextmanager
def answering(*answers: bytes) -> Iterator[tuple[Client, list[bytes]]]:
    """Serve one answer for each connection, and close it; yield the client and the heads of its requests."""
    listener, heads = socket.create_server(("127.0.0.1", 0)), list[bytes]()

    def serve() -> None:
        for answer in answers:
            connection, _ = listener.accept()
            with connection:
                heads.append(whole_request(connection))
                connection.sendall(answer)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    with listener:
        yield Client(f"http://127.0.0.1:{listener.getsockname()[1]}", sleep=lambda seconds: None), heads
    thread.join(60)


def ok(body: object) -> bytes:
    content = json.dumps(body).encode()
    return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(content), content)


def test_a_read_that_broke_is_repeated_and_a_change_is_not() -> None:
    with answering(b"", ok([])) as (client, heads):
        assert client.call(list_tokens, TimedChoice()) == []
        assert len(heads) == 2

    with answering(b"") as (client, heads):
        with pytest.raises(BrokenOffError):
            client.call(submit, RunBody("hello"))
        assert len(heads) == 1


def test_what_a_starting_service_refuses_is_sent_again() -> None:
    early = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\ncontent-length: 0\r\n\r\n"
    with answering(early, early, ok({"run_id": "r1", "accepted_at": "2026-01-01T00:00:00Z"})) as (client, heads):
        assert client.call(submit, RunBody("hello")).run_id == "r1"

    assert len(heads) == 3


def test_an_answer_of_another_version_names_what_does_not_fit() -> None:
    with (
        answering(ok({"run": "r1"})) as (client, _),
        pytest.raises(MisfitError, match="missing required field `run_id`"),
    ):
        client.call(submit, RunBody("hello"))


def run_event(seq: int, is_last: bool) -> dict[str, object]:
    data = {"phase": "end"} if is_last else {"text": "a"}
    return {"seq": seq, "stream": "lifecycle" if is_last else "assistant", "data": data}


def stream(*events: int, is_whole: bool, last: int = 0) -> bytes:
    """Return a stream with these events, which ends well or breaks off; `last` is the end of the run."""
    text = "".join(
        f"id: {seq}\nevent: any\ndata: {json.dumps(run_event(seq, seq == last))}\n\n" for seq in events
    ).encode()
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    return head + b"%x\r\n%s\r\n" % (len(text), text) + (b"0\r\n\r\n" if is_whole else b"ff\r\nid: 3")


@pytest.mark.parametrize(
    ("first", "then", "numbers", "last"),
    [
        (stream(1, 2, is_whole=False), stream(3, 4, is_whole=True, last=4), [1, 2, 3, 4], b"last-event-id: 2"),
        (stream(1, is_whole=True), stream(2, is_whole=True, last=2), [1, 2], b"last-event-id: 1"),
        (b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\nid: 1\nevent: any\n",
         stream(1, is_whole=True, last=1), [1], None),
    ],
    ids=["broke", "ended by the service", "only a number came"],
)  # fmt: skip
def test_a_stream_is_continued_after_its_last_event(
    first: bytes, then: bytes, numbers: list[int], last: bytes | None
) -> None:
    with answering(first, then) as (client, heads):
        events = list(client.events(follow, FollowRun("r1")))
    assert [event["seq"] for event in events] == numbers
    assert b"last-event-id" not in heads[0].lower()
    assert last in heads[1].lower() if last else b"last-event-id" not in heads[1].lower()


def test_a_stream_is_given_up_after_its_patience_unless_that_is_infinite() -> None:
    busy = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 4\r\n\r\nbusy"
    refused = b"HTTP/1.1 404 Not Found\r\ncontent-length: 7\r\n\r\nno such"
    with answering(busy, busy, busy) as (client, _), pytest.raises(NotRunningError, match="busy"):
        list(client.events(follow, FollowRun("r1"), patience=2 * AGAIN_AFTER))
    with answering(refused) as (client, _), pytest.raises(RefusedError, match="no such"):
        list(client.events(follow, FollowRun("r1")))
    with answering(refused, stream(1, is_whole=True, last=1)) as (client, _):
        assert len(list(client.events(follow, FollowRun("r1"), patience=math.inf))) == 1


def test_a_change_that_the_service_makes_only_once_is_sent_again_while_it_is_away() -> None:
    receipt, lost = ok({"run_id": "r1", "accepted_at": "2026-01-01T00:00:00Z"}), list[str]()
    with answering(b"", b"", receipt) as (client, heads):
        body = RunBody("hello", idempotency_key="k")
        assert client.call(submit, body, patience=60.0, lost=lambda: lost.append("lost")).run_id == "r1"

    assert (len(heads), lost) == (3, ["lost"])
    with answering(b"") as (client, heads), pytest.raises(BrokenOffError):
        client.call(submit, RunBody("hello"), patience=60.0)


async def test_events_come_to_a_program_with_an_event_loop_until_it_leaves(front: Front, tmp_path: Path) -> None:
    client = AsyncClient(tmp_path)
    receipt = await client.call(submit, RunBody("hello"))

    async with aclosing(client.events(follow, FollowRun(receipt.run_id))) as events:
        first = await anext(events)
    with pytest.raises(RefusedError, match="no run 'none'"):
        await anext(client.events(follow, FollowRun("none")))

    assert first["data"]["phase"] == "accepted"


def test_fields_that_have_their_default_are_not_sent_to_a_service_that_may_be_older() -> None:
    with answering(ok({"run_id": "r1", "accepted_at": "2026-01-01T00:00:00Z"})) as (client, heads):
        client.call(submit, RunBody("hel\udc80lo", mode="steer"))

    assert heads[0].endswith(b'{"message": "hel?lo", "mode": "steer"}')


# -- work that threads ask for: done once for all who ask meanwhile, and not again before its time


async def test_those_who_ask_together_get_it_once_and_nobody_is_forgotten() -> None:
    done, has_run = list[str](), asyncio.Event()
    asked = ""

    def work() -> None:
        done.append(asked)
        has_run.set()

    paced = Paced(work, 0.01)
    for asked in ("first", "second", "third"):  # noqa: B007 - the work reads it
        paced.ask()
    await has_run.wait()
    assert done == ["third"]
    for asked in ("fourth", "fifth"):  # noqa: B007
        has_run.clear()
        await asyncio.to_thread(paced.ask)
        await has_run.wait()
    assert done == ["third", "fourth", "fifth"]


async def test_it_is_not_done_again_before_its_time(clock: VirtualClock) -> None:
    loop, done = asyncio.get_running_loop(), list[float]()
    paced, began = Paced(lambda: done.append(loop.time() - began), 0.05, 0.01), loop.time()
    for _ in range(30):
        paced.ask()
        await clock.sleep(0.01)
    assert len(done) == 6
    assert done[0] == pytest.approx(0.01)
    assert all(later - before == pytest.approx(0.05) for before, later in pairwise(done))
