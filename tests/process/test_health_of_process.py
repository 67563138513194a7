"""A process that is not well: what it says, how it ends, and that the next one goes on."""

from __future__ import annotations

import signal
from typing import Any

import pytest

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

TRIVIAL = "async def plan(perceptions):\n    return None\n"


def planner(spar: Any, name: str, code: str) -> None:
    (spar.folder / f"{name}.py").write_text(code)
    spar.edit('[plan]\nuse = "rules"', f'[plan]\nuse = "{name}:plan"')


def test_a_loop_that_fails_again_and_again_ends_the_process_with_70_and_the_next_one_goes_on(
    spar: Any, start: Any
) -> None:
    planner(spar, "broken", BROKEN)
    first = start()

    assert first.wait() == exits.GAVE_UP
    assert first.said("service failed")["reason"].endswith("the loop is broken")
    assert sum(line["msg"] == "loop failed" for line in first.log) == 6  # five restarts, one too many

    (spar.folder / "broken.py").write_text(TRIVIAL)
    again = start().ready()
    assert again.stop() == exits.OK


def test_a_process_that_takes_too_much_memory_drains_and_ends_so_that_it_is_started_again(
    spar: Any, start: Any
) -> None:
    run = ["--set", "service.memory_hard=1", "--set", "service.memory_soft=1"]
    service = start(*run)

    assert service.wait() == exits.UNFINISHED
    assert service.said("health alert", kind="memory")
    assert service.said("recovery step", step="shed")
    assert service.said("recovery step", step="drain")
    assert service.said("state changed", new="stopped")
    assert start().ready().stop() == exits.OK


@pytest.mark.parametrize("blocked", [True, False], ids=["blocked", "free"])
def test_sigusr1_is_answered_also_while_the_event_loop_is_blocked(spar: Any, start: Any, blocked: bool) -> None:
    planner(spar, "blocking", BLOCKING)
    service = start().ready()
    if blocked:
        spar.drop("any.txt", "text")
        spar.until((spar.folder / "blocks").exists, "the module blocking")
        service.said("event loop blocked")

    service.signal(signal.SIGUSR1)

    dump = service.said("state dump", state="running")
    assert (dump["blocked_seconds"] > 0) == blocked
    assert "plan_blocks" in service.said("thread stack", part="MainThread")["stack"] or not blocked
    (spar.folder / "let-go").touch()
    assert service.stop() == exits.OK
    # What its tasks do follows once the loop can tell.
    assert sum(line["msg"] == "state dump" for line in service.log) == 1 + blocked
    assert service.said("task stack", part="main/main")


def test_while_the_disk_is_too_full_messages_are_refused_with_507_and_it_runs(spar: Any, start: Any) -> None:
    service = start("--set", "service.min_free_disk=1000000000000000000").ready()

    assert "min_free_disk" in service.said("health alert", kind="disk")["reason"]
    assert "disk" in service.get("/readyz").json()["alerts"]
    assert service.api("/v1/runs", "POST", json={"message": "hello"}).status_code == 507
    assert service.get("/readyz").status_code == 503
    assert "min_free_disk" in spar("status").out
    assert service.stop() == exits.OK
