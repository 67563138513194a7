"""What changed at a real service since a time: told by it, and by the memory of one that was killed."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.process.conftest import PATIENCE, Service, Spar, until

pytestmark = pytest.mark.process

CONFIG = """
[agent]
loop_interval = 0.1
max_interval = 5

[[sensors]]
use = "messages"

[[sensors]]
use = "schedule"
name = "tidy"
options = { cron = "0 3 * * *" }

[[sensors]]
use = "mine:Broken"
name = "broken"

[[sensors]]
use = "tail"
name = "log"
options = { paths = ["app.log"], kind = "log.line", look_every = 0.02, start = "beginning" }

[plan]
use = "mine:plan"

[[tools]]
use = "mine:seen"

[[tools]]
use = "mine:transfer"

[[approval.rules]]
tool = "transfer"
decision = "ask"

[service]
port = 0
"""
MINE = """
from spar import Action, Call, tool

@tool(effect="read", safe_with_untrusted=True)
def seen(count: int) -> int:
    "Count."
    return count

@tool(effect="read")
def look(at: str) -> str:
    "Look."
    return at

@tool(effect="once")
async def transfer(amount: int) -> str:
    "Pay."
    return "paid"

async def plan(perceptions):
    if perceptions and perceptions[0].kind == "message":
        return Action(calls=[Call("transfer", {"amount": 3})])
    return Action(calls=[Call("seen", {"count": len(perceptions)})])

class Broken:
    async def open(self, ctx):
        raise OSError("no such device")
    async def poll(self):
        return []
"""


def test_what_changed_and_what_comes_next_is_told_with_and_without_the_service(
    spar: Spar, start: Callable[..., Service]
) -> None:
    def changes(*arguments: str) -> list[tuple[str, str]]:
        return [(row["kind"], row["what"]) for row in spar("changes", *arguments, "--json").json["rows"]]

    (spar.folder / "mine.py").write_text(MINE)
    (spar.folder / "app.log").write_text("")
    spar.write(CONFIG)
    start().ready()
    assert changes() == []
    (said,) = spar("changes", "--since", "30d", "--json").json["unknown"]
    assert re.fullmatch(r"settings and tools are recorded since 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d \(UTC\)", said)
    assert spar("tokens", "create", "dashboard", "--scopes", "read").code == 0
    spar.edit("max_interval = 5", "max_interval = 9")
    assert spar("reload").code == 0
    with (spar.folder / "app.log").open("a") as log:
        log.write("disk sda1 is full\n")
    known = until(lambda: (rows := changes()) and {"line", "ability"} <= {kind for kind, _ in rows} and rows,
                  "the line and what was learnt", PATIENCE)  # fmt: skip
    assert {("setting", "agent.max_interval"), ("person", "token.create dashboard"), ("line", "log")} <= set(known)
    service = start_again(spar, start)
    assert ("tool", "look") in until(lambda: ("tool", "look") in (rows := changes()) and rows, "the tool", PATIENCE)
    assert {("setting", "tools[mine:look]"), ("setting", "agent.max_interval")} <= set(changes("--kind", "setting"))
    text = " ".join(spar("changes").out.split())
    for shown in ("agent.max_interval 5.0 → 9.0", "look new", "disk sda1 is full", "ability seen at "):
        assert shown in text
    what_comes_next_is_listed_the_nearest_first(spar)
    assert spar("pause").code == 0  # nothing is learnt meanwhile
    running: Any = spar("changes", "--limit", "5", "--json").json["rows"]
    service.kill()
    assert spar("changes", "--limit", "5", "--json").json["rows"] == running


def what_comes_next_is_listed_the_nearest_first(spar: Spar) -> None:
    """Looks, schedules, tries and expiries."""
    spar("send", "--no-wait", "pay them")

    def planned() -> Any:
        rows = spar("--json", "status", "--next").json
        return {"approval", "cycle", "schedule", "sensor"} <= {row["kind"] for row in rows} and rows

    rows = spar.until(planned, "all kinds")
    assert [row["at"] for row in rows] == sorted(row["at"] for row in rows)
    by_kind = {row["kind"]: row for row in rows}
    assert by_kind["schedule"]["of"] == "tidy"
    assert by_kind["schedule"]["at"].endswith("T03:00:00Z")
    assert by_kind["approval"]["what"] == "transfer expires, to a denial"
    assert (by_kind["sensor"]["of"], "no such device" in by_kind["sensor"]["what"]) == ("broken", True)

    def shown() -> str:  # without the next look while a cycle goes on
        text = spar("status", "--next").out
        return text if "looks again" in text else ""

    assert "tidy" in spar.until(shown, "the next look")
    assert spar("status", "--next", "--watch").code == 64


def start_again(spar: Spar, start: Callable[..., Service]) -> Service:
    """Stop the service, and start it with one more tool."""
    assert spar("stop").code == 0
    spar.edit('use = "mine:seen"\n', 'use = "mine:seen"\n[[tools]]\nuse = "mine:look"\n')
    return start().ready()
