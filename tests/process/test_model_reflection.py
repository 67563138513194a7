"""A service whose reflector asks the planner's model on the other side of a socket, and is killed meanwhile."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memory import Memory
from spar.types import Experience
from tests.process.conftest import Service, Spar, until
from tests.process.conversation import held
from tests.servers.llm import served
from tests.servers.llm_replies import Reply, says
from tests.servers.llm_requests import Asked, content_of

pytestmark = pytest.mark.process

TOOLS = '''
from spar import tool

@tool(effect="once", approval="auto", brings_untrusted=False)
async def restart(unit: str) -> str:
    """Start a unit again."""
    with open("restarted", "a") as file:
        file.write(unit + "\\n")
    raise RuntimeError("the unit is masked")

@tool(effect="once", brings_untrusted=False)
async def unmask(unit: str) -> str:
    """Let a unit be started."""
    return "done"
'''
CONFIG = """
[agent]
loop_interval = "off"

[runs]
verify_output = false

[[sensors]]
use = "messages"

[plan]
use = "llm"
options = {{ model = {{ name = "scripted", base_url = "{url}" }}, max_tokens = 500, rules_are = "first" }}

[reflect]
use = "model"
options = {{ within = 30 }}

[[tools]]
use = "mine:restart"

[[tools]]
use = "mine:unmask"

[[rules]]
name = "mend"
when = {{ kind = "message" }}
answer = "mended"
on_failure = "I could not"
[[rules.calls]]
tool = "restart"
params = {{ unit = "{{content}}" }}

[log]
format = "json"
"""
LESSON = "a masked unit has to be unmasked before it is started"
ADVICE = {
    "calls": [
        {"call": 1, "cause": "permission", "action": "other_tool", "tool": "unmask", "parameter": "", "after": None}
    ],
    "lesson": LESSON,
}


def advised(advice: Any = ADVICE) -> Reply:
    return says(json.dumps({"output": advice}))


def is_reflection(asked: Asked) -> bool:
    return content_of(asked.messages[0]).startswith("An agent has acted")


def configured(spar: Spar, url: str) -> None:
    (spar.folder / "mine.py").write_text(TOOLS)
    spar.write(CONFIG.format(url=url))


async def kept(path: Path) -> tuple[list[Experience], dict[str, int]]:
    """Return the experiences of a memory, and how many trials there were by the name of the situation."""
    async with Memory(f"sqlite:///{path}", read_only=True) as memory:
        abilities = await memory.rows("ability:main")
        return await memory.recall("", 10), {row["task"]: row["trials"] for row in abilities.values()}


def record(spar: Spar, service: Service) -> dict[str, Any]:
    """Return the record of the last cycle that called something."""
    for each in service.api("/v1/cycles").json():
        if sum(each["calls"].values()):
            found: dict[str, Any] = spar("--json", "cycles", "show", each["cycle_id"]).json
            return found
    raise AssertionError("nothing was called")


def test_a_process_that_is_killed_while_it_asks_loses_nothing_and_learns_once(
    spar: Spar, start: Callable[..., Service]
) -> None:
    gate = threading.Event()
    with served(lambda asked: held(advised(), 0, gate)) as server:
        configured(spar, server.url)
        first = start().ready()
        run_id = spar("send", "--no-wait", "nginx").out.strip()
        until(lambda: server.requests, "the reflector's question")
        first.kill()
        assert is_reflection(server.requests[0])
        gate.set()
        second = start().ready()
        answer = spar("runs", "wait", run_id)
        told = record(spar, second)
        metrics = second.get("/metrics").text
        second.stop()

    assert "I could not" in answer.out
    [carried_out] = spar.folder.rglob("restarted")
    assert carried_out.read_text() == "nginx\n"
    [experience], trials = asyncio.run(kept(spar.state / "memory.db"))
    assert (experience.count, LESSON in experience.lesson) == (1, True)
    assert set(trials.values()) == {1}
    assert len(server.requests) == 2
    assert told["reflection"]["advised"] == "added"
    assert [each["why"] for each in told["notes"] if each["kind"] == "advice"] == ["a call failed"]
    assert 'spar_reflection_requests_total{agent="main",result="added"} 1.0' in metrics


def test_a_reflector_without_a_model_to_ask_is_refused_at_the_start(spar: Spar) -> None:
    configured(spar, "http://127.0.0.1:1/v1")
    assert spar("config", "check").code == 0
    spar.edit('use = "llm"\n', 'use = "rules"\n')
    text = spar.config.read_text()
    spar.write("\n".join(line for line in text.splitlines() if "rules_are" not in line))

    refused = spar("config", "check")

    assert refused.code != 0
    assert "asks the planner's model, and there is none" in refused.out + refused.err
