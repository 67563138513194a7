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
    page = watch("read").page
    page.get_by_role("table", name="Sessions").wait_for()
    entries = page.evaluate("performance.getEntries().map(e => [e.name, e.encodedBodySize])")
    files = [size for name, size in entries if size and "/v1/" not in name and "/session" not in name]

    assert sum(files) > 30_000
    assert sum(size or 0 for _, size in entries) < 100_000
    assert len(files) <= 12
