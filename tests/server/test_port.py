"""The API at the port: who may do what with which token, and what web pages and strangers get."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import httpx
import pytest

from memory import Memory
from spar import Action, Agent, Perception
from spar.config.load import load
from spar.operations.agent import WATCHERS
from spar.operations.operation import Operation
from spar.operations.runs import FOLLOWERS
from spar.server.access import (
    GUESSES_WITHIN,
    MOST_GUESSES,
    MOST_PEERS,
    TELL_EVERY,
    Access,
    AccessRefusedError,
    Guesses,
    HostNames,
    TokenLimits,
)
from spar.server.api.openapi import PATH_PARAMETERS, plain_path
from spar.server.event_streams import share_of
from spar.server.front import SAFE_HEADERS, Front, port
from spar.server.routes.applications import served
from spar.service.app import Service
from spar.service.token_rows import SCOPES, Scope, TokenRow
from spar.types import PHASES

ROUTES = served()
STRANGER = ("192.0.2.7", 4711)


class Slow:
    """Planner whose runs end when they are let."""

    def __init__(self) -> None:
        self.may_end = asyncio.Event()

    async def plan(self, perceptions: list[Perception]) -> Action | None:
        if not perceptions:
            return None
        await self.may_end.wait()
        return Action(output="done")


class Port:
    """An agent with its port, and a token of each right."""

    def __init__(self, agent: Agent, memory: Memory, planner: Slow, **settings: Any) -> None:
        self.agent, self.memory, self.planner = agent, memory, planner
        self.service = Service(load(None, environ=settings), agent)
        self.application = port(self.service, self.service.loaded.settings.service.host)
        self.tokens: dict[str, str] = {}

    async def make(self, name: str, *scopes: Scope) -> str:
        self.tokens[name] = (await self.service.tokens.create(name, scopes)).token
        return self.tokens[name]

    async def ask(self, method: str, path: str, token: str = "", *, peer: tuple[str, int] = ("127.0.0.1", 5),
                  headers: Any = (), **more: Any) -> httpx.Response:  # fmt: skip
        sent = [*headers, *([("authorization", f"Bearer {token}")] if token else [])]
        transport = httpx.ASGITransport(self.application, client=peer)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8420") as client:
            return await client.request(method, path, headers=sent, **more)


@pytest.fixture
async def agent(tmp_path: Path) -> AsyncIterator[Port]:
    memory, planner = Memory(f"sqlite:///{tmp_path / 'memory.db'}"), Slow()
    agent = Agent(plan=planner, memory=memory, loop_interval="off", attach=["senders"])
    async with agent:
        door = Port(agent, memory, planner)
        for scope in SCOPES:
            await door.make(scope, scope)
        yield door
        planner.may_end.set()


def target(route: Operation[Any, Any]) -> str:
    """Return a path of this route, with a parameter that none knows: nobody who comes in changes anything."""
    return plain_path(route).format_map(dict.fromkeys(PATH_PARAMETERS, "x")) + "?oddity=1"


async def test_rights_add_up_and_who_lacks_one_is_told_which(agent: Port) -> None:
    """What each right alone opens is in tests/recorded (scopes.txt)."""
    token = await agent.make("both", "read", "approve")

    answers = {route.scope: await agent.ask(route.method, target(route), token, json={}) for route in ROUTES}

    statuses = {scope: answer.status_code for scope, answer in answers.items()}
    assert statuses == {"read": 422, "approve": 422, "operate": 403, "step": 403, "admin": 403}
    for scope in ("operate", "step", "admin"):
        answer = answers[scope]
        assert answer.headers["content-type"] == "application/problem+json"
        assert (answer.json()["scope"], f"'{scope}'" in answer.json()["detail"]) == (scope, True)
        assert f'error="insufficient_scope", scope="{scope}"' in answer.headers["www-authenticate"]


async def test_only_who_may_step_may_step(agent: Port) -> None:
    for scope, colon, phase in itertools.product(SCOPES, (":", "%3A", "%3a"), PHASES):
        answer = await agent.ask("POST", f"/v1/agent{colon}step_{phase}", agent.tokens[scope], json=[])

        if scope in ("step", "admin"):
            assert answer.status_code in (404, 409, 422), (scope, answer.text)  # it came in
        else:
            assert (answer.status_code, answer.json()["scope"]) == (403, "step"), (scope, answer.text)


async def test_without_a_good_token_nothing_is_told(agent: Port) -> None:
    revoked = await agent.make("old", "admin")
    await agent.service.tokens.revoke("old")
    good = agent.tokens["admin"]
    heads: list[list[tuple[str, str]]] = [
        [],
        [("authorization", "")],
        [("authorization", "Bearer")],
        [("authorization", good)],
        [("authorization", f"Basic {good}")],
        [("authorization", f"Bearer {good}x")],
        [("authorization", f"Bearer {revoked}")],
        [("authorization", f"Bearer {good}"), ("authorization", f"Bearer {good}")],
        [("cookie", f"token={good}")],
        [("x-api-key", good)],
    ]
    paths = ("/v1/status", "/v1/nothing", "/v1", "/v1/", f"/v1/status?access_token={good}", "/v1/tokens")
    for number, path in enumerate(paths):
        for headers in heads:
            answer = await agent.ask("GET", path, headers=headers, peer=(f"192.0.2.{number}", 5))
            assert answer.status_code == 401, (path, headers)
            assert answer.headers["www-authenticate"].startswith('Bearer realm="spar"')
            assert answer.headers["content-type"] == "application/problem+json"
            assert good not in answer.text


async def test_a_head_is_answered_as_a_get_and_other_methods_are_told(agent: Port) -> None:
    read, operate = agent.tokens["read"], agent.tokens["operate"]

    assert (await agent.ask("HEAD", "/v1/status", read)).status_code == 200
    assert (await agent.ask("HEAD", "/v1/status", operate)).status_code == 403
    wrong = await agent.ask("PUT", "/v1/status", read)
    assert (wrong.status_code, wrong.headers["content-type"]) == (405, "application/problem+json")
    assert wrong.headers["allow"] == "GET, HEAD"
    assert (await agent.ask("PUT", "/v1/runs", read)).headers["allow"] == "GET, HEAD, POST"
    assert (await agent.ask("GET", "/v1/nothing", read)).status_code == 404


async def test_of_a_request_that_is_refused_no_body_is_read(agent: Port) -> None:
    async def receive() -> Any:
        raise AssertionError("the body was asked for")

    for token, status in (("", 401), (agent.tokens["read"], 403)):
        sent: list[Any] = []

        async def send(message: Any, sent: list[Any] = sent) -> None:
            sent.append(message)

        headers = [
            (b"host", b"127.0.0.1"),
            (b"content-length", b"99999999999"),
            (b"authorization", f"Bearer {token}".encode()),
        ]
        await agent.application(
            {"type": "http", "method": "POST", "path": "/v1/runs", "headers": headers, "query_string": b"",
             "client": STRANGER, "root_path": "", "scheme": "http"},
            receive, send,
        )  # fmt: skip
        assert sent[0]["status"] == status


@pytest.mark.parametrize(
    ("listens_to", "names", "known", "unknown"),
    [
        ("127.0.0.1", (), ("localhost", "127.0.0.1:9", "[::1]"),
         ("spar.example.org", "192.0.2.1", "", "127.999.1.1", "127.0.0.256:1")),
        ("127.0.0.1", ("Spar.Example.org",), ("spar.example.org", "SPAR.example.org:443", "localhost"),
         ("example.org", "192.0.2.1")),
        ("0.0.0.0", (), ("192.0.2.1:8420", "[2001:db8::1]:8420", "localhost"),
         ("spar.example.org", "192.0.2.1.evil.example")),
        ("::", ("spar",), ("spar:8420", "192.0.2.1"), ("spar.evil.example",)),
    ],
)  # fmt: skip
def test_a_port_is_asked_by_address_or_by_a_name_that_was_given_to_it(
    listens_to: str, names: tuple[str, ...], known: tuple[str, ...], unknown: tuple[str, ...]
) -> None:
    hosts = HostNames(listens_to, names)

    assert [host for host in known if not hosts.is_known(host)] == []
    assert [host for host in unknown if hosts.is_known(host)] == []


async def test_every_answer_keeps_browsers_from_using_it_otherwise(agent: Port, tmp_path: Path) -> None:
    asked = [
        ("GET", "/livez", ""), ("GET", "/metrics", ""), ("GET", "/nothing", ""), ("POST", "/hooks/none", ""),
        ("GET", "/v1/status", ""), ("GET", "/v1/status", agent.tokens["read"]),
        ("POST", "/v1/runs", agent.tokens["read"]),
        ("GET", "/v1/runs?limit=x", agent.tokens["read"]),
    ]  # fmt: skip
    front = Front(agent.service, tmp_path, "127.0.0.1", 0, with_probes=True)
    front.open()
    try:
        async with httpx.AsyncClient(base_url=front.address, trust_env=False, verify=False) as client:
            for method, path, token in asked:
                headers = {"authorization": f"Bearer {token}"} if token else {}
                answer = await client.request(method, path, headers=headers)
                for name, value in SAFE_HEADERS:
                    assert answer.headers.get_list(name) == [value], (path, answer.headers)
    finally:
        await asyncio.to_thread(front.close)


async def test_what_a_token_does_is_told_as_its_own(agent: Port) -> None:
    token = agent.tokens["admin"]
    await agent.ask("POST", "/v1/agent:pause", token)
    sender = await agent.ask("POST", "/v1/senders:allow", token, json={"sender": "mail:a@example.org"})
    made = await agent.ask("POST", "/v1/tokens", token, json={"name": "second", "scopes": ["read"]})
    await agent.ask("POST", "/v1/runs", token, json={"message": "/status", "session": "new"})
    agent.planner.may_end.set()
    await agent.ask("POST", "/v1/runs", token, json={"message": "hello", "session": "new"})

    assert sender.json()["by"] == "token admin"
    assert made.status_code == 201
    assert {entry.actor for entry in await agent.memory.audit.entries()} == {"token admin"}
    session = (await agent.ask("GET", "/v1/sessions/new", token)).json()
    assert session["origin"]["sender"] == "token admin"


async def test_an_answer_that_was_waited_for_is_not_given_to_a_token_that_was_revoked_meanwhile(agent: Port) -> None:
    token = agent.tokens["read"]
    receipt = await agent.agent.submit("hello")
    waiting = asyncio.create_task(agent.ask("GET", f"/v1/runs/{receipt.run_id}/wait?timeout=600", token))
    await asyncio.sleep(0)
    while agent.agent.runs.open == 0 or not agent.service.tokens.is_open:
        await asyncio.sleep(0)
    for _ in range(50):  # until it waits
        await asyncio.sleep(0)

    await agent.service.tokens.revoke("read")
    agent.planner.may_end.set()

    assert (await waiting).status_code == 401
    assert "done" not in (await waiting).text


async def test_the_metrics_are_read_by_those_whom_the_setting_lets(tmp_path: Path) -> None:
    told: list[tuple[str, tuple[str, int], bool, int]] = [
        ("local", ("127.0.0.1", 5), False, 200), ("local", ("::ffff:127.0.0.1", 5), False, 200),
        ("local", STRANGER, False, 401), ("local", STRANGER, True, 200),
        ("token", ("127.0.0.1", 5), False, 401), ("token", ("127.0.0.1", 5), True, 200),
        ("open", STRANGER, False, 200),
    ]  # fmt: skip
    memory = Memory(f"sqlite:///{tmp_path / 'memory.db'}")
    async with Agent(memory=memory, loop_interval="off") as agent:
        tokens = Port(agent, memory, Slow())
        read, operate = await tokens.make("reader", "read"), await tokens.make("operator", "operate")
        for terms, peer, token, status in told:
            door = Port(agent, memory, Slow(), SPAR_SERVICE__METRICS=terms)
            answer = await door.ask("GET", "/metrics", read if token else "", peer=peer)
            other = await door.ask("GET", "/metrics", operate, peer=STRANGER)

            assert answer.status_code == status, (terms, peer, token)
            assert other.status_code == (200 if terms == "open" else 403)
            for probe in ("/livez", "/readyz", "/startupz"):
                assert (await door.ask("GET", probe, peer=STRANGER)).status_code in (200, 503)


class Now:
    """Clock that is set by hand."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


