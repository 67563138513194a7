"""The page of the console in a browser: sign-in, sign-out, its size, its frame."""

from __future__ import annotations

from collections.abc import Callable

from tests.console.conftest import Watched


def test_a_token_opens_the_page_and_signing_out_closes_it(watch: Callable[..., Watched]) -> None:
    page = watch("read").page

    assert page.locator("main h1").inner_text() == "Now"
    page.get_by_role("button", name="Sign out").click()
    page.get_by_label("Token").wait_for()
    page.reload()
    page.get_by_label("Token").wait_for()
    assert page.evaluate("Object.keys(localStorage).length + document.cookie.length") == 0


def test_the_first_view_is_small(watch: Callable[..., Watched]) -> None:
    watched = watch("read")
    page = watched.page
    watched.context.clear_cookies(name="nothing")
    page.locator("main table").first.wait_for()
    sizes = page.evaluate(
        "performance.getEntries().filter(e => e.encodedBodySize).map(e => [e.name, e.encodedBodySize])"
    )

    assert sum(size for _, size in sizes) < 100_000
    assert len(sizes) <= 14
