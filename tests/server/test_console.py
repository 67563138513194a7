"""The console at the port: its files, and the sign-in of a browser with a token."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.datastructures import Headers

import spar.console
from memory import Memory
from spar import Agent
from spar.config.load import load
from spar.server.access import IDLE, LONGEST, MOST_GUESSES, MOST_OF_A_TOKEN, MOST_SESSIONS, BrowserSessions
from spar.server.front import port
from spar.service.app import Service
from spar.types import replace

STATIC = Path(spar.console.__file__).parent / "static"
OWN = {"origin": "http://127.0.0.1:8420", "sec-fetch-site": "same-origin"}
SESSION = "/console/session"


class Browser:
    """A browser at the port of an agent: it keeps cookies, and says where its requests come from."""

    def __init__(self, agent: Agent, **settings: Any) -> None:
        self.service = Service(load(None, environ=settings), agent)
        self.client = httpx.AsyncClient(transport=httpx.ASGITransport(port(self.service, "127.0.0.1")),
                                        base_url="http://127.0.0.1:8420", headers=OWN)  # fmt: skip
        self.sessions = BrowserSessions(self.service.tokens, lambda: self.now)
        self.now = 0.0

    async def token(self, name: str = "anna", *scopes: Any) -> str:
        return (await self.service.tokens.create(name, scopes or ("read", "operate"))).token

    @property
    def cookie(self) -> dict[str, str]:
        return {"cookie": "; ".join(f"{name}={value}" for name, value in self.client.cookies.items())}

    async def sign_in(self, token: str, **headers: str) -> httpx.Response:
        return await self.client.post(SESSION, json={"token": token}, headers=headers)


@pytest.fixture
async def agent(tmp_path: Path) -> AsyncIterator[Agent]:
    async with Agent(memory=Memory(f"sqlite:///{tmp_path / 'memory.db'}"), loop_interval="off") as agent:
        yield agent


@pytest.fixture
async def browser(agent: Agent) -> AsyncIterator[Browser]:
    browser = Browser(agent)
    async with browser.client:
        yield browser


def test_the_library_of_the_page_is_the_one_that_its_notice_names() -> None:
    assert sha256((STATIC / "preact.js").read_bytes()).hexdigest() in (STATIC / "NOTICE").read_text()


def test_the_files_ask_no_other_host_and_make_no_markup_of_text() -> None:
    forbidden = re.compile(r"https?://(?!www\.w3\.org/2000/svg)|innerHTML|insertAdjacentHTML|document\.write|\beval\(|"
                           r"new Function|<script>|\son\w+=\"|localStorage\.setItem\((?!\"spar-theme\")")  # fmt: skip
    for file in STATIC.rglob("*"):
        if file.suffix in (".js", ".html", ".css", ".svg") and file.name != "preact.js":
            assert forbidden.findall(file.read_text()) == [], file


async def test_a_page_runs_its_own_files_only_and_stands_in_no_frame(browser: Browser) -> None:
    page = await browser.client.get("/")
    names = re.findall(r'(?:src|href)="([^"]+)"', page.text)

    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["cache-control"] == "no-cache"
    for answer in [page, *[await browser.client.get(name) for name in names]]:
        assert answer.status_code == 200
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cross-origin-opener-policy"] == "same-origin"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        known = {"if-none-match": answer.headers["etag"]}
        assert (await browser.client.get(answer.url.path, headers=known)).status_code == 304
    assert "immutable" in (await browser.client.get(names[0])).headers["cache-control"]


async def test_a_link_elsewhere_opens_the_page_but_another_host_name_does_not(browser: Browser) -> None:
    linked = await browser.client.get("/", headers={"sec-fetch-site": "cross-site"})
    rebound = await browser.client.get("/", headers={"host": "evil.example:8420"})

    assert (linked.status_code, rebound.status_code) == (200, 421)
    assert (await browser.client.get("/console/../../pyproject.toml")).status_code == 404
    assert (await browser.client.get("/console/%2e%2e/pages.py")).status_code == 404


async def test_there_is_no_page_where_the_setting_says_so(agent: Agent) -> None:
    browser = Browser(agent, SPAR_SERVICE__CONSOLE="false")

    assert [(await browser.client.get(path)).status_code for path in ("/", SESSION)] == [404, 404]


async def test_a_token_is_exchanged_for_a_cookie_that_scripts_cannot_read(browser: Browser) -> None:
    token = await browser.token()
    assert (await browser.client.get(SESSION)).json() is None

    answer = await browser.sign_in(token)

    cookie = answer.headers["set-cookie"]
    assert cookie.startswith("spar-session-8420=")
    for word in ("HttpOnly", "SameSite=strict", "Path=/", f"Max-Age={LONGEST:.0f}"):
        assert word in cookie
    assert "Secure" not in cookie
    assert "Domain" not in cookie
    assert token not in answer.text + cookie
    assert answer.json() == {"agent": "main", "token": "anna", "scopes": ["read", "operate"], "expires_at": None}
    assert answer.json() == (await browser.client.get(SESSION)).json()
    status = await browser.client.get("/v1/status")
    assert status.status_code == 200


async def test_by_https_the_cookie_is_bound_to_the_host_and_to_https(browser: Browser) -> None:
    answer = await browser.sign_in(await browser.token(), origin="https://127.0.0.1:8420")

    assert answer.headers["set-cookie"].startswith("__Host-spar-session-8420=")
    assert "Secure" in answer.headers["set-cookie"]


WRONG_SIGN_INS: list[tuple[dict[str, Any], int]] = [
    ({"content": b'{"token": "spar_x"}', "headers": {"content-type": "text/plain"}}, 415),
    ({"data": {"token": "spar_x"}}, 415),
    ({"json": {"token": 5}}, 422), ({"json": {"token": "x", "next": "//evil.example"}}, 422),
    ({"content": b"{", "headers": {"content-type": "application/json"}}, 422),
    ({"content": b"x" * 2_000_000, "headers": {"content-type": "application/json"}}, 413),
    ({"json": {"token": "spar_x"}}, 401),
    ({"json": {"token": "spar_x"}, "headers": {"origin": "http://evil.example", "sec-fetch-site": "cross-site"}}, 403),
    ({"json": {"token": "spar_x"}, "headers": {"host": "evil.example"}}, 421),
]  # fmt: skip


async def test_a_wrong_sign_in_is_refused_with_a_reason(browser: Browser) -> None:
    for sent, status in WRONG_SIGN_INS:
        answer = await browser.client.post(SESSION, **sent)

        assert answer.status_code == status, sent
        assert answer.headers["content-type"] == "application/problem+json"
        assert "set-cookie" not in answer.headers
        assert answer.json()["detail"]


async def test_another_method_is_refused(browser: Browser) -> None:
    answer = await browser.client.put(SESSION)

    assert (answer.status_code, answer.headers["allow"]) == (405, "DELETE, GET, POST")
    assert answer.headers["content-type"] == "application/problem+json"


async def test_guesses_are_limited_as_those_of_bearer_tokens_and_a_valid_token_never(browser: Browser) -> None:
    token = await browser.token()
    statuses = [(await browser.sign_in("spar_" + "x" * 43)).status_code for _ in range(MOST_GUESSES + 1)]

    assert statuses == [401] * MOST_GUESSES + [429]
    assert (await browser.sign_in(token)).status_code == 200


async def test_a_token_is_in_use_while_a_session_of_it_is(browser: Browser) -> None:
    await browser.sign_in(await browser.token())
    tokens, old = browser.service.tokens, datetime(2020, 1, 1, tzinfo=UTC)
    async with asyncio.timeout(60):
        while (await tokens.list())[0].used_at is None:  # that it signed in is being stored
            await asyncio.sleep(0.01)
        ((digest, row),) = tokens._by_digest.items()
        aged = replace(row, made_at=old, used_at=old)
        tokens._rows.values[row.name], tokens._by_digest = aged, {digest: aged}

        while (await tokens.list())[0].used_at == old:  # one that is being noted keeps out another
            await browser.client.get("/v1/status")
            await asyncio.sleep(0.01)


async def test_a_session_ends_by_sign_out_with_its_token_and_with_the_process(browser: Browser, agent: Agent) -> None:
    await browser.sign_in(await browser.token())
    cookie = browser.cookie
    out = await browser.client.delete(SESSION)
    assert out.status_code == 204
    assert "Max-Age=0" in out.headers["set-cookie"]
    stolen = await browser.client.get("/v1/status", headers=cookie)
    assert (stolen.status_code, "ended" in stolen.json()["detail"]) == (401, True)
    assert 'spar_http_refused_total{reason="session"} 1.0' in (await browser.client.get("/metrics")).text

    await browser.sign_in(await browser.token("second"))
    await browser.service.tokens.revoke("second")
    assert (await browser.client.get("/v1/status")).status_code == 401
    assert (await browser.client.get(SESSION)).json() is None

    await browser.sign_in(await browser.token("third"))
    other = Browser(agent)
    other.client.cookies = browser.client.cookies
    assert (await other.client.get("/v1/status")).status_code == 401


async def test_a_session_ends_unused_and_some_time_after_it_began(browser: Browser) -> None:
    row = browser.service.tokens.find(await browser.token())
    assert row is not None
    sessions = browser.sessions

    def cookie(id: str) -> Any:
        return Headers({"host": "127.0.0.1:8420", "cookie": f"spar-session-8420={id}"})

    unused, used = sessions.begin(row), sessions.begin(row)
    while browser.now < LONGEST - IDLE / 2:
        browser.now += IDLE / 2
        assert sessions.find(cookie(used)) is not None
    assert sessions.find(cookie(unused)) is None
    browser.now += IDLE / 2
    assert sessions.find(cookie(used)) is None
    assert sessions.find(cookie("")) is None


async def test_sessions_are_bounded_and_the_one_unused_for_longest_ends(browser: Browser) -> None:
    rows = [browser.service.tokens.find(await browser.token(f"t{number}")) for number in range(40)]
    for row in rows:
        assert row is not None
        for _ in range(MOST_OF_A_TOKEN + 5):
            browser.sessions.begin(row)

    assert len(browser.sessions) == MOST_SESSIONS


async def test_a_new_sign_in_ends_the_session_before(browser: Browser) -> None:
    await browser.sign_in(await browser.token())
    cookie = browser.cookie
    await browser.sign_in(await browser.token("other"))

    browser.client.cookies.clear()
    assert (await browser.client.get("/v1/status", headers=cookie)).status_code == 401
