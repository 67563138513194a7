"""Approvals in the console: by keyboard alone, exactly the call that was shown, and with other parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from playwright.sync_api import expect

from tests.console.conftest import Watched, said
from tests.process.conftest import Service, until

#: The statuses of an approved call, before and after it ran.
RAN = ("approved", "used")


def asked(service: Service, message: str) -> dict[str, Any]:
    """Return the newest approval that a message led to."""
    said(service, message, session=message[:40])
    rows = service.api("/v1/approvals").json()
    return next(row for row in rows if row["session"] == message[:40])


def decided(service: Service, id: str) -> dict[str, Any]:
    def record() -> Any:
        row = service.api(f"/v1/approvals/{id}").json()
        return row if row["status"] != "pending" else None

    answer: dict[str, Any] = until(record, "the decision")
    return answer


def test_a_call_is_approved_by_keyboard_alone(world: Service, watch: Callable[..., Watched]) -> None:
    approval = asked(world, "pay 11 by keyboard")
    page = watch("read", "approve").go(f"/approvals/{approval['id']}")
    focused = "document.activeElement.innerText || document.activeElement.value"
    expect(page.get_by_role("heading", name="Run pay?")).to_be_focused()

    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate(focused) == "Approve":
            break
    assert page.evaluate("document.activeElement.tagName") == "BUTTON"
    page.keyboard.press("Enter")
    page.get_by_text("pay: approved").wait_for()

    record = decided(world, approval["id"])
    assert (record["status"] in RAN, record["digest"]) == (True, approval["digest"])
    assert record["decided_by"].startswith("token ")


def test_a_denial_has_its_reason_and_an_edit_its_difference(world: Service, watch: Callable[..., Watched]) -> None:
    one, other = asked(world, "pay 12 to be denied"), asked(world, "pay 13 to be edited")
    watched = watch("read", "approve")
    page = watched.go(f"/approvals/{one['id']}")
    page.get_by_label("Deny").check()
    page.get_by_label("Reason (stored").fill("not on a Friday")
    page.get_by_role("button", name="Deny").click()
    assert decided(world, one["id"])["reason"] == "not on a Friday"

    page = watched.go(f"/approvals/{other['id']}")
    page.get_by_label("Edit").check()
    field = page.get_by_label("Parameters, as JSON")
    field.fill("{")
    page.get_by_role("group", name="Decision").get_by_role("status").get_by_text("This is no JSON").wait_for()
    assert page.get_by_role("button", name="Run with these parameters").get_attribute("aria-disabled") == "true"
    field.fill('{\n  "to": "ada",\n  "amount": 1,\n  "note": "13 to be edited"\n}')
    change = page.get_by_role("region", name="Change of the parameters")
    assert change.locator(".gone").inner_text().strip().endswith('"amount": 13,')
    assert change.locator(".come").inner_text().strip().endswith('"amount": 1,')
    page.get_by_role("button", name="Run with these parameters").click()
    record = decided(world, other["id"])
    assert (record["status"] in RAN, record["call"]["params"]["amount"]) == (True, 1)


def test_another_call_runs_instead_and_a_grant_holds(world: Service, watch: Callable[..., Watched]) -> None:
    one, other = asked(world, "pay 14 to be replaced"), asked(world, "pay 15 often")
    watched = watch("read", "approve")
    page = watched.go(f"/approvals/{one['id']}")
    page.get_by_label("Replace").check()
    page.get_by_label("Call, as JSON").fill('{"_tool": "look", "at": "the bill"}')
    page.get_by_role("button", name="Run this call instead").click()
    assert decided(world, one["id"])["call"]["tool"] == "look"

    page = watched.go(f"/approvals/{other['id']}")
    page.get_by_label("Holds for").select_option("3600")
    page.get_by_role("button", name="Approve").click()
    decided(world, other["id"])
    grants = page.get_by_role("table", name="Grants")
    grants.get_by_text("pay").first.wait_for()
    grants.get_by_role("button", name="Revoke").first.click()
    until(lambda: not world.api("/v1/grants").json(), "the end of the grant")


def test_a_call_that_was_decided_or_changed_meanwhile_is_refused_and_said(
    world: Service, watch: Callable[..., Watched]
) -> None:
    approval = asked(world, "pay 16 twice")
    watched = watch("read", "approve")
    page = watched.go(f"/approvals/{approval['id']}")
    sent: list[Any] = []
    page.on("request", lambda request: request.method == "POST" and sent.append(request.post_data_json))
    changed = {**world.api(f"/v1/approvals/{approval['id']}").json(), "digest": "0" * 64}
    page.route(f"**/v1/approvals/{approval['id']}", lambda route: route.continue_(
        post_data={**route.request.post_data_json, "digest": changed["digest"]})
        if route.request.method == "POST" else route.continue_())  # fmt: skip

    page.get_by_role("button", name="Approve").click()
    page.get_by_role("alert").get_by_text("digest").wait_for()
    assert sent[0]["digest"] == approval["digest"]  # it sends the digest that it showed
    assert world.api(f"/v1/approvals/{approval['id']}").json()["status"] == "pending"
    page.unroute_all()
    body = {"digest": approval["digest"], "decision": "deny"}
    world.api(f"/v1/approvals/{approval['id']}", "POST", json=body)
    page.get_by_role("button", name="Approve").click()
    page.get_by_role("alert").get_by_text("denied").wait_for()
    page.get_by_role("button", name="Show it as it is now").click()
    page.get_by_text("Decided by").wait_for()
    watched.complaints = [text for text in watched.complaints if "status of 409" not in text]  # what is tested
