"""The audit log from outside: who did it, what a kill leaves, what a changed file is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.process.conftest import Service, Spar, until

pytestmark = pytest.mark.process

TOOL = '''
from spar import tool

@tool(effect="once", approval="ask")
async def deed(text: str) -> str:
    """Do it."""
    return text
'''
CONFIG = """
[agent]
loop_interval = 0.05

[approval]
hold = 0.2

[[sensors]]
use = "messages"

[[rules]]
name = "deeds"
when = { kind = "message" }
answer = "under way"

[[rules.calls]]
tool = "deed"
params = { text = "{content}" }

[[tools]]
use = "mine:deed"

[log]
format = "json"
"""


@pytest.fixture
def begin(spar: Spar, start: Callable[..., Service]) -> Callable[..., Service]:
    (spar.folder / "mine.py").write_text(TOOL)
    spar.write(CONFIG)

    def begun(**given: Any) -> Service:
        return start(**given).ready()

    return begun


def waiting(service: Service) -> dict[str, Any]:
    found: list[dict[str, Any]] = until(lambda: service.api("/v1/approvals").json(), "a question")
    return found[0]


@pytest.mark.parametrize(("crash", "is_done"), [("audit.between:1", False), ("approval.committed:1", True)])
def test_a_kill_leaves_the_decision_and_its_entry_or_neither(
    spar: Spar, begin: Callable[..., Service], crash: str, is_done: bool
) -> None:
    service = begin(environ={"SPAR_CRASH": crash})
    assert spar("send", "--no-wait", "buy milk").code == 0
    asked = waiting(service)
    assert spar("approvals", "deny", asked["id"], "--yes").code != 0  # it died under it
    service.wait()

    entries = spar("--json", "audit", "list").json  # read from the file of a service that is dead
    service = begin()
    status = service.api(f"/v1/approvals/{asked['id']}").json()["status"]

    assert (status, [each["action"] for each in entries]) == (
        ("denied", ["approval.deny"]) if is_done else ("pending", [])
    )
    assert spar("audit", "verify").code == 0
    until(lambda: not service.agent["open_runs"], "the end of the run, whose call goes on after an answer")
    assert service.stop() == 0
