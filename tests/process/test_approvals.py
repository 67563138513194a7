"""People answer: what asks waits, is shown, runs exactly once when it may, whatever is killed meanwhile."""

from __future__ import annotations

import getpass
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.process.conftest import Service, Spar

pytestmark = pytest.mark.process

TOOL = '''
import pathlib
from spar import tool

@tool(effect="once", approval="ask")
async def deed(text: str) -> str:
    """Do it, and say so in a file."""
    with pathlib.Path("deeds.txt").open("a") as file:
        file.write(text + "\\n")
    return text
'''
CONFIG = """
[agent]
loop_interval = 0.05

[approval]
hold = 0.2
expires = "15m"

[[sensors]]
use = "messages"

[[sensors]]
use = "directory"
name = "inbox"
options = { path = "inbox" }

[[rules]]
name = "deeds"
when = { kind = ["message", "file.added"] }
answer = "under way"

[[rules.calls]]
tool = "deed"
params = { text = "{content}" }

[[tools]]
use = "mine:deed"

[log]
format = "json"
"""


class Asks:
    """A service in whose folder every message and every dropped file asks for a deed."""

    def __init__(self, spar: Spar) -> None:
        self.spar = spar
        (spar.folder / "mine.py").write_text(TOOL)
        spar.write(CONFIG)
        self.service = Service(spar).ready()

    def restart(self, **environ: str) -> None:
        """Killed at once, and begun again with these variables."""
        self.service.kill()
        self.service = Service(self.spar, environ=environ).ready()

    def send(self, text: str) -> dict[str, Any]:
        """A message; the approval that it asks for."""
        before = {found["id"] for found in self.waiting}
        assert self.spar("send", "--no-wait", text).code == 0
        found: dict[str, Any] = self.spar.until(
            lambda: next((each for each in self.waiting if each["id"] not in before), None), f"{text!r} waiting"
        )
        return found

    @property
    def waiting(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.service.api("/v1/approvals").json()
        return found

    def status(self, id: str) -> str:
        found: str = self.service.api(f"/v1/approvals/{id}").json()["status"]
        return found

    def ends(self, id: str, status: str) -> None:
        self.spar.until(lambda: self.status(id) == status, f"approval {status}")

    @property
    def deeds(self) -> list[str]:
        file = self.spar.folder / "deeds.txt"
        return file.read_text().splitlines() if file.exists() else []

    def done(self, *texts: str) -> None:
        """These deeds are done, and, as far as a moment shows, no others."""
        self.spar.until(lambda: self.deeds == list(texts), f"deeds {texts}, found {self.deeds}")
        self.still(*texts)

    def still(self, *texts: str) -> None:
        time.sleep(0.5)  # nothing tells that nothing will happen
        assert self.deeds == list(texts)


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asks]:
    asks = Asks(Spar(tmp_path_factory.mktemp("asks")))
    yield asks
    asks.service.kill()


@pytest.fixture
def asks(asking: Asks) -> Asks:
    """The service of all tests, before any deed."""
    (asking.spar.folder / "deeds.txt").unlink(missing_ok=True)
    return asking


def outputs(spar: Any) -> list[Any]:
    """What deeds brought, by the tape of cycles."""
    cycles = [spar("--json", "cycles", "show", each["cycle_id"]).json for each in spar("--json", "cycles", "list").json]
    results = [result for cycle in cycles if cycle["result"] for result in cycle["result"]["results"]]
    return [result["output"] for result in results if (result["call"]["tool"], result["status"]) == ("deed", "ok")]


# -- the way of a question


def test_what_asks_is_told_shown_approved_and_runs_exactly_once(asks: Asks) -> None:
    spar = asks.spar
    assert spar("approvals", "list").out == "nothing waits for an answer\n"
    assert spar("approvals", "grants").out == "no grants are in force\n"
    assert "wait for approval" not in spar("status").out
    assert spar("status", "--json").json["agent"]["approvals"] == {"pending": 0, "oldest_age_seconds": None}
    spar.drop("request.txt", "buy milk")
    (found,) = spar.until(lambda: asks.waiting, "a question")

    listed = spar("approvals", "list")
    shown = spar("approvals", "show", found["id"])
    status = spar("status")
    assert (listed.code, shown.code) == (0, 0)
    assert found["id"] in listed.out
    assert '"text": "buy milk"' in shown.out
    assert found["digest"] in shown.out
    assert "1 call waits for approval, the oldest for" in status.out
    asks.service.said("approval requested", id=found["id"], tool="deed", session="main")
    assert 'spar_approvals_pending{agent="main"} 1.0' in asks.service.get("/metrics").text
    asks.still()

    approved = spar("approvals", "approve", found["id"], "--reason", "we are out")

    assert approved.code == 0
    assert found["digest"][:12] in approved.out
    assert '"text": "buy milk"' in approved.err
    asks.done("buy milk")
    asks.ends(found["id"], "used")
    now = asks.service.api(f"/v1/approvals/{found['id']}").json()
    assert (now["decided_by"], now["reason"]) == (getpass.getuser(), "we are out")
    asks.service.said("approval resolved", id=found["id"], by=getpass.getuser())
    assert spar("approvals", "list").out == "nothing waits for an answer\n"
    assert found["id"] in spar("approvals", "list", "--status", "all").out
    assert spar.until(lambda: outputs(spar), "the cycle on the tape") == ["buy milk"]
    metrics = asks.service.get("/metrics").text
    assert 'spar_calls_total{agent="main",outcome="ok",tool="deed"} 1.0' in metrics
    assert 'spar_approvals_total{agent="main",decision="approve"} 1.0' in metrics
    assert 'spar_approvals_pending{agent="main"} 0.0' in metrics
    assert "buy milk" not in asks.service.err

    answered = spar("send", "and bread")
    (left,) = asks.waiting
    assert (answered.code, answered.out) == (0, "It is not done yet: deed waits for an approval.\n")
    assert answered.err.startswith("a call waits: deed: it waits for approval '")
    assert spar("approvals", "deny", left["id"], "--yes").code == 0


