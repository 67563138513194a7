"""A process that is not well: what it says, and how it ends."""

from __future__ import annotations

import signal
from typing import Any

from spar.service import exit_codes as exits

BLOCKING = """
import pathlib, time

def plan_blocks():
    pathlib.Path("blocks").touch()
    end = time.monotonic() + 60
    while not pathlib.Path("let-go").exists() and time.monotonic() < end:
        time.sleep(0.02)

async def plan(perceptions):
    plan_blocks()
"""

#: No module can make the loop itself fail: a fault of its own is put into it.
BROKEN = """
import spar.session.sessions

def open_cycle(self):
    raise RuntimeError("the loop is broken")

assert hasattr(spar.session.sessions.Session, "open_cycle")
spar.session.sessions.Session.open_cycle = open_cycle

async def plan(perceptions):
    return None
"""


def planner(spar: Any, name: str, code: str) -> None:
    (spar.folder / f"{name}.py").write_text(code)
    spar.edit('[plan]\nuse = "rules"', f'[plan]\nuse = "{name}:plan"')


def test_a_loop_that_fails_again_and_again_ends_the_process_with_70(spar: Any, start: Any) -> None:
    planner(spar, "broken", BROKEN)
    first = start()

    assert first.wait() == exits.GAVE_UP
    assert first.said("service failed")["reason"].endswith("the loop is broken")
    assert sum(line["msg"] == "loop failed" for line in first.log) == 6  # five restarts, one too many


def test_a_process_that_takes_too_much_memory_drains_and_ends_with_the_code_after_which_it_is_started_again(
    spar: Any, start: Any
) -> None:
    run = ["--set", "service.memory_hard=1", "--set", "service.memory_soft=1"]
    service = start(*run)

    assert service.wait() == exits.UNFINISHED
    assert service.said("health alert", kind="memory")
    assert service.said("recovery step", step="shed")
    assert service.said("recovery step", step="drain")
    assert service.said("state changed", new="stopped")


def dumps(service: Any) -> list[dict[str, Any]]:
    return [line for line in service.log if line["msg"] == "state dump"]


def test_sigusr1_is_answered_also_while_the_event_loop_is_blocked(spar: Any, start: Any) -> None:
    planner(spar, "blocking", BLOCKING)
    service = start().ready()
    service.signal(signal.SIGUSR1)
    assert service.said("state dump", state="running")["blocked_seconds"] == 0
    service.said("task stack", part="main/main")
    spar.drop("any.txt", "text")
    spar.until((spar.folder / "blocks").exists, "the module blocking")
    service.said("event loop blocked")

    service.signal(signal.SIGUSR1)

    spar.until(lambda: dumps(service)[1:], "the second dump")
    assert dumps(service)[1]["blocked_seconds"] > 0
    spar.until(lambda: "plan_blocks" in service.err, "the stack of what blocks")
    (spar.folder / "let-go").touch()
    assert service.stop() == exits.OK
    assert len(dumps(service)) == 3, "what its tasks do follows once the loop can tell"


def test_while_the_disk_is_too_full_messages_are_refused_with_507_and_it_runs(spar: Any, start: Any) -> None:
    service = start("--set", "service.min_free_disk=1000000000000000000").ready()

    assert "min_free_disk" in service.said("health alert", kind="disk")["reason"]
    assert "disk" in service.get("/readyz").json()["alerts"]
    assert service.api("/v1/runs", "POST", json={"message": "hello"}).status_code == 507
    assert service.get("/readyz").status_code == 503
    assert "min_free_disk" in spar("status").out
    assert service.stop() == exits.OK