async def test_refusals_are_counted_by_reason_and_nothing_grows_with_their_number(agent: Port) -> None:
    for number in range(300):
        await agent.ask("GET", "/v1/status", f"spar_{number:043}", peer=(f"192.0.2.{number % 250}", number))
    await agent.ask("GET", "/v1/status")
    await agent.ask("GET", "/v1/status", headers=[("origin", "null")])
    await agent.ask("GET", "/v1/status", headers=[("host", "evil")])
    await agent.ask("POST", "/v1/runs", agent.tokens["read"])

    assert agent.service.refused == {"unknown": 300, "missing": 1, "origin": 1, "host": 1, "scope": 1}
    page = (await agent.ask("GET", "/metrics")).text
    assert 'spar_http_refused_total{reason="unknown"} 300.0' in page


async def test_guesses_of_a_peer_are_limited_and_lock_out_neither_a_valid_token_nor_another_peer(agent: Port) -> None:
    now = Now()
    peers = Guesses(now)
    guess, peer, other = "spar_" + "x" * 43, ("192.0.2.7", 1), ("192.0.2.8", 1)

    first = [await agent.ask("GET", "/v1/status", guess, peer=peer) for _ in range(MOST_GUESSES + 2)]
    page = (await agent.ask("GET", "/metrics", guess, peer=peer)).status_code
    valid = (await agent.ask("GET", "/v1/status", agent.tokens["read"], peer=peer)).status_code
    missing = (await agent.ask("GET", "/v1/status", peer=peer)).status_code
    beside = (await agent.ask("GET", "/v1/status", guess, peer=other)).status_code

    assert [answer.status_code for answer in first] == [401] * MOST_GUESSES + [429] * 2
    assert 0 < int(first[-1].headers["retry-after"]) <= GUESSES_WITHIN
    assert "10 unknown tokens" in first[-1].json()["detail"]
    assert (page, valid, missing, beside) == (429, 200, 401, 401)
    assert agent.service.refused == {"unknown": MOST_GUESSES + 1, "guesses": 3, "missing": 1}

    assert [peers.wait("a") for _ in range(MOST_GUESSES + 1)] == [0.0] * MOST_GUESSES + [GUESSES_WITHIN]
    now.seconds = GUESSES_WITHIN - 1
    assert peers.wait("a") == 1.0
    now.seconds = GUESSES_WITHIN
    assert peers.wait("a") == 0.0
    for number in range(3 * MOST_PEERS):
        assert peers.wait(f"peer {number}") == 0.0
    assert len(peers) == MOST_PEERS


