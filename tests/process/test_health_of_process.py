"""A process that is not well: what it says, and how it ends."""

from __future__ import annotations

from typing import Any

from spar.service import exit_codes as exits

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


def test_a_loop_that_fails_again_and_again_ends_the_process_with_70(spar: Any, start: Any) -> None:
    (spar.folder / "broken.py").write_text(BROKEN)
    spar.edit('[plan]\nuse = "rules"', '[plan]\nuse = "broken:plan"')
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


def test_while_the_disk_is_too_full_messages_are_refused_with_507_and_it_runs(spar: Any, start: Any) -> None:
    service = start("--set", "service.min_free_disk=1000000000000000000").ready()

    assert "min_free_disk" in service.said("health alert", kind="disk")["reason"]
    assert "disk" in service.get("/readyz").json()["alerts"]
    assert service.api("/v1/runs", "POST", json={"message": "hello"}).status_code == 507
    assert service.get("/readyz").status_code == 503
    assert "min_free_disk" in spar("status").out
    assert service.stop() == exits.OK
