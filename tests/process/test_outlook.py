"""What a service says that it will do next by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.process.conftest import Service, Spar

pytestmark = pytest.mark.process

CONFIG = """
[agent]
loop_interval = 3600

[[sensors]]
use = "messages"

[[sensors]]
use = "schedule"
name = "tidy"
options = { cron = "0 3 * * *" }

[[sensors]]
use = "mine:Broken"
name = "broken"

[plan]
use = "mine:pay"

[[tools]]
use = "mine:transfer"

[[approval.rules]]
tool = "transfer"
decision = "ask"

[service]
port = 0
"""
PARTS = '''
from spar import Action, Call, tool

@tool(effect="once")
async def transfer(amount: int) -> str:
    """Pay."""
    return "paid"

async def pay(perceptions):
    return Action(calls=[Call("transfer", {"amount": 3})]) if perceptions else None

class Broken:
    async def open(self, ctx):
        raise OSError("no such device")
    async def poll(self):
        return []
'''


def test_looks_schedules_tries_and_expiries_are_listed_the_nearest_first(
    spar: Spar, start: Callable[..., Service]
) -> None:
    (spar.folder / "mine.py").write_text(PARTS)
    spar.write(CONFIG)
    start().ready()
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