async def test_a_token_makes_only_so_many_requests_in_a_minute_and_another_one_is_not_concerned() -> None:
    now = Now()
    limits = TokenLimits(4, 0, now)

    def passed(name: str) -> float:
        """Return 0, or the seconds until the token may ask again."""
        try:
            limits.pass_rate(name)
        except AccessRefusedError as refusal:
            return refusal.retry_after or 0.0
        return 0.0

    assert [passed("a") for _ in range(6)] == [0, 0, 0, 0, 15, 15]
    assert passed("b") == 0
    now.seconds = 20.0
    assert [passed("a") for _ in range(2)] == [0, 10]
    now.seconds = 1_000.0
    assert [passed("a") for _ in range(5)] == [0, 0, 0, 0, 15]
    TokenLimits(0, 0, now).pass_rate("a")


async def test_limits_of_a_token_are_settings_and_a_wait_that_ends_makes_room(agent: Port) -> None:
    settings = {"SPAR_SERVICE__TOKEN_RATE": "60", "SPAR_SERVICE__TOKEN_REQUESTS": "2"}
    door = Port(agent.agent, agent.memory, agent.planner, **settings)
    token, other = await door.make("busy", "read"), await door.make("other", "read")
    run_id = (await agent.agent.submit("wait")).run_id
    waits = [asyncio.create_task(door.ask("GET", f"/v1/runs/{run_id}/wait", token)) for _ in range(2)]
    await asyncio.sleep(0)
    while (third := await door.ask("GET", "/v1/status", token)).status_code == 200:
        pass

    beside = await door.ask("GET", "/v1/status", other)
    agent.planner.may_end.set()
    await asyncio.gather(*waits)
    while (last := await door.ask("GET", "/v1/status", token)).status_code == 200:
        pass

    assert (third.status_code, third.headers["retry-after"], beside.status_code) == (429, "1", 200)
    assert "2 requests of the token 'busy' wait" in third.json()["detail"]
    assert (last.status_code, "60 requests within a minute" in last.json()["detail"]) == (429, True)
    assert door.service.refused == {"busy": 1, "rate": 1}


