"""The debugger's story, word for word: step and look, change and plan again, act with a stub, a breakpoint on one tool
of the running service, a failed cycle decided again, the past decided by new rules before they go live."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tests.process.conftest import Service, Spar

pytestmark = pytest.mark.process

FILER = '''
from pathlib import Path
from spar import tool

@tool(effect="once", brings_untrusted=False, safe_with_untrusted=True)
async def file(name: str, shelf: str) -> str:
    """File a document on a shelf."""
    if shelf == "?":
        raise ValueError("there is no shelf '?'")
    with Path("filed.txt").open("a") as filed:
        filed.write(f"{name} on {shelf}\\n")
    return f"filed {name}"
'''
CONFIG = """
[agent]
loop_interval = "adaptive"
min_interval = 0
[log]
format = "json"
[[sensors]]
use = "directory"
name = "inbox"
options = { path = "inbox", settle = 0 }
[[tools]]
use = "filer:file"
"""
RULES = """
[[rules]]
name = "bills"
when = { kind = "file.added", pattern = "(?i)bill" }
calls = [{ tool = "file", params = { name = "{attributes.name}", shelf = "bills" } }]
stop = true
[[rules]]
name = "the rest"
when = { kind = "file.added" }
calls = [{ tool = "file", params = { name = "{attributes.name}", shelf = "?" } }]
"""
STEPS = """
import asyncio, json
from spar import replace_ as replace, tool
from spar.agent.agent import build_agent
from spar.config.load import load

stubbed = []

@tool(effect="once", brings_untrusted=False, safe_with_untrusted=True)
async def file(name: str, shelf: str) -> str:
    stubbed.append([name, shelf])
    return "stubbed"

async def main():
    agent = build_agent(load("config.toml"), tools=[file])
    (seen,) = await agent.step_sense()
    planned = await agent.step_plan()
    changed = replace(seen, content="the bill of may")
    again = await agent.step_plan([changed])
    result = await agent.step_act()
    await agent.step_reflect()
    await agent.stop()
    shelves = [action.calls[0].params["shelf"] for action in (planned, again)]
    print(json.dumps([seen.content, shelves, result.results[0].output, stubbed]))

asyncio.run(main())
""".replace("replace_ as replace, tool", "tool\nfrom spar.types import replace")


def filed(spar: Spar) -> list[str]:
    file = spar.folder / "filed.txt"
    return file.read_text().splitlines() if file.exists() else []


def test_the_story_of_a_debug_session(spar: Spar, start: Callable[..., Service]) -> None:
    (spar.folder / "filer.py").write_text(FILER)
    spar.write(CONFIG + RULES)

    # `agent.step_sense()`, look; `agent.step_plan()`, look; change the perception, plan again; `step_act` with the tool
    # stubbed.
    spar.drop("may.txt", "to pay: 3")
    (spar.folder / "steps.py").write_text(STEPS)
    with spar.popen([sys.executable, "steps.py"], cwd=spar.folder, env=spar.environ, stdout=-1) as process:
        out, _ = process.communicate(timeout=300)
    seen, shelves, output, stubbed = json.loads(out.decode().splitlines()[-1])
    assert "to pay: 3" in seen
    assert (shelves, output, stubbed) == (["?", "bills"], "stubbed", [["may.txt", "bills"]])
    assert filed(spar) == []
    (spar.inbox / "may.txt").unlink()

    # A breakpoint on one tool of the running service.
    service = start().ready()
    spar("break", "add", "call", "--when", 'tool == "file"')
    spar.drop("june.txt", "the bill of june")
    stop: dict[str, Any] = spar.until(lambda: spar("attach", "--json").json, "the stop")
    assert (stop["session"], stop["call"]["params"]) == ("main", {"name": "june.txt", "shelf": "bills"})
    assert filed(spar) == []
    assert spar("attach", stdin=b'set shelf="bills of june"\ncontinue\n').code == 0
    spar.until(lambda: filed(spar) == ["june.txt on bills of june"], "the call")
    spar("break", "remove", "call-1")

    # Yesterday's failed cycle replayed.
    spar.drop("letter.txt", "dear sirs")
    (failed,) = spar.until(lambda: spar("cycles", "list", "--failed", "--json").json, "the failed cycle")
    assert "calls" in spar("why", failed["cycle_id"]).out
    assert "there is no shelf '?'" in spar("why", failed["cycle_id"]).out
    assert spar.here("cycles", "replay", failed["cycle_id"], "--json").json[0]["verdict"] == "same"

    # Last week backtested with the new rules before they go live.
    (spar.folder / "other.toml").write_text(CONFIG + RULES.replace('shelf = "?"', 'shelf = "letters"'))
    counted = spar("backtest", "--since", "7d", "--config", "other.toml", "--json").json
    assert counted["calls"]["changed"] == 1
    (disagreement,) = counted["disagreements"]
    assert disagreement["first"]["cycle_id"] == failed["cycle_id"]
    assert filed(spar) == ["june.txt on bills of june"]
    spar.write((spar.folder / "other.toml").read_text())
    assert spar("reload").code == 0
    spar.drop("card.txt", "dear friends")
    spar.until(lambda: filed(spar)[-1] == "card.txt on letters", "the call by the new rules")
    assert service.stop() == 0
