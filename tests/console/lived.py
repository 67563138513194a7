"""A service with a past: experiences, abilities, incidents, calls in doubt, dead letters, costs, rules that fired."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

from memory import Memory
from spar import Action, ActionResult, Call, CallResult, CycleRecord, Experience, Fault, Perception, facts
from spar.records.journal import Doubt, Item, RowChange
from tests.process.conftest import Service, Spar, until

#: Text that strangers may send: markup, a link, control characters, other directions, one long word.
HOSTILE = '<img src=x onerror="document.title=1"><script>alert(1)</script> [x](javascript:alert(1)) \u202eevil\u202c'
ARABIC = "القرص ممتلئ على الخادم"
SCRIPTS = "Ωμέγα 漢字仮名 हिन्दी עברית العربية ไทย 한국어 "
LONG = (SCRIPTS * 10)[:256]
#: The id of a cycle of yesterday that failed.
YESTERDAY = "18ea00000000aaaa"
PARTS = '''
from spar import tool

@tool(effect="read", brings_untrusted=False)
async def look(at: str) -> str:
    """Look at something."""
    return f"seen: {at}"

@tool(effect="idempotent", brings_untrusted=False)
async def clean(at: str) -> str:
    """Clean something, which works every other time."""
    if "stuck" in at:
        raise ValueError("the door is stuck")
    return "clean"
'''
CONFIG = """
[agent]
name = "home"
loop_interval = 0.2

[[sensors]]
use = "messages"

[[sensors]]
use = "tests.recorded.parts:Alerts"
name = "alerts"

[[rules]]
name = "look"
when = { kind = "message", pattern = "look at (?P<what>.+)" }
answer = "I looked at {slots.what}."

[[rules.calls]]
tool = "look"
params = { at = "{slots.what}" }

[[rules]]
name = "clean"
when = { kind = "message", pattern = "clean (?P<what>.+)" }
answer = "It is clean."

[[rules.calls]]
tool = "clean"
params = { at = "{slots.what}" }

[[rules]]
name = "عند الامتلاء"
when = { kind = "nothing" }
answer = "-"

[[tools]]
use = "past:look"

[[tools]]
use = "past:clean"

[budgets]
hour = { calls = 500, effects = 20 }
"""


def prepare(spar: Spar) -> None:
    """Write the configuration, the parts and what a former life has left."""
    (spar.folder / "past.py").write_text(PARTS)
    spar.write(CONFIG)
    spar.state.mkdir()
    with ThreadPoolExecutor(1) as pool:  # a browser that is driven from this thread has an event loop in it
        pool.submit(asyncio.run, _former_life(spar.state / "memory.db")).result()


async def _former_life(path: Path) -> None:
    now = datetime.now(UTC)
    async with Memory(f"sqlite:///{path}") as memory:
        work: list[facts.Fact] = []
        for number in range(1, 7):
            call = Call(
                "pay", {"to": "ada", "amount": number, "note": HOSTILE if number == 2 else "rent"}, id=f"pay{number}"
            )
            doubt = Doubt(f"c{number}/pay{number}", call, f"c{number}", at=now - timedelta(hours=number),
                          why="the process died between the start of the call and its end")  # fmt: skip
            work.append(facts.CallDoubted(session="main", doubt=doubt))
            content = LONG if number == 2 else f"print the invoice {number}"
            item = Item(f"letter{number}", Perception(content, id=f"letter{number}"), attempts=3)
            work.append(facts.PutAside(session="main", item=item, reason="planning failed three times: no paper"))
        for back in range(12):
            day = (now - timedelta(days=back)).date()
            for model, session, factor in (("claude-sonnet", "main", 9), ("gpt-mini", LONG, 2)):
                cost = {"requests": factor * (back % 5 + 1), "input_tokens": 9000 * factor * (back % 4 + 1),
                        "cached_tokens": 5000 * factor * (back % 3), "output_tokens": 700 * factor,
                        "money": 21_000 * factor * (back % 6 + 1)}  # fmt: skip
                key = json.dumps([model, session, "clean" if back % 2 else ""])
                work.append(facts.RowsChanged(changes=(RowChange(f"costs {day}:home", key, cost),)))
        since = RowChange("costs:home", "since", (now - timedelta(days=12)).isoformat())
        work.append(facts.RowsChanged(changes=(since,)))
        for fact in work:
            memory.journal.append(fact, "home")
        await memory.journal.safe()
        noticed = Perception("clean the stuck gate", source="messages", kind="message", id="gate", trust="trusted")
        call = Call("clean", {"at": "the stuck gate"}, id="c1")
        action = Action(goal="clean the gate", calls=[call], reason="rule 'clean' matched", perceptions=[noticed])
        failed = CallResult(call, "failed", fault=Fault("error", "the door is stuck"), attempts=1)
        await memory.record(CycleRecord(
            YESTERDAY, "home", "main", now - timedelta(days=1), 0.5, "acted", (noticed,), action,
            ActionResult(action, "failed", results=[failed]), phases={"sense": 0.1, "plan": 0.1, "act": 0.3},
            calls={"ok": 0, "failed": 1, "skipped": 0}))  # fmt: skip
        for number in range(45):
            lesson = f"Ask before cleaning room {number}: the door may be stuck." if number % 3 == 0 else ""
            await memory.store(Experience(
                f"the disk of host {number} is full" if number % 9 else HOSTILE, f"clean({number})", "it took a while",
                success=(True, False, None)[number % 3], lesson=lesson, id=f"e{number:02}", key=f"disk {number}",
                task="message", at=now - timedelta(days=number % 8, minutes=number), session="former",
                trust="untrusted" if number % 9 == 0 else "trusted"))  # fmt: skip
        await memory.store(
            Experience(ARABIC, "انظر", "تم", success=True, lesson="نظف القرص أولا", id="arabic", session=LONG)
        )


def live(service: Service) -> None:
    """Let the service work: rules fire, calls work and fail, alerts open incidents."""
    folder = service.spar.folder
    for text in ("look at the sky", "clean the hall", "clean the stuck door", "look at the sea", "clean the attic",
                 f"look at {HOSTILE}", f"look at {ARABIC}", "clean the stuck gate", "nothing"):  # fmt: skip
        run = service.api("/v1/runs", "POST", json={"message": text}).json()["run_id"]
        until(lambda run=run: service.api(f"/v1/runs/{run}/wait?timeout=5").json()["status"] != "timeout", text)
    (folder / "alerts.txt").write_text("Down firing shop\n")
    until(lambda: service.api("/v1/incidents").json(), "an incident")
    with (folder / "alerts.txt").open("a") as file:
        file.write("Full firing disk\n")
    until(lambda: len(service.api("/v1/incidents").json()) == 2, "another incident")
