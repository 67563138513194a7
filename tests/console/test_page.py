"""The page of the console in a browser: sign-in, sign-out, its size, its frame."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.console.conftest import Watched, token_of
from tests.process.conftest import Service


def test_a_token_opens_the_page_and_signing_out_closes_it(watch: Callable[..., Watched], world: Service) -> None:
    page = watch("read").page

    page.get_by_role("button", name="Sign out").click()
    page.get_by_label("Token").fill(token_of(world, "read"))
    page.keyboard.press("Enter")
    page.locator("main h1").get_by_text("Now", exact=True).wait_for()
    page.get_by_role("button", name="Sign out").click()
    page.get_by_label("Token").wait_for()
    page.reload()
    page.get_by_label("Token").wait_for()
    assert page.evaluate("Object.keys(localStorage).length + document.cookie.length") == 0


def test_a_wrong_token_is_refused_with_a_sentence(chromium: Any, world: Service) -> None:
    watched = Watched(chromium, world.address, viewport={"width": 360, "height": 740})
    page = watched.page
    page.goto(world.address)
    page.get_by_label("Token").fill("spar_wrong")
    page.keyboard.press("Enter")

    page.get_by_role("alert").get_by_text("This token is not known, was revoked or has expired.").wait_for()
    assert page.get_by_label("Token").input_value() == ""
    assert watched.findings() == []
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    watched.context.close()


#: Goes to another view as soon as the frame of the page is there, before its first drawing is over.
HASTE = """
new MutationObserver((_, observer) => {
  if (document.getElementById("nav")) { observer.disconnect(); location.hash = "#/health"; }
}).observe(document, { childList: true, subtree: true });
"""


def test_an_address_that_changes_during_the_first_drawing_counts(watch: Callable[..., Watched]) -> None:
    page = watch("read", is_new=True).page
    page.add_init_script(HASTE)
    page.reload()

    page.locator("main h1").get_by_text("Health").wait_for()


def test_the_first_view_is_small(watch: Callable[..., Watched]) -> None:
    page = watch("read").page
    page.get_by_role("table", name="Sessions").wait_for()
    entries = page.evaluate("performance.getEntries().map(e => [e.name, e.encodedBodySize])")
    files = [size for name, size in entries if size and "/v1/" not in name and "/session" not in name]

    assert sum(files) > 30_000
    assert sum(size or 0 for _, size in entries) < 100_000
    assert len(files) <= 12
