"""A service, and one browser that looks at it: whatever a page says on its console, or asks of another host, fails."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect, sync_playwright

from tests.console.lived import live, prepare
from tests.console.world import furnish
from tests.process.conftest import Service, Spar, until

expect.set_options(timeout=30_000)  # the machine may be busy
#: The browser; the shell without a head takes half the processor time.
CHROMIUM = shutil.which("chromium-headless-shell") or shutil.which("chromium")
AXE = Path(__file__).parents[2] / ".cache/servers/node_modules/axe-core/axe.min.js"
#: Options under which Chromium asks no host by itself.
OPTIONS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
           "--disable-sync", "--no-first-run"]  # fmt: skip


@pytest.fixture(scope="package")
def chromium() -> Iterator[Any]:
    """One browser for all tests of this folder."""
    if CHROMIUM is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(
            "needs Chromium (apt-get install chromium-headless-shell)"
        )
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=OPTIONS)
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One service for all tests that change nothing for others."""
    spar = Spar(tmp_path_factory.mktemp("console"))
    furnish(spar)
    service = Service(spar)
    yield service.ready()
    service.kill()


@pytest.fixture(scope="package")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One service with a past, for all tests that look at what it knows."""
    spar = Spar(tmp_path_factory.mktemp("lived"))
    prepare(spar)
    service = Service(spar).ready()
    live(service)
    yield service
    service.kill()


def said(service: Service, *messages: str, session: str = "main") -> list[str]:
    """Send messages to a service, one after the end of the other; return the ids of their runs."""
    runs = []
    for message in messages:
        body = {"message": message, "session": session}
        runs.append(service.api("/v1/runs", "POST", json=body).json()["run_id"])
        until(lambda: service.api(f"/v1/runs/{runs[-1]}").json()["status"] != "timeout", f"the end of {message!r}")
    return runs


def token_of(service: Service, *scopes: str) -> str:
    """Return a new token."""
    name = f"t{len(service.api('/v1/tokens').json())}"
    token: str = service.api("/v1/tokens", "POST", json={"name": name, "scopes": scopes}).json()["token"]
    return token


class Watched:
    """A page, and what it says that none should. To open one costs more than what most tests do with it."""

    def __init__(self, browser: Any, address: str, **given: Any) -> None:
        self.address = address
        self.context = browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **given})
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self._complain(message.type, message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(f"pageerror: {error}"))
        self.page.on("request", lambda request: self.requests.append(request.url))

    def _complain(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.complaints.append(f"{kind}: {text}")

    def reset(self, address: str) -> Watched:
        """Become as a new page is."""
        self.page.evaluate("localStorage.clear()")
        self.page.goto("about:blank")
        self.page.unroute_all()
        self.context.clear_cookies()
        self.page.set_viewport_size({"width": 1280, "height": 800})
        self.address = address
        self.complaints.clear()
        self.requests.clear()
        return self

    def sign_in(self, token: str) -> Watched:
        """Have the cookie of a session, as the form gets it: to draw that costs as much as many tests."""
        headers = {"origin": self.address}
        assert self.page.request.post(f"{self.address}/console/session", data={"token": token}, headers=headers).ok
        self.page.goto(self.address)
        self.page.locator("#nav").wait_for(state="attached")
        return self

    def go(self, hash: str) -> Any:
        """Open a view and return the page once it shows what was read."""
        self.page.evaluate("hash => { location.hash = hash; }", hash)
        self.page.locator("main section").first.wait_for()
        expect(self.page.locator("main").get_by_text("Loading …")).to_have_count(0)
        return self.page

    def findings(self, rule: str = "") -> list[str]:
        """Return what axe-core, or one rule of it, finds serious on the page as it is."""
        if not AXE.exists():
            (pytest.fail if os.environ.get("CI") else pytest.skip)("no axe-core is installed (make servers)")
        if not self.page.evaluate("'axe' in window"):
            self.page.evaluate(AXE.read_text())  # as a tool of the browser: the page's policy forbids other scripts
        options = {"resultTypes": ["violations"], **({"runOnly": [rule]} if rule else {})}
        answer = self.page.evaluate("options => axe.run(document, options)", options)
        return [f"{row['id']}: {row['nodes'][0]['html'][:200]} ({row['nodes'][0]['failureSummary'][:200]})"
                for row in answer["violations"] if row["impact"] in ("serious", "critical")]  # fmt: skip

    @property
    def foreign(self) -> list[str]:
        return [url for url in self.requests if not url.startswith((self.address, "data:"))]


@pytest.fixture(scope="package")
def unused(chromium: Any) -> list[Watched]:
    """Pages that a test has left, for the next one."""
    return []


@pytest.fixture
def watch(chromium: Any, world: Service, unused: list[Watched]) -> Iterator[Callable[..., Watched]]:
    """Open pages of a service, new ones where more is given; at the end none has complained or asked another host."""
    pages: list[tuple[Watched, bool]] = []

    def begin(*scopes: str, service: Service = world, is_new: bool = False, **given: Any) -> Watched:
        is_usual = not is_new and not given
        watched = unused.pop().reset(service.address) if unused and is_usual else Watched(
            chromium, service.address, **given)  # fmt: skip
        pages.append((watched, is_usual))
        return watched.sign_in(token_of(service, *scopes or ("admin",)))

    yield begin
    for watched, is_usual in pages:
        unused.append(watched) if is_usual else watched.context.close()
    assert [(watched.complaints, watched.foreign) for watched, _ in pages] == [([], [])] * len(pages)