@pytest.mark.parametrize(("path", "most"), [("/v1/events", WATCHERS), ("/v1/runs/{}/events", FOLLOWERS)])
async def test_a_token_has_a_share_of_the_streams_and_the_others_find_room(agent: Port, path: str, most: int) -> None:
    run_id = (await agent.agent.submit("wait")).run_id
    second, open_streams = await agent.make("second", "read"), list[asyncio.Task[None]]()

    async def opened(token: str) -> int:
        """Open a stream that stays open; returns its status."""
        started = asyncio.get_running_loop().create_future()

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                started.set_result(message["status"])

        async def receive() -> Any:
            return await asyncio.Event().wait()

        headers = [(b"host", b"127.0.0.1"), (b"authorization", f"Bearer {token}".encode())]
        scope = {"type": "http", "method": "GET", "path": path.format(run_id), "headers": headers, "query_string": b"",
                 "client": ("127.0.0.1", 5)}  # fmt: skip
        open_streams.append(asyncio.ensure_future(agent.application(scope, receive, send)))
        return int(await started)

    share = share_of(most)
    assert share < most / 2
    assert [await opened(agent.tokens["read"]) for _ in range(share)] == [200] * share
    refused = await agent.ask("GET", path.format(run_id), agent.tokens["read"])
    assert (refused.status_code, f"has {share} of the {most} streams" in refused.json()["detail"]) == (429, True)
    assert [await opened(second) for _ in range(share)] == [200] * share

    open_streams[0].cancel()
    await asyncio.wait([open_streams[0]])
    assert await opened(agent.tokens["read"]) == 200
    for stream in open_streams:
        stream.cancel()
    await asyncio.wait(open_streams)


