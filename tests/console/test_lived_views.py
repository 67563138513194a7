"""The views of what a service knows and of how it is: each with data of a real run, its actions seen in the service."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from tests.console.conftest import Watched
from tests.console.lived import ARABIC, HOSTILE, LONG
from tests.process.conftest import Service, until

#: Each view by its address, and a word that it shows once its data are there.
VIEWS = {
    "incidents": "Down is firing", "incidents/I-1": "What was done about it", "doubts": "Dead letters",
    "doubts/call/c2%2Fpay2": "What became of it?", "doubts/letter/letter2": "Try again", "memory": "Show more",
    "memory?q=disk": "words in common", "memory/e00": "Ask before cleaning room 0", "memory/arabic": ARABIC,
    "learning": "Lessons by day", "learning/clean/message": "How often it goes well", "rules": "Counted since",
    "rules/look": "Why it fired", "health": "What comes next", "cost": "Cost by day", "settings": "In force",
    "nodes": "Services of this machine", "debug": "Single steps",
}  # fmt: skip


@pytest.fixture
def look(watch: Callable[..., Watched], lived: Service) -> Callable[..., Watched]:
    """Open a page of the service with a past. Args: scopes of its token."""
    return lambda *scopes, **given: watch(*scopes, service=lived, **given)


def shown(watched: Watched, view: str) -> Any:
    """Open a view and wait until it shows its data."""
    page = watched.go(f"#/{view}")
    page.locator("main").get_by_text(VIEWS[view]).first.wait_for()
    return page


def test_each_view_shows_its_data_fits_a_phone_and_axe_finds_nothing_serious(look: Callable[..., Watched]) -> None:
    watched = look(color_scheme="light")

    found = {}
    for view in VIEWS:
        page = shown(watched, view)
        found[view] = watched.findings()
        page.emulate_media(color_scheme="dark")
        found[view] += watched.findings("color-contrast")  # all else is the same in both
        page.emulate_media(color_scheme="light")
        page.set_viewport_size({"width": 360, "height": 740})
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, view
        page.set_viewport_size({"width": 1280, "height": 800})
    assert found == {view: [] for view in VIEWS}


def test_text_of_strangers_is_text_in_its_own_direction(look: Callable[..., Watched]) -> None:
    watched = look()
    for view in ("memory?q=javascript", "memory/e00", "doubts/call/c2%2Fpay2", "doubts", "learning", "cost"):
        page = watched.go(f"#/{view}")
        page.locator("main section").first.wait_for()
        page.wait_for_load_state("networkidle")
        assert page.locator("main img, main script, main a[href^='javascript']").count() == 0, view
    page = shown(watched, "memory/arabic")
    text = page.locator("main bdi").filter(has_text=ARABIC).first
    assert text.evaluate("node => getComputedStyle(node).direction") == "rtl"
    assert page.evaluate("document.title") == "Memory · spar"
    assert LONG[:200] in shown(watched, "cost").locator("main").inner_text().replace("\n", "")
    assert HOSTILE.split()[0] in shown(watched, "doubts").locator("main").inner_text()


def test_pictures_say_in_words_what_they_show(look: Callable[..., Watched]) -> None:
    watched = look("read")

    curve = shown(watched, "learning/clean/message").get_by_role("img", name="How often it goes well")
    assert "4 values from" in curve.locator("desc").text_content()
    bars = shown(watched, "cost").get_by_role("img", name="Cost by day")
    assert "7 bars from" in bars.locator("desc").text_content()
    assert watched.page.locator("main h2").all_inner_texts() == [
        "In all",
        "By model",
        "By session",
        "By rule",
        "By day",
    ]


def test_without_the_scope_an_action_says_why_it_cannot_be_taken(look: Callable[..., Watched]) -> None:
    watched = look("read")

    page = shown(watched, "memory/e00")
    forget = page.get_by_role("button", name="Forget")
    assert "lacks the scope “admin”" in forget.inner_text()
    forget.click(force=True)
    assert page.locator("dialog").count() == 0
    for view, name in (("incidents/I-1", "Close"), ("doubts/call/c3%2Fpay3", "Answer"), ("settings", "Reload")):
        VIEWS.setdefault(view, "Call in doubt")
        assert "lacks the scope" in shown(watched, view).get_by_role("button", name=name).inner_text()


def test_a_token_that_may_read_nothing_is_told_so_by_each_view(look: Callable[..., Watched]) -> None:
    watched = look("operate")
    for view in ("incidents", "doubts", "memory", "learning", "rules", "health", "cost", "settings", "nodes"):
        page = watched.page
        page.evaluate("view => { location.hash = view; }", f"#/{view}")
        page.locator("main h1").wait_for()
        page.get_by_role("alert").filter(has_text="this needs 'read'").first.wait_for()
        assert page.locator("main tbody").count() == 0, view
    watched.complaints.clear()  # the browser tells each refusal on its console


def test_a_call_in_doubt_is_resolved_by_keyboard(look: Callable[..., Watched], lived: Service) -> None:
    page = look().go("#/doubts/call/c1%2Fpay1")
    page.get_by_role("radio", name="done").focus()
    page.keyboard.press("Space")
    value = page.get_by_role("textbox", name="Value that the call returned")
    value.fill("{")
    answer = page.get_by_role("button", name="Answer")
    assert "no JSON" in answer.inner_text()
    value.fill('{"receipt": 4711}')
    page.get_by_label("How do you know?").fill("the bank says so")
    answer.focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="done?")
    dialog.wait_for()
    page.keyboard.press("Escape")
    dialog.wait_for(state="detached")
    assert lived.api("/v1/calls/in-doubt/c1%2Fpay1").json()["answer"] is None

    answer.focus()
    page.keyboard.press("Enter")
    dialog.get_by_role("button", name="Answer").focus()
    page.keyboard.press("Enter")
    page.get_by_text("Answered").first.wait_for()

    row = lived.api("/v1/calls/in-doubt/c1%2Fpay1").json()
    assert (row["answer"], row["output"], row["reason"]) == ("done", {"receipt": 4711}, "the bank says so")
    assert row["answered_by"].startswith("token t")


def test_dead_letters_are_tried_again_and_dropped(look: Callable[..., Watched], lived: Service) -> None:
    watched = look("read", "operate")
    page = watched.go("#/doubts/letter/letter3")
    page.get_by_role("button", name="Try again").click()
    page.get_by_text("It is tried again").wait_for()
    watched.go("#/doubts/letter/letter4")
    page.get_by_role("button", name="Drop").click()
    page.get_by_role("dialog").get_by_role("button", name="Drop").click()
    page.get_by_text("It is dropped").wait_for()

    assert {row["id"] for row in lived.api("/v1/dead-letters").json()}.isdisjoint({"letter3", "letter4"})


def test_an_experience_is_judged_and_forgotten(look: Callable[..., Watched], lived: Service) -> None:
    page = look().go("#/memory?q=clean+the+hall")
    page.get_by_role("link", name="clean the hall").first.click()
    page.get_by_label("Why").fill("it shines")
    page.get_by_role("button", name="Good").click()
    page.get_by_text("It is kept.").wait_for()
    entry = lived.api("/v1/audit?action=run.feedback").json()[0]
    assert (entry["detail"]["good"], entry["detail"]["why"]) == (True, "it shines")

    page.goto(f"{lived.address}/#/memory/e05")
    page.get_by_role("button", name="Forget").click()
    page.get_by_role("dialog").get_by_role("button", name="Forget").click()
    page.get_by_role("heading", name="The latest").wait_for()
    assert lived.api("/v1/memory/search?k=100").json()
    assert lived.api("/v1/memory/experiences/e05").status_code == 404


def test_settings_are_checked_and_reloaded(look: Callable[..., Watched], lived: Service) -> None:
    page = look().go("#/settings")
    text = lived.spar.config.read_text()
    lived.spar.config.write_text(text.replace("It is clean.", "It shines.").replace("[agent]", "[agnet]"))
    page.get_by_role("button", name="Check").click()
    page.get_by_text("agnet").wait_for()
    lived.spar.config.write_text(text.replace("It is clean.", "It shines.").replace('"home"', '"house"'))
    page.get_by_role("button", name="Check").click()
    page.get_by_text("A reload changes: rules.").wait_for()
    page.get_by_text("Only after a restart: agent.name.").wait_for()
    assert "It shines." not in str(lived.api("/v1/config").json())
    page.get_by_role("button", name="Reload").click()
    page.get_by_text("Changed: rules.").wait_for()

    assert "It shines." in str(lived.api("/v1/config").json())
    page.get_by_label("Search").fill("log level")
    page.get_by_text("1 of").wait_for()
    lived.spar.config.write_text(text)
    lived.api("/v1/agent:reload", "POST")


def test_an_incident_is_closed(look: Callable[..., Watched], lived: Service) -> None:
    page = look().go("#/incidents/I-2")
    page.get_by_role("button", name="Close").click()
    page.get_by_role("dialog").get_by_role("button", name="Close", exact=True).click()

    until(lambda: lived.api("/v1/incidents/I-2").json()["state"] == "closed", "the incident closed")
    page.locator("main dl").get_by_text("closed", exact=True).wait_for()


def test_a_rule_says_why_it_did_not_fire_in_a_past_cycle(look: Callable[..., Watched], lived: Service) -> None:
    page = look("read").go("#/rules/look")
    cycle = next(row["cycle_id"] for row in lived.api("/v1/cycles?limit=100").json() if "hall" in str(row["about"]))
    page.get_by_label("Cycle").fill(cycle)
    page.get_by_label("all rules").check()
    page.get_by_role("button", name="Ask").click()
    page.get_by_text("clean the hall").first.wait_for()

    table = page.get_by_role("table", name="Answers of the rules").inner_text()
    assert "does not match" in table
    assert "fired" in table


def test_the_other_services_of_the_machine_are_linked_and_no_token_goes_with_the_link(
    look: Callable[..., Watched], lived: Service, world: Service
) -> None:
    page = look("read").go("#/nodes")
    link = page.get_by_role("link", name=world.address)
    link.wait_for()

    assert link.get_attribute("href") == f"{world.address}/"
    assert link.get_attribute("rel") == "noopener noreferrer"


def test_the_nodes_of_an_agent_are_shown_and_one_hands_its_sessions_over(look: Callable[..., Watched]) -> None:
    watched = look("read", "operate")
    page, asked = watched.page, []
    row = {"name": "one:17", "token": "t-1", "version": "0.1.0", "state": "working", "since": "2026-01-01T00:00:00Z",
           "left": 2.5, "partitions": 128}  # fmt: skip

    def drain(route: Any) -> None:
        asked.append((route.request.method, route.request.url.rpartition("/")[2], route.request.post_data_json))
        row.update(state="draining", partitions=0)
        route.fulfill(json=row)

    answering(page, "/v1/nodes", lambda url: [row])
    page.route("**/v1/nodes/*", drain)
    watched.go("#/nodes")
    table = page.get_by_role("table", name="Nodes")
    expect(table.locator("tbody tr")).to_contain_text(["one:17"])
    table.get_by_role("button", name="Hand over").click()
    table.get_by_role("button", name="Take again").wait_for()

    assert asked == [("POST", "t-1:drain", {"undo": False})]


def answering(page: Any, path: str, answer: Any) -> None:
    """Let the page get this answer of a path, as from a service that has much."""
    page.route(f"**{path}*", lambda route: route.fulfill(json=answer(route.request.url), headers={"etag": '"1"'}))


def test_thousands_of_rows_and_the_longest_names_are_shown_page_by_page(look: Callable[..., Watched]) -> None:
    watched = look("read")
    page, at = watched.page, "2026-01-01T00:00:00Z"
    page.set_viewport_size({"width": 360, "height": 740})
    names = [f"{number} {LONG}"[:256] for number in range(10_000)]
    abilities = [{"tool": name, "task": name, "estimate": 0.5, "uncertainty": 0.1, "trials": 3, "at": at, "latency": 1}
                 for name in names]  # fmt: skip
    row = {"requests": 1, "input_tokens": 5, "cached_tokens": 1, "output_tokens": 2, "cached": 0.2, "money": None,
           "unpriced": 1, "unmeasured": 0}  # fmt: skip
    costs = {"since": at, "rows": [{"what": name, **row} for name in names[:50]], "total": {"what": "all", **row},
             "unknown": ["no price is known"]}  # fmt: skip
    answering(page, "/v1/abilities?", lambda url: abilities[: int(url.partition("limit=")[2] or 1)])
    answering(page, "/v1/abilities/history", lambda url: {"trials": [], "before": None})
    answering(page, "/v1/costs?by=session", lambda url: costs)
    services = [{"folder": name, "name": name, "state": "", "version": "", "pid": 0, "started_at": None, "config": None,
                 "console": "", "alerts": 0, "approvals": 0, "trouble": name, "is_this": False}
                for name in names[:64]]  # fmt: skip
    answering(page, "/v1/services", lambda url: services)

    watched.go("#/learning")
    table = page.get_by_role("table", name="Abilities")
    table.wait_for()
    assert table.locator("tbody tr").count() == 50
    page.get_by_role("button", name="Show more").first.click()
    expect(table.locator("tbody tr")).to_have_count(100)
    watched.go("#/cost")
    page.get_by_text("The 50 dearest.").wait_for()
    for view in ("learning", "cost", "nodes", f"learning/{quote(LONG)}/{quote(LONG)}", f"rules/{quote(LONG)}"):
        watched.go(f"#/{view}")
        page.locator("main section").first.wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, view
    watched.complaints[:] = [text for text in watched.complaints if "404" not in text]  # there is no such rule
