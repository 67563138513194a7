"""The views of the console with the data of a real run."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.console.conftest import Watched, said
from tests.process.conftest import Service, until

#: Text that a page must show as it is: as markup it would say so in `window.hit`.
ATTACK = (  # and text from right to left, and a word that no line breaks
    "<img src=x onerror='window.hit=1'><script>window.hit=1</script>[x](javascript:window.hit=1) "
    f"https://evil.example/ \u061c\u202eevil שלום {'ж' * 40}"
)


@pytest.fixture(scope="package")
def lived(world: Service) -> Iterator[Service]:
    """The service after some work, with a run that waits."""
    (world.spar.inbox / "report.txt").write_text("printer on fire")
    said(world, "say hello", "fan 24", "fail now", "pay 7 for rent")
    said(world, "look kitchen", "stream it", "pay 5 for lunch", session="alice")
    world.api("/v1/runs", "POST", json={"message": "wait for it", "session": "ops"})
    yield world
    (world.spar.folder / "go").touch()


def cycle_of(service: Service, about: str) -> str:
    """Return the id of the newest cycle about something."""
    rows = service.api("/v1/cycles?limit=200").json()
    return next(str(row["cycle_id"]) for row in rows if about in str(row["about"]))


def test_now_shows_what_each_session_does_and_why_the_token_may_not_end_it(
    lived: Service, watch: Callable[..., Watched]
) -> None:
    page = watch("read").go("/now")

    sessions = page.get_by_role("table", name="Sessions")
    sessions.get_by_text("ops").wait_for()
    assert re.search(r"ops\s+plan\s+[\d.]+ m?s", sessions.inner_text())
    page.get_by_role("region", name="Answer so far").get_by_text("93 % full").wait_for()
    assert "All is well" in page.locator("main").inner_text()
    page.get_by_role("img", name=re.compile("Load: [0-9.]+ cycles a second")).wait_for()
    assert page.get_by_role("table", name="Budgets").get_by_text("hour.calls").count() == 1

    button = page.get_by_role("button", name="Abort")
    assert button.get_attribute("aria-disabled") == "true"
    assert "lacks the scope “operate”" in button.inner_text() + button.get_attribute("title")
    button.click(force=True)
    assert any(row["session"] == "ops" for row in lived.api("/v1/runs?open=true").json())


def test_the_timeline_is_filtered_and_leads_to_a_cycle(lived: Service, watch: Callable[..., Watched]) -> None:
    page = watch("read").go("/timeline")
    table = page.get_by_role("table", name="Cycles")
    rows = table.locator("tbody tr")
    everything = rows.count()

    page.get_by_label("Only with failures").check()
    expect(rows).to_have_count(1)
    assert "✗ 1" in rows.inner_text()
    assert "failed=true" in page.url
    page.go_back()
    expect(rows).to_have_count(everything)
    page.get_by_label("Session").fill("alice")
    page.keyboard.press("Tab")
    expect(rows.filter(has_text="main")).to_have_count(0)
    rows.filter(has_text="look kitchen").get_by_role("link").first.click()
    page.get_by_text("seen: kitchen").first.wait_for()


def test_a_cycle_tells_what_was_noticed_why_and_what_each_call_did(
    lived: Service, watch: Callable[..., Watched]
) -> None:
    page = watch("read").go(f"/cycle/{cycle_of(lived, 'look everywhere')}")

    text = page.locator("main").inner_text()
    for words in (
        "fan 24",
        "many places at once",
        "priority: 0.75: message starts at 0.7",
        "remembered:",
        "Reflection",
    ):
        assert words in text, words
    picture = page.get_by_role("img", name=re.compile("^25 calls within"))
    assert picture.locator("rect").count() == 25
    assert "23 waits between them" in picture.get_attribute("aria-label")
    page.get_by_role("table", name="Calls").locator("summary").first.click()
    assert page.get_by_role("region", name="Result").first.inner_text() == "seen: root"


def test_a_thousand_calls_are_drawn_in_one_piece(lived: Service, watch: Callable[..., Watched]) -> None:
    said(lived, "fan 999", session="many")
    watched = watch("read")
    watched.go(f"/cycle/{lived.api('/v1/cycles?session=many').json()[-1]['cycle_id']}")
    picture = watched.page.get_by_role("img", name=re.compile("^1000 calls within"))
    picture.wait_for()

    expect(picture.locator("rect")).to_have_count(1000)
    expect(picture.locator("rect").last).to_be_visible()
    assert watched.page.get_by_role("table", name="Calls").locator("tbody tr").count() == 100


def test_a_conversation_is_followed_while_it_is_written(world: Service, watch: Callable[..., Watched]) -> None:
    page = watch("read", "operate").go("/chat/talk")

    page.get_by_label("Message").fill("stream a story")
    page.keyboard.press("Enter")
    log = page.get_by_role("log")
    log.get_by_text("They can be deleted without loss.").wait_for()
    log.get_by_text("stream a story").wait_for()
    page.get_by_label("Message").fill("look kitchen")
    page.get_by_role("button", name="Send").click()
    log.get_by_text("done: look kitchen").wait_for()
    assert log.locator("details").count() == 1
    page.get_by_role("button", name="Search").locator("xpath=..").get_by_role("searchbox").fill("kitchen")
    page.get_by_role("button", name="Search").click()
    page.get_by_role("link", name=re.compile("talk.*kitchen")).first.click()
    expect(log.locator(".marked")).to_contain_text("kitchen")
    page.get_by_role("link", name="Show the newest").click()
    expect(log.locator(".marked")).to_have_count(0)


def test_a_message_from_elsewhere_is_shown_before_its_first_cycle(
    world: Service, watch: Callable[..., Watched]
) -> None:
    (world.spar.folder / "go").unlink(missing_ok=True)
    watched = watch("read")
    page = watched.go("/chat/elsewhere")
    log = page.get_by_role("log")
    log.get_by_text("No message yet").wait_for()
    assert any("/v1/events?type=RunAccepted" in url for url in watched.requests)  # it waits for no clock
    first = world.api("/v1/runs", "POST", json={"message": "wait for nobody", "session": "elsewhere"}).json()["run_id"]
    log.get_by_text("wait for nobody").wait_for()
    assert world.api("/v1/sessions/elsewhere:transcript").status_code == 404

    log.get_by_text("93 % full").wait_for()
    second = world.api("/v1/runs", "POST", json={"message": "say it too", "session": "elsewhere"}).json()["run_id"]
    log.locator(".person").filter(has_text=re.compile("say it too.*waits")).wait_for()
    world.api(f"/v1/runs/{second}:abort", "POST")
    expect(log.get_by_text("say it too")).to_have_count(0)  # it never began, so that the conversation does not have it
    world.api(f"/v1/runs/{first}:abort", "POST")
    log.get_by_text("aborted").wait_for()
    assert log.get_by_text("wait for nobody").count() == 1


def test_a_message_interrupts_the_run_that_is_open_and_a_click_aborts_it(
    world: Service, watch: Callable[..., Watched]
) -> None:
    (world.spar.folder / "go").unlink(missing_ok=True)
    page = watch("read", "operate").go("/chat/hurry")
    page.get_by_label("Message").fill("wait for the file that never is")
    page.keyboard.press("Enter")
    log = page.get_by_role("log")
    log.get_by_text("93 % full").wait_for()

    page.get_by_label("While a run is open").select_option("interrupt")
    page.get_by_label("Message").fill("wait for something else")
    page.keyboard.press("Enter")
    log.get_by_text("interrupted by a newer message").wait_for()
    expect(log.get_by_text("93 % full")).to_have_count(1)  # of the second one

    page.get_by_role("button", name="Abort").click()
    log.get_by_text("aborted").wait_for()


def test_the_text_of_a_run_that_comes_before_the_end_of_the_last_one_is_drawn_is_shown(
    world: Service, watch: Callable[..., Watched]
) -> None:
    (world.spar.folder / "go").unlink(missing_ok=True)
    watched = watch("read")
    page = watched.go("/chat/drawn")
    world.api("/v1/runs", "POST", json={"message": "wait for one", "session": "drawn"})
    log = page.get_by_role("log")
    log.get_by_text("93 % full").wait_for()

    page.evaluate("() => { window.held = []; window.requestAnimationFrame = (draw) => window.held.push(draw); }")
    body = {"message": "wait for another", "session": "drawn", "mode": "interrupt"}
    second = world.api("/v1/runs", "POST", json=body).json()["run_id"]
    while not any(url.endswith(f"/v1/runs/{second}/events") for url in watched.requests):
        page.wait_for_timeout(20)
    page.wait_for_timeout(500)  # its events come, and no frame is drawn
    page.evaluate(
        "() => { window.requestAnimationFrame = (draw) => setTimeout(draw); window.held.forEach((draw) => draw(0)); }"
    )
    expect(log.get_by_text("93 % full")).to_have_count(1)
    world.api(f"/v1/runs/{second}:abort", "POST")


def test_a_clock_that_is_off_is_told(lived: Service, watch: Callable[..., Watched]) -> None:
    watched = watch("read", is_new=True)
    watched.page.clock.set_fixed_time("2031-05-05T10:00:00Z")
    page = watched.go("/now")

    page.get_by_text("The clocks of this browser and of the service differ by").wait_for()
    assert "ago" in page.locator(".tiles").inner_text()


def test_history_comes_page_by_page(world: Service, watch: Callable[..., Watched]) -> None:
    said(world, *[f"say number {number}" for number in range(20)], session="long")
    page = watch("read").go("/chat/long")

    log = page.get_by_role("log")
    log.get_by_text("say number 19").wait_for()
    assert log.get_by_text("say number 0").count() == 0
    log.get_by_role("button", name="Earlier").click()
    log.get_by_text("say number 0").wait_for()
    expect(log.get_by_role("button", name="Earlier")).to_have_count(0)


def test_the_colours_follow_the_system_until_they_are_chosen(lived: Service, watch: Callable[..., Watched]) -> None:
    page = watch("read", color_scheme="dark").go("/now")
    colour = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(colour)

    page.get_by_label("Colours").select_option("light")
    light = page.evaluate(colour)
    assert light != dark
    page.reload()
    page.locator("main section").first.wait_for()
    assert page.evaluate(colour) == light


def test_text_from_outside_is_shown_and_never_run(world: Service, watch: Callable[..., Watched]) -> None:
    (world.spar.folder / "go").unlink(missing_ok=True)
    world.api("/v1/runs", "POST", json={"message": f"pay 1 {ATTACK}", "session": ATTACK})
    waiting = world.api("/v1/runs", "POST", json={"message": f"wait {ATTACK}", "session": f"{ATTACK}!"}).json()[
        "run_id"
    ]
    said(world, f"look {ATTACK}", f"say {ATTACK}", f"fail {ATTACK}", session=ATTACK)
    name = ATTACK.replace("/", "∕")[:120]
    (world.spar.inbox / f"{name}.txt").write_text(ATTACK)
    until(lambda: any("onerror" in str(row["about"]) or row["goal"] == "look at new files"
                      for row in world.api("/v1/cycles?limit=5").json()), "the file in a cycle")  # fmt: skip
    watched = watch(viewport={"width": 360, "height": 740})
    dialogs: list[Any] = []
    watched.page.on("dialog", lambda dialog: dialogs.append(dialog))
    session = world.api("/v1/cycles?limit=200").json()
    cycles = [row["cycle_id"] for row in session if row["session"] == ATTACK or row["goal"] == "look at new files"]
    key = watched.page.evaluate("encodeURIComponent", ATTACK)
    for hash in (
        "/now",
        "/timeline",
        *[f"/cycle/{id}" for id in cycles[:6]],
        f"/chat/{key}",
        "/approvals",
        "/nothing<img>",
    ):
        if hash != "/nothing<img>":
            page = watched.go(hash)
            page.get_by_text("onerror").first.wait_for()
        else:
            page.evaluate("hash => { location.hash = hash; }", hash)
            page.get_by_text("There is no view").wait_for()
        assert page.evaluate("window.hit") is None
        assert (hash, page.evaluate("document.documentElement.scrollWidth")) == (hash, 360)
        assert page.locator("main img, main script, main iframe, main a:not([href^='#/'])").count() == 0
    assert dialogs == []
    world.api(f"/v1/runs/{waiting}:abort", "POST")
