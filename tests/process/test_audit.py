"""The audit log from outside: who did it, what a kill leaves, what a changed file is told."""

from __future__ import annotations

from collections.abc import Callable

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


def test_a_kill_leaves_the_decision_and_its_entry_or_neither(spar: Spar, start: Callable[..., Service]) -> None:
    (spar.folder / "mine.py").write_text(TOOL)
    spar.write(CONFIG)
    for crash, expected in (
        ("audit.between:1", ("pending", [])), ("approval.committed:1", ("denied", ["approval.deny"]))
    ):  # fmt: skip
        service = start(environ={"SPAR_CRASH": crash}).ready()
        if not service.api("/v1/approvals").json():
            assert spar("send", "--no-wait", "buy milk").code == 0
        asked = until(lambda service=service: service.api("/v1/approvals").json(), "a question")[0]
        assert spar("approvals", "deny", asked["id"], "--yes").code != 0  # it died under it
        service.wait()

        entries = spar("--json", "audit", "list").json  # read from the file of a service that is dead
        (row,) = spar("--json", "approvals", "list", "--status", "all").json

        assert (row["id"], row["status"], [each["action"] for each in entries]) == (asked["id"], *expected), crash
        assert spar("audit", "verify").code == 0
    service = start().ready()
    assert service.api(f"/v1/approvals/{asked['id']}").json()["status"] == "denied"
    until(lambda: not service.agent["open_runs"], "the end of the run, whose call goes on after an answer")
    assert service.stop() == 0
