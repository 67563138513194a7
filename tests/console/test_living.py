"""A page that stays open: over a lost connection, a restart of the service, the end of its token; and what it costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.console.conftest import Watched, token_of
from tests.console.world import furnish
from tests.ports import free_port
from tests.process.conftest import Service, Spar


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Callable[[], Service]]:
    """Start a service of this test, each time at the same port."""
    spar, services = Spar(tmp_path), list[Service]()
    furnish(spar)
    spar.environ["SPAR_SERVICE__PORT"] = str(free_port())

    def start() -> Service:
        services.append(service := Service(spar))
        return service.ready()

    yield start
    for service in services:
        service.kill()


def test_a_stream_goes_on_after_a_broken_connection_and_after_a_restart(
    own: Callable[[], Service], watch: Callable[..., Watched]
) -> None:
    service = own()
    watched = watch(service=service)
    page = watched.go("/chat/main")
    page.get_by_label("Message").fill("wait for me")
    page.keyboard.press("Enter")
    log = page.get_by_role("log")
    log.get_by_text("and the caches").wait_for()

    watched.context.set_offline(True)
    page.get_by_text("Trying again …").wait_for()
    watched.context.set_offline(False)
    expect(page.get_by_text("Trying again …")).to_have_count(0)

    service.kill()
    page.get_by_text("Trying again …").wait_for()
    service = own()
    page.get_by_text("Your session has ended").wait_for()
    page.get_by_label("Token").fill(token_of(service, "read"))
    page.keyboard.press("Enter")
    log.get_by_text("and the caches").wait_for()  # the same conversation, and its run goes on
    (service.spar.folder / "go").touch()
    log.get_by_text("They can be deleted without loss.").wait_for()
    watched.complaints = [text for text in watched.complaints if "ERR_" not in text and "401" not in text]


def test_a_revoked_token_closes_the_page_at_once(world: Service, watch: Callable[..., Watched]) -> None:
    watched = watch("read")
    watched.go("/now")
    name = watched.page.locator("nav .foot .quiet").inner_text().removeprefix("token ")

    world.api(f"/v1/tokens/{name}", "DELETE")
    watched.page.get_by_text("Your session has ended").wait_for()
    assert watched.page.locator("nav, main table").count() == 0
    watched.complaints = [text for text in watched.complaints if "401" not in text]


def test_no_token_and_no_session_stands_in_a_log_an_address_or_the_page(
    world: Service, watch: Callable[..., Watched]
) -> None:
    token = token_of(world, "read")
    watched = watch("read")
    watched.page.get_by_role("button", name="Sign out").click()
    watched.page.get_by_label("Token").fill(token)
    watched.page.keyboard.press("Enter")
    watched.page.locator("#nav").wait_for()
    cookies = {cookie["name"]: cookie for cookie in watched.context.cookies()}
    (cookie,) = cookies.values()

    assert (cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (True, "Strict", "/")
    for secret in (token, cookie["value"]):
        assert secret not in world.err
        assert not any(secret in url for url in watched.requests)
        assert secret not in watched.page.content()
        assert secret not in watched.page.evaluate("JSON.stringify([localStorage, sessionStorage, document.cookie])")


def test_no_address_leads_elsewhere_and_no_page_frames_it(world: Service, watch: Callable[..., Watched]) -> None:
    watched = watch("read")
    page = watched.page
    for hash in (
        "//evil.example",
        "/\\evil.example",
        "/https://evil.example/",
        "/chat/javascript:alert(1)",
        "/%",
        "/chat/%E0%A4%A",
    ):
        page.evaluate("hash => { location.hash = hash; }", hash)
        page.locator("main h1").wait_for()
        assert page.url.startswith(f"{world.address}/#")
    framing = watched.context.new_page()
    framing.set_content(f"<iframe src='{world.address}/'></iframe>")
    framing.wait_for_timeout(300)
    assert [frame.locator("input, nav").count() for frame in framing.frames if frame.url.startswith(world.address)] in (
        [],
        [0],
    )


def test_a_page_left_open_works_little_and_its_memory_stays(world: Service, watch: Callable[..., Watched]) -> None:
    watched = watch("read")
    page = watched.go("/timeline")
    client = watched.context.new_cdp_session(page)
    client.send("Performance.enable")

    def figures() -> dict[str, Any]:
        client.send("HeapProfiler.collectGarbage")
        return {row["name"]: row["value"] for row in client.send("Performance.getMetrics")["metrics"]}

    page.wait_for_timeout(1000)
    before, asked = figures(), len(watched.requests)
    page.wait_for_timeout(6000)
    after = figures()
    assert after["Nodes"] <= before["Nodes"] + 50
    assert len(watched.requests) - asked <= 6
    assert not any("/events" in url for url in watched.requests)


def test_a_page_that_nobody_touches_asks_a_third_as_often(world: Service, watch: Callable[..., Watched]) -> None:
    watched = watch("read", is_new=True)
    page = watched.page
    page.clock.install()
    watched.go("/debug")
    unanswered = set[Any]()
    page.on("request", lambda request: "/events" in request.url or unanswered.add(request))
    for end in ("requestfinished", "requestfailed"):
        page.on(end, lambda request: unanswered.discard(request))

    def asked(seconds: int) -> int:
        before = len(watched.requests)
        for _ in range(seconds):
            page.clock.run_for(1000)
            page.wait_for_timeout(40)
            while unanswered:  # a busy machine may take its time
                page.wait_for_timeout(5)
        return len(watched.requests) - before

    busy = asked(18)
    page.clock.run_for(70_000)
    alone = asked(18)
    page.keyboard.press("Shift")
    again = asked(18)
    assert 0 < alone * 2 < busy
    assert alone * 2 < again
