"""Breakpoints of a real service, from other processes: set, attached, changed, let go; killed; forgotten."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.process.chatting import Chat
from tests.process.conftest import Spar, until
from tests.process.conversation import House

pytestmark = pytest.mark.process

WRITER = '''
from pathlib import Path
from spar import tool

@tool(effect="once", brings_untrusted=False)
async def write(text: str) -> str:
    """Write a line."""
    with Path("written.txt").open("a") as file:
        file.write(text + "\\n")
    return f"wrote {text}"
'''
CONFIG = """
[agent]
loop_interval = "adaptive"
min_interval = 0
[runs]
limit = 1
[log]
format = "json"
[[sensors]]
use = "messages"
[[tools]]
use = "writer:write"
[[rules]]
name = "keep"
when = { kind = "message" }
calls = [{ tool = "write", params = { text = "{text}" } }]
answer = "kept"
"""


@pytest.fixture(scope="module")
def talking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    spar = Spar(tmp_path_factory.mktemp("debugged"))
    (spar.folder / "writer.py").write_text(WRITER)
    spar.write(CONFIG)
    house = House(spar, None, {})
    yield house
    house.service.kill()


@pytest.fixture
def debugged(talking: House) -> House:
    """A service of all tests that writes each message into a file, with a session x and no breakpoint."""
    for row in talking.spar("break", "list", "--json").json:
        talking.spar("break", "remove", row["name"])
    until(lambda: not talking.service.agent["open_runs"], "the end of what stood")
    (talking.spar.folder / "written.txt").unlink(missing_ok=True)
    assert talking.ask("x", "first") == "kept"
    return talking


@pytest.fixture
def spar(debugged: House) -> Spar:
    return debugged.spar


def written(spar: Spar) -> list[str]:
    file = spar.folder / "written.txt"
    return file.read_text().splitlines() if file.exists() else []


def stop_of(spar: Spar, session: str = "x") -> dict[str, Any]:
    """Wait until a session stands, and return where."""

    def look() -> dict[str, Any] | None:
        answer = spar("attach", session, "--json")
        return answer.json if answer.code == 0 else None

    found: dict[str, Any] = spar.until(look, "the stop")
    return found


def test_a_session_stands_is_looked_at_changed_and_goes_on_from_other_processes(debugged: House, spar: Spar) -> None:
    added = spar("break", "add", "plan", "--session", "x", "--when", 'tool == "write"')
    assert added.code == 0, added
    assert added.out == "set: plan-1; it ends after 10 min unless somebody is attached: spar attach x\n"
    sent = debugged.submit("x", "second")
    stop = stop_of(spar)
    assert (stop["where"], stop["breakpoint"], stop["plan"]["calls"][0]["params"]) == (
        "after plan", "plan-1", {"text": "second"},
    )  # fmt: skip
    # Another session is not disturbed, though there is but one slot for runs.
    assert spar("send", "--session", "y", "besides").out == "kept\n"
    status = spar("status").out
    assert "session 'x' stands at breakpoint 'plan-1', after plan: spar attach x" in status
    assert "stuck" not in status
    (row,) = spar("break", "list", "--json").json
    assert (row["name"], row["state"], row["stands"], row["hits"]) == ("plan-1", "set", ["x"], 1)

    lines = "look\nwhy second is late\nset 1 text=third\nstep\nset text=fourth\ncontinue\n"
    attached = spar("attach", "x", stdin=lines.encode())
    assert attached.code == 0, attached
    said = attached.out
    assert "session x stands after plan: breakpoint 'plan-1'" in said
    assert "1 write(text=second)" in said
    assert "changed by " in said
    assert "session x stands before the call of write: a step" in said
    assert said.endswith("session x goes on before the call of write\n")
    assert debugged.ended(sent)["output"] == "kept"
    assert written(spar) == ["first", "besides", "fourth"]
    assert spar("break", "remove", "plan-1").out == "removed: plan-1\n"
    assert spar("break", "list").out == "no breakpoint is set\n"

    entries = spar("audit", "list", "--json", "--action", "breakpoint").json
    assert [entry["action"] for entry in reversed(entries)] == [
        "breakpoint.add", "breakpoint.change", "breakpoint.go", "breakpoint.change", "breakpoint.go",
        "breakpoint.remove",
    ]  # fmt: skip
    changes = [entry["detail"] for entry in reversed(entries) if entry["action"] == "breakpoint.change"]
    assert [(detail["part"], detail["patch"]) for detail in changes] == [
        ("plan", {"params": {"text": "third"}}), ("call", {"params": {"text": "fourth"}}),
    ]  # fmt: skip
    assert {detail["reason"] for detail in changes} == {"second is late"}

    (cycle,) = [row for row in spar("cycles", "list", "--json").json if "second" in json.dumps(row)]
    why = spar("why", cycle["cycle_id"]).out
    actor = changes[0]["by"]
    assert f", by {actor}, at the point 'plan': second is late" in why
    assert "– write(text=second); kept\n      + write(text=third); kept" in why
    again = spar.here("cycles", "replay", cycle["cycle_id"], "--json").json
    assert "by hand" in json.dumps(again)
    names = [line["msg"] for line in debugged.service.log]
    assert {"breakpoint reached", "changed by hand", "breakpoint left"} <= set(names)


def test_what_stood_at_breakpoints_when_the_service_was_killed_goes_on_as_from_any_crash(
    debugged: House, spar: Spar
) -> None:
    """Three sessions stand where one cycle comes by; one more was changed by hand."""
    points = {"a": "sense", "b": "call", "c": "result", "x": "plan"}
    for session, point in points.items():
        debugged.ask(session, f"{session} is known")
        spar("break", "add", point, "--session", session)
        debugged.submit(session, f"at {point}")
        stop_of(spar, session)
    assert spar("attach", "x", stdin=b"set 1 text=fifth\nstep\nlook\n").code == 0
    before = ["first", *(f"{session} is known" for session in points)]
    debugged.service.kill()
    assert sorted(written(spar)) == sorted([*before, "at result"])
    debugged.live_again()
    done = sorted([*before, "at result", "at sense", "at call", "fifth"])
    spar.until(lambda: sorted(written(spar)) == done, "the calls")
    spar.until(lambda: not debugged.service.agent["open_runs"], "the end of the runs")
    assert [row["call"]["params"]["text"] for row in spar("calls", "list", "--json").json] == ["at result"]
    assert spar("break", "list", "--json").json == []

    (cycle,) = [row for row in spar("cycles", "list", "--json").json if row["session"] == "x" and
                "fifth" in spar("why", row["cycle_id"]).out]  # fmt: skip
    why = spar("why", cycle["cycle_id"]).out
    assert "changed by hand" in why
    assert "– write(text=at plan); kept\n      + write(text=fifth); kept" in why
    left = spar.here("attach", "x", typed=b"")
    assert (left.code != 0, "no breakpoint was set since the start" in left.out + left.err) == (True, True), left


class Attached(Chat):
    """A person at a terminal with `spar attach`."""

    command = "attach"


def test_a_person_at_a_terminal_looks_changes_and_goes_on(debugged: House, spar: Spar) -> None:
    spar("break", "add", "call", "--session", "x", "--lease", "4")
    attached = Attached(spar, "x")
    try:
        attached.shows("waiting until session 'x' stands; Ctrl-C leaves")
        sent = debugged.submit("x", "second")
        attached.shows("x> ")
        attached.say("set text=third")
        attached.shows("x> ", 2)
        attached.say("nonsense")
        attached.shows("no command 'nonsense'; help lists them")
        # Its lease is renewed while it waits for a line.
        lefts = [debugged.service.api("/v1/stops").json()[0]["left"]]

        def is_renewed() -> bool:
            lefts.append(debugged.service.api("/v1/stops").json()[0]["left"])
            return bool(lefts[-1] > lefts[-2])

        spar.until(is_renewed, "the lease")
        attached.say("continue")
        attached.shows("session x goes on before the call of write")
        assert debugged.ended(sent)["output"] == "kept"
        sent = debugged.submit("x", "fourth")
        attached.shows("stands before the call of write", 2)
        assert attached.left() == 0
        assert debugged.ended(sent)["output"] == "kept"
        assert written(spar) == ["first", "third", "fourth"]
    finally:
        attached.close()


WRONG: dict[tuple[str, ...], str] = {
    ("break", "add", "plann"): "'plann' is not one of 'sense', 'plan', 'call', 'result', 'reflect'",
    ("break", "add", "plan", "--session", "nobody"): "no session 'nobody'",
    ("break", "add", "plan", "--when", "tool = 1"): "the condition 'tool = 1' cannot be read",
    ("break", "add", "plan", "--when", "tol == 1"): "did you mean 'tool'?",
    ("break", "add", "plan", "--lease", "0"): "0",
    ("break", "remove", "nothing"): "no breakpoint",
    ("attach", "nobody"): "no session 'nobody'",
    ("attach", "x"): "session 'x' stands at no breakpoint",
}


def test_what_is_wrong_is_said_in_one_sentence(debugged: House, spar: Spar) -> None:
    spar("break", "add", "plan", "--session", "x")
    for arguments, sentence in WRONG.items():
        answer = spar(*arguments)
        assert answer.code not in (0, 70), answer
        assert sentence in answer.err, answer
        assert "Traceback" not in answer.err
