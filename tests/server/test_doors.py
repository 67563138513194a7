"""The doors over real sockets: what idle, slow and oversized peers cannot do to the others."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from spar import Agent
from spar.config.load import load
from spar.server.front import SAFE_HEADERS, BoundedConfig, BoundedProtocol, Bounds, Front, Room
from spar.server.problems import LARGEST_BODY
from spar.service.app import Service

HALF = b"GET /livez HTTP/1.1\r\nHost: 127"
HALF_A_BODY = b"POST /v1/runs HTTP/1.1\r\nHost: spar\r\nContent-Length: 100\r\n\r\n{"


class Doors:
    """Both doors of a service whose agent has not been started, and whoever connects to them."""

    def __init__(self, folder: Path, bounds: Bounds | None = None) -> None:
        self.folder = folder
        self.agent = Agent(loop_interval="off")
        self.service = Service(load(None, environ={}), self.agent)
        self.front = Front(self.service, folder, "127.0.0.1", 0, with_probes=True, bounds=bounds)
        self.stack = ExitStack()

    def __enter__(self) -> Doors:
        self.front.open()
        self.stack.callback(self.front.close)
        return self

    def __exit__(self, *exc: object) -> None:
        self.stack.close()

    def tcp(self, sent: bytes = b"") -> socket.socket:
        return self._sending(socket.create_connection(("127.0.0.1", self.front.port), timeout=20), sent)

    def unix(self, sent: bytes = b"") -> socket.socket:
        made = socket.socket(socket.AF_UNIX)
        made.settimeout(20)
        made.connect(str(self.folder / "control.sock"))
        return self._sending(made, sent)

    def _sending(self, made: socket.socket, sent: bytes) -> socket.socket:
        self.stack.enter_context(made)
        made.sendall(sent)
        return made

    def probe(self) -> int:
        with httpx.Client(trust_env=False, verify=False) as client:
            return client.get(f"http://127.0.0.1:{self.front.port}/livez").status_code

    def control(self, method: str = "GET", path: str = "/v1/status", content: Any = None) -> httpx.Response:
        transport = httpx.HTTPTransport(uds=str(self.folder / "control.sock"))
        with httpx.Client(transport=transport, base_url="http://spar") as client:
            return client.request(method, path, content=content)


@pytest.fixture
def doors(tmp_path: Path) -> Iterator[Doors]:
    with Doors(tmp_path) as doors:
        yield doors


def rest_of(connection: socket.socket) -> bytes:
    """What comes until the other side ends the connection."""
    found = b""
    try:
        while more := connection.recv(65536):
            found += more
    except ConnectionResetError:
        pass
    return found


# -- idle and half-sent


def test_hundreds_of_half_sent_requests_close_the_doors_for_nobody(doors: Doors) -> None:
    for _ in range(300):
        doors.tcp(HALF)
        doors.unix(HALF_A_BODY)
        assert (doors.probe(), doors.control().status_code) == (200, 200) if _ % 100 == 99 else True
    assert (doors.probe(), doors.control().status_code) == (200, 200)


async def test_a_request_whose_head_or_body_never_ends_is_ended_in_time(tmp_path: Path) -> None:
    def ask(doors: Doors) -> None:
        assert rest_of(doors.tcp()) == b""
        assert rest_of(doors.tcp(HALF)).startswith(b"HTTP/1.1 408")
        assert rest_of(doors.unix(HALF_A_BODY)).startswith(b"HTTP/1.1 408")
        answers = rest_of(doors.tcp(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n" + HALF))
        assert answers.startswith(b"HTTP/1.1 200")
        assert b"HTTP/1.1 408" in answers
        assert doors.probe() == 200

    with Doors(tmp_path, Bounds(head_within=0.2, body_within=0.2)) as doors:
        async with doors.agent:
            await asyncio.to_thread(ask, doors)


def test_an_idle_connection_is_ended_and_one_that_waits_for_its_answer_is_not() -> None:
    room = Room(Bounds(connections=4, of_a_peer=2))
    ended: list[str] = []
    made = {name: _Connection(name, ended.append) for name in "abcdefg"}
    assert all([room.enter(made["a"], "p"), room.enter(made["b"], "p")])
    made["a"].owes = False
    assert room.enter(made["c"], "p")
    assert ended == ["b"]  # the peer's oldest that owes a request
    made["c"].owes = False
    assert not room.enter(made["d"], "p")  # both of the peer wait for their answers
    assert room.enter(made["e"], "q")
    made["d"].owes = made["e"].owes = False
    assert not room.enter(made["f"], "r")
    room.leave(made["a"])
    room.leave(made["d"])
    made["f"].owes = False
    assert room.enter(made["g"], "s")
    assert (ended, room.ended, room.refused) == (["b"], 1, 2)


class _Connection(BoundedProtocol):
    """A connection without a server; `owes` says whether it has sent no whole request."""

    def __init__(self, name: str, ended: Callable[[str], None]) -> None:
        self.owes = True
        self.transport = _Transport(lambda: ended(name))

    @property
    def is_owing(self) -> bool:
        return self.owes


class _Transport(asyncio.Transport):
    """A transport that can be given up."""

    def __init__(self, ended: Callable[[], None]) -> None:
        super().__init__()
        self._ended = ended

    def abort(self) -> None:
        self._ended()


def test_an_answer_on_a_kept_connection_is_not_held_back_for_an_acknowledgement(doors: Doors) -> None:
    asked = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
    assert doors.tcp(asked).recv(12) == b"HTTP/1.1 200"
    config = doors.front._servers[1].config
    assert isinstance(config, BoundedConfig)
    (connection,) = config.room._connections
    accepted = connection.transport.get_extra_info("socket")
    assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


# -- sizes


async def test_a_body_above_its_limit_is_refused_by_its_head_and_while_it_is_read(doors: Doors) -> None:
    too_much = b"x" * (LARGEST_BODY + 1)

    def chunks() -> Iterator[bytes]:
        for _ in range(48):
            yield b"x" * 65536

    async with doors.agent:
        for content in (too_much, chunks()):
            answer = await asyncio.to_thread(doors.control, "POST", "/v1/runs", content)
            assert answer.status_code == 413
            assert answer.json()["detail"] == "the body is larger than 1048576 bytes, the most that is taken"
        assert (await asyncio.to_thread(doors.control, "POST", "/v1/runs", b'{"message": "hi"}')).status_code == 202


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"message": "x", "output": ' + b'{"a":' * 50_000 + b"1" + b"}" * 50_000 + b"}", "nested too deeply"),
        (b'{"message": "x", "output": ' + b'{"a":' * 150 + b"1" + b"}" * 150 + b"}", "nested too deeply"),
        (
            b'{"message": "x", "session": "' + b"s" * 257 + b'"}',
            "a session's name has at most 256 characters, found 257",
        ),
        (
            b'{"message": "x", "idempotency_key": "' + b"k" * 257 + b'"}',
            "an idempotency key has at most 256 characters",
        ),
    ],
    ids=["deep", "rather deep", "session", "key"],
)
async def test_what_is_too_deep_or_too_long_is_refused_in_one_sentence(doors: Doors, body: bytes, said: str) -> None:
    async with doors.agent:
        answer = await asyncio.to_thread(doors.control, "POST", "/v1/runs", body)
        assert answer.status_code == 422
        assert said in answer.json()["detail"]
        longest = b'{"message": "x", "session": "' + b"s" * 256 + b'", "idempotency_key": "' + b"k" * 256 + b'"}'
        assert (await asyncio.to_thread(doors.control, "POST", "/v1/runs", longest)).status_code == 202


def test_a_request_that_does_not_say_its_host_is_refused(doors: Doors) -> None:
    assert rest_of(doors.tcp(b"GET /livez HTTP/1.0\r\n\r\n")).startswith(b"HTTP/1.1 400")
    assert rest_of(doors.tcp(b"GET /livez HTTP/1.0\r\nHost: localhost\r\n\r\n")).startswith(b"HTTP/1.1 200")
    assert rest_of(doors.tcp(b"GET /livez HTTP/1.0\r\nHost: evil.example\r\n\r\n")).startswith(b"HTTP/1.1 421")


def test_a_refusal_below_the_applications_is_a_problem_with_the_headers_of_the_port(tmp_path: Path) -> None:
    no_http = b"GET /livez HTTP/1.1\r\nHost: localhost\r\nno header\r\n\r\n"
    with Doors(tmp_path, Bounds(head_within=0.05)) as doors:
        refusals = (
            (400, doors.tcp(no_http), SAFE_HEADERS),
            (408, doors.tcp(HALF), SAFE_HEADERS),
            (404, doors.tcp(b"GET /nothing HTTP/1.0\r\nHost: localhost\r\n\r\n"), SAFE_HEADERS),
            (
                405,
                doors.tcp(b"PUT /livez HTTP/1.0\r\nHost: localhost\r\n\r\n"),
                (*SAFE_HEADERS, ("allow", "")),
            ),
            (400, doors.unix(no_http), ()),
        )
        for status, connection, headers in refusals:
            head, _, body = rest_of(connection).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 %d " % status)
            assert b"content-type: application/problem+json" in head
            assert [name for name, value in headers if f"{name}: {value}".encode() not in head] == [], head
            problem = json.loads(body)
            assert (problem["type"], problem["status"], bool(problem["detail"])) == ("about:blank", status, True)


def test_a_peer_that_goes_on_sending_gets_its_refusal(doors: Doors) -> None:
    connection = doors.tcp(b"GET /livez?")
    for _ in range(50):
        connection.sendall(b"x" * 65_536)
    answer = b""
    while more := connection.recv(65_536):  # raises if the connection was reset
        answer += more
    assert answer.startswith(b"HTTP/1.1 400")


def test_an_error_of_a_route_without_a_token_says_nothing_of_itself(doors: Doors) -> None:
    def broken() -> tuple[bool, dict[str, Any]]:
        raise RuntimeError("the key is 4711")

    doors.service.alive = broken  # type: ignore[method-assign]
    with httpx.Client(trust_env=False, verify=False) as client:
        answer = client.get(f"http://127.0.0.1:{doors.front.port}/livez")
    assert (answer.status_code, answer.headers["content-type"]) == (500, "application/problem+json")
    assert "4711" not in answer.text


async def test_no_header_makes_a_peer_somebody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")  # as images of other servers have it
    heard: list[Any] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        heard.append(scope["client"])

    config = BoundedConfig(application, Bounds(), log_config=None, lifespan="off", ws="none")
    config.load()
    served: Any = config.loaded_app
    headers = [(b"x-forwarded-for", b"root"), (b"x-forwarded-proto", b"https")]
    await served({"type": "http", "scheme": "http", "client": ("alice", 4711), "headers": headers}, None, None)

    assert heard == [("alice", 4711)]
