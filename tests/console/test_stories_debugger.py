"""The story of a debug session, in the browser: steps, a stubbed tool, a breakpoint, a past cycle, a backtest."""

from __future__ import annotations

import re
from collections.abc import Callable

from playwright.sync_api import expect

from tests.console.conftest import Watched
from tests.console.lived import YESTERDAY
from tests.process.conftest import Service


def test_a_debug_session(lived: Service, watch: Callable[..., Watched]) -> None:
    watched = watch("read", "operate", "step", service=lived)
    page = watched.go("/debug")
    page.get_by_role("button", name="Pause", exact=True).click()
    page.get_by_role("button", name="Resume").wait_for()
    lived.api("/v1/runs", "POST", json={"message": "clean the porch"})

    # Step sense, look; step plan, look; change the perception, plan again.
    returned = page.get_by_role("region", name="Product of the step")
    page.get_by_role("button", name="Step sense").click()
    expect(returned).to_contain_text("it asks for something to be done")
    page.get_by_role("button", name="Step plan").click()
    expect(returned).to_contain_text("rule 'clean' matched")
    perceptions = page.get_by_label("Perceptions, as JSON")
    perceptions.fill("[")
    assert "This is no JSON" in page.get_by_role("button", name="Step plan").inner_text()
    expect(returned).to_contain_text("clean the porch")
    noticed = '[{"content": "look at the porch", "kind": "message", "source": "message", "trust": "trusted"}]'
    perceptions.fill(noticed)
    page.get_by_role("button", name="Step plan").click()
    expect(returned).to_contain_text("rule 'look' matched")

    # Step act with the tool stubbed.
    page.get_by_text("Stub the calls").click()
    page.get_by_label("Result of look").fill('"a porch, and it is clean"')
    page.get_by_role("button", name="Take these results").click()
    expect(page.get_by_label("Results, as JSON")).to_have_value(re.compile("a porch, and it is clean"))
    page.get_by_role("button", name="Step reflect").click()
    expect(returned).to_contain_text('"score": 1')
    assert lived.api("/v1/audit?action=agent.step_act").json() == []
    page.get_by_role("button", name="Resume").click()
    page.get_by_role("button", name="Pause", exact=True).wait_for()

    # A breakpoint on one tool of the running service.
    page.get_by_label("Only if").fill('tool == "clean"')
    page.get_by_role("button", name="Set").click()
    page.get_by_role("table", name="Breakpoints").get_by_text("before a call").wait_for()
    lived.api("/v1/runs", "POST", json={"message": "clean the stuck shed", "session": "shed"})
    stop = page.locator("section").filter(has=page.get_by_text("shed stands before the call of clean"))
    call = stop.get_by_label("The call, as JSON")
    call.fill(call.input_value().replace("stuck ", ""))
    assert stop.get_by_role("region", name="Change by hand").locator(".come").inner_text().endswith('"at": "the shed"')
    stop.get_by_label("Reason").fill("the door was mended")
    stop.get_by_role("button", name="Change").click()
    stop.get_by_text("the door was mended").wait_for()
    lived.api("/v1/runs", "POST", json={"message": "look at the sun", "session": "besides"})
    stop.get_by_role("button", name="Go on").click()
    expect(stop).to_have_count(0)
    page.get_by_role("button", name="Remove").click()
    page.get_by_text("No breakpoint is set.").wait_for()
    watched.go("/chat/shed").get_by_text("It is clean.").wait_for()

    # Yesterday's failed cycle, and what the rules of today say of it.
    page = watched.go("/timeline")
    page.get_by_label("Only with failures").check()
    page.locator(f"a[href$='{YESTERDAY}']").click()
    page.get_by_text("the door is stuck").first.wait_for()
    page.get_by_role("link", name="Ask the rules of today").click()
    answers = page.get_by_role("table", name="Answers of the rules")
    expect(answers.locator("tbody tr").filter(has_text="does not match")).to_have_count(2)
    expect(answers.locator("tbody tr").filter(has_text="it matches")).to_have_count(1)

    # Last week with the new rules, before they go live.
    text = lived.spar.config.read_text()
    better = text.replace("clean (?P<what>.+)", "clean (?P<what>the [^s].*)")
    (lived.spar.folder / "other.toml").write_text(better)
    done = lived.spar("backtest", "--since", "7d", "--config", "other.toml", "--keep")
    assert done.code == 0, done
    page = watched.go("/rules")
    page.get_by_role("table", name="Calls by rule").wait_for()
    disagreements = page.get_by_role("table", name="Disagreements")
    disagreements.get_by_text("no more: clean by").wait_for()
    disagreements.get_by_role("link").first.click()
    page.get_by_text("clean the stuck").first.wait_for()
    lived.spar.config.write_text(better)
    page = watched.go("/settings")
    page.get_by_role("button", name="Check").click()
    page.get_by_text("A reload changes: rules.").wait_for()
    page.get_by_role("button", name="Reload").click()
    page.get_by_text("Changed: rules.").wait_for()
    lived.spar.config.write_text(text)
    assert lived.api("/v1/agent:reload", "POST").json()["changed"] == ["rules"]