# -- what is killed, and who is first


def test_killed_while_it_waits_it_still_waits_and_runs_once(asks: Asks) -> None:
    spar, found = asks.spar, asks.send("survive")
    asks.spar.until(lambda: asks.waiting[0]["is_parked"], "the question parked")

    asks.restart()

    assert [(each["id"], each["digest"]) for each in asks.waiting] == [(found["id"], found["digest"])]
    asks.service.said("approval still waits", id=found["id"])
    asks.still()
    assert spar("approvals", "approve", found["id"]).code == 0
    asks.done("survive")
    asks.ends(found["id"], "used")


# -- what is shown, and what is typed


def test_what_is_typed_wrong_is_said_in_a_sentence_and_at_a_terminal_nothing_but_a_yes_is_one(asks: Asks) -> None:
    spar, found = asks.spar, asks.send("careful")
    wrong = [
        (["show", "zzzz"], 1), (["approve", "zzzz"], 1), (["revoke", "zzzz"], 1), (["show", ""], 64), (["approve"], 64),
        (["edit", found["id"]], 64), (["edit", found["id"], "--params", "{"], 64),
        (["edit", found["id"], "--params", "[]"], 64),
        (["edit", found["id"], "--param", "text"], 64), (["replace", found["id"], "{}"], 64),
        (["replace", found["id"], '{"_tool": "nothing"}'], 64), (["approve", found["id"], "--for", "soon"], 64),
        (["approve", found["id"], "--any-session"], 64), (["list", "--status", "odd"], 64),
        (["list", "--status", "odd"], 64),
    ]  # fmt: skip

    for command, code in wrong:
        told = spar("approvals", *command)
        assert told.code == code, (command, told)
        assert told.err.strip(), command
        assert "Traceback" not in told.err
    assert asks.status(found["id"]) == "pending"
    assert [line for line in asks.service.log if line["level"] == "error"] == []

    assert spar.here("approvals", "approve", found["id"], typed=b"\n").code == 1
    assert asks.status(found["id"]) == "pending"
    asks.still()
    assert spar.here("approvals", "approve", found["id"], typed=b"y\n").code == 0
    asks.done("careful")

    # The digest that a script expects must be the one that waits.
    found = asks.send("by digest")
    refused = spar("approvals", "approve", found["id"], "--digest", "0" * 64)
    assert refused.code == 1
    assert found["digest"] in refused.err
    assert asks.status(found["id"]) == "pending"

    assert spar("approvals", "approve", found["id"], "--digest", found["digest"][:8].upper()).code == 0
    asks.done("careful", "by digest")


def test_a_kill_between_a_decision_and_its_entry_leaves_neither(asks: Asks) -> None:
    """What is killed after it finds both: they are one transaction."""
    asks.restart(SPAR_CRASH="audit.between:1")
    asked, spar = asks.send("buy milk"), asks.spar
    assert spar("approvals", "deny", asked["id"], "--yes").code != 0  # it died under it
    asks.service.wait()

    entries = spar("--json", "audit", "list").json  # read from the file of a service that is dead
    assert asked["id"] not in [each["subject"] for each in entries]
    assert [row["id"] for row in spar("--json", "approvals", "list").json] == [asked["id"]]
    assert spar("audit", "verify").code == 0
    asks.restart()
    assert spar("approvals", "deny", asked["id"], "--yes").code == 0
    assert (asks.status(asked["id"]), asks.deeds) == ("denied", [])
    assert spar("--json", "audit", "list").json[0]["action"] == "approval.deny"
    assert spar("audit", "verify").code == 0
