"""People see and answer what a process that died has left: calls in doubt."""

from __future__ import annotations

import getpass
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.process

#: A tool that dies in the middle of its first call.
PARTS = '''
import os, pathlib
from spar import tool

@tool(effect="once")
async def pay(to: str) -> str:
    """Pay, and say so in a file."""
    with pathlib.Path("paid.txt").open("a") as file:
        file.write(to + "\\n")
    if len(pathlib.Path("paid.txt").read_text().splitlines()) == 1:
        os._exit(137)
    return to
'''
CONFIG = """
[agent]
loop_interval = 0.05

[[sensors]]
use = "messages"

[[rules]]
name = "payments"
when = { kind = "message" }
answer = "under way"

[[rules.calls]]
tool = "pay"
params = { to = "{content}" }

[[tools]]
use = "mine:pay"

[log]
format = "json"
"""


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["calls", "show", ""], "ID is empty"), (["calls", "show", " "], "ID is empty"),
        (["calls", "resolve", "c"], "Missing argument"), (["calls", "resolve", "c", "perhaps"], "'perhaps' is not one"),
        (["calls", "resolve", "c", "done", "--output", "{"], "must be JSON"),
        (["calls", "resolve", "c", "done", "--output", "[" * 9999], "must be JSON"),
        (["calls", "resolve", "c", "failed", "--output", "1"], "'output' goes with 'done' only"),
        (["calls", "resolve", "", "done"], "ID is empty"), (["dead", "show", ""], "ID is empty"),
        (["dead", "retry"], "Missing argument"), (["dead", "drop", ""], "ID is empty"),
    ],
)  # fmt: skip
def test_what_is_typed_wrong_is_said_before_anybody_is_asked(spar: Any, command: list[str], said: str) -> None:
    heard = spar(*command)

    assert (heard.code, heard.out) == (64, "")
    assert said in heard.err


def test_a_call_that_died_is_in_doubt_until_somebody_says_what_became_of_it(
    spar: Any, start: Callable[..., Any]
) -> None:
    (spar.folder / "mine.py").write_text(PARTS)
    spar.write(CONFIG)
    service = start().ready()
    sent = spar("send", "--no-wait", "al\u202eice")
    assert sent.code in (0, 69)  # it may die before it can say so
    assert service.wait() == 137

    service = start().ready()
    (found,) = spar.until(lambda: spar("calls", "list", "--json").json, "a call in doubt")
    waited = spar("runs", "wait", sent.out.strip()) if sent.code == 0 else None

    assert waited is None or (waited.code == 1 and "a call is in doubt: pay" in waited.err), waited
    listed, shown = spar("calls", "list"), spar("calls", "show", found["cycle_id"])
    assert (listed.code, shown.code) == (0, 0)
    assert found["id"] in listed.out
    assert '"to": "al\\u{202e}ice"' in shown.out
    assert "\u202e" not in listed.out + shown.out
    assert "recovery in doubt 1 (spar calls list)" in spar("status").out
    assert service.agent["recovery"]["in_doubt"] == 1
    assert service.get("/readyz").status_code == 200

    for command in (["show", "zz"], ["resolve", "zz", "done"]):
        answer = spar("calls", *command)
        assert (answer.code, answer.out) == (1, ""), command
        assert (
            answer.err
            == f"Error: no call in doubt 'zz'; known: {found['id']}; spar calls list --status all shows them\n"
        ), command

    assert spar.here("calls", "resolve", found["id"], "done", typed=b"n\n").code == 1
    assert [each["id"] for each in spar("calls", "list", "--json").json] == [found["id"]]

    resolved = spar("calls", "resolve", found["id"], "done", "--output", '"paid"', "--by", "the bank")
    again = spar("calls", "resolve", found["id"], "failed")

    by = f"{getpass.getuser()} for the bank"
    assert resolved.code == 0, resolved
    assert resolved.out.startswith(f"done: {found['id']} (pay) by {by}")
    assert '"to": "al\\u{202e}ice"' in resolved.err
    assert again.code == 1
    assert f"is not in doubt any more: it was answered 'done' by {by} at " in again.err
    service.said("call in doubt answered", id=found["id"], answer="done", by=by)
    assert spar("calls", "list").out == "no call is in doubt\n"
    assert (spar.folder / "paid.txt").read_text() == "al\u202eice\n"

    service.stop()
    assert [each["answer"] for each in spar("calls", "list", "--status", "all", "--json").json] == ["done"]
    assert f"by {by}" in spar("calls", "show", found["id"]).out
    (marked,) = spar("--json", "cycles", "show", found["cycle_id"]).json["doubts"]
    assert (marked["answer"], marked["output"]) == ("done", "paid")
    assert "? pay(to=" in spar("cycles", "show", found["cycle_id"]).out
    refused = spar("calls", "resolve", found["id"], "done")
    assert (refused.code, refused.out) == (69, "")
    assert "no service runs" in refused.err
