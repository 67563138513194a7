"""The client of programs, over real sockets: typed answers, refusals, what is repeated, streams that go on."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from memory import Memory
from spar import Action, Agent, Perception
from spar.client import AsyncClient, BrokenOffError, Client, MisfitError, NotRunningError, RefusedError
from spar.config.load import load
from spar.operations.access import TokenBody, create, list_tokens
from spar.operations.agent import status
from spar.operations.operation import Nothing
from spar.operations.runs import FollowRun, RunBody, RunId, RunsChoice, Wait, follow, list_runs, show, submit, wait
from spar.server.front import Front
from spar.service.app import Service


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


@contextmanager
def answering(*answers: bytes) -> Iterator[tuple[Client, list[bytes]]]:
    """Serve one answer for each connection, and close it; yield the client and the heads of its requests."""
    listener, heads = socket.create_server(("127.0.0.1", 0)), list[bytes]()

    def serve() -> None:
        for answer in answers:
            connection, _ = listener.accept()
            with connection:
                heads.append(connection.recv(65536))
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
        assert client.call(list_tokens, Nothing()) == []
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


def stream(*events: int, is_whole: bool) -> bytes:
    """Return a stream with these events, which ends well or breaks off."""
    text = "".join(f'id: {seq}\nevent: assistant\ndata: {{"seq": {seq}}}\n\n' for seq in events).encode()
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    return head + b"%x\r\n%s\r\n" % (len(text), text) + (b"0\r\n\r\n" if is_whole else b"ff\r\nid: 3")


def test_a_stream_that_broke_is_continued_after_its_last_event() -> None:
    with answering(stream(1, 2, is_whole=False), stream(3, 4, is_whole=True)) as (client, heads):
        events = list(client.events(follow, FollowRun("r1")))

    assert [event["seq"] for event in events] == [1, 2, 3, 4]
    assert b"last-event-id" not in heads[0].lower()
    assert b"last-event-id: 2" in heads[1].lower()