async def test_the_log_has_one_line_a_minute_about_refusals_with_their_number(agent: Port) -> None:
    now, lines = Now(), list[Any]()

    class Telling(Access):
        """Access that remembers its lines."""

        def log_refusals(self, reasons: dict[str, int]) -> None:
            lines.append(reasons)

    access = Telling(agent.service, HostNames("127.0.0.1"), now)
    for now.seconds in (0.0, 1.0, 2.0, TELL_EVERY - 1, TELL_EVERY, TELL_EVERY + 1):
        try:
            access.demand(TokenRow("x", ("read",), agent.agent.core.clock.now(), digest=""), "admin")
        except Exception as refusal:
            access.refuse(cast(Any, refusal))

    assert lines == [{"scope": 1}, {"scope": 4}]


async def test_an_answer_that_goes_on_ends_with_its_token_at_the_next_sign_of_life(agent: Port) -> None:
    sent, has_gone = list[Any](), asyncio.Event()

    async def receive() -> Any:
        await has_gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    async def until(count: int) -> None:
        async with asyncio.timeout(60):
            while len(sent) < count:
                await asyncio.sleep(0)

    headers = [(b"host", b"127.0.0.1"), (b"authorization", f"Bearer {agent.tokens['read']}".encode())]
    scope = {"type": "http", "method": "GET", "path": "/v1/events", "headers": headers, "query_string": b"",
             "client": STRANGER, "root_path": "", "scheme": "http"}  # fmt: skip
    task = asyncio.create_task(agent.application(scope, receive, send))  # type: ignore[arg-type]
    await until(2)
    for text in ("one", "two"):
        count = len(sent)
        await agent.agent.submit(text)
        await until(count + 1)
    await agent.service.tokens.revoke("read")
    count = len(sent)
    agent.planner.may_end.set()
    await agent.agent.submit("three")

    await asyncio.wait_for(task, 60)
    assert sent[-1] == {"type": "http.response.body", "body": b"", "more_body": False}
    assert sent[count:-1] == []


async def test_a_change_is_told_what_became_of_it_also_when_its_token_was_revoked_meanwhile(agent: Port) -> None:
    token = agent.tokens["admin"]

    answer = await agent.ask("DELETE", "/v1/tokens/admin", token)

    assert (answer.status_code, answer.json()["name"]) == (200, "admin")
    assert (await agent.ask("GET", "/v1/status", token)).status_code == 401
