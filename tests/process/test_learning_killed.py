"""A service that learns and is killed: what a cycle taught is there as a whole, and nobody learns it twice.

The default configuration, with alerts and remedies of an environment besides. Each call that was carried out stands
in a file of the tools' own, which is the truth that experiences, abilities and the log of cycles are held against.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from memory import Memory
from tests.process.conftest import Service, Spar

pytestmark = pytest.mark.process
KILLS = 1
PART = """
import os
from benchmarks.environments import AlertsAndRemedies, EnvironmentAdapter

class Alerts(AlertsAndRemedies):
    seconds = 0.02

    def step(self, tool, params):
        if tool:
            with open("carried_out", "a") as file:
                file.write(f"{tool}\\\\n")
        return super().step(tool, params)

adapter = EnvironmentAdapter(Alerts(), 100_000, seed=os.getpid(), life=f"life-{os.getpid()}", at_once=True)
clean_disk, restart_service, sync_clock = adapter.tools

def sensor():
    return adapter
""".replace("\\\\n", "\\n")
BESIDES = """
[[sensors]]
use = "alerts_part:sensor"
name = "alerts"

[[plugins]]
use = "alerts_part:adapter"

[[tools]]
use = "alerts_part:clean_disk"

[[tools]]
use = "alerts_part:restart_service"

[[tools]]
use = "alerts_part:sync_clock"

[[rules]]
name = "mend"
when = { source = "alerts" }
[[rules.calls]]
tool = ["clean_disk", "restart_service", "sync_clock"]
"""


def test_what_is_learnt_outlives_kill_9_but_for_the_cycle_in_hand(spar: Spar) -> None:
    (spar.folder / "alerts_part.py").write_text(PART)
    whole = spar.config.read_text().replace("[perception.incidents]", "[perception.incidents]\nenabled = false", 1)
    budgets = 'hour = { calls = "off", effects = 1000'
    assert budgets in whole
    spar.write(whole.replace(budgets, 'hour = { calls = "off", effects = "off"') + BESIDES)
    carried_out = spar.folder / "carried_out"
    for kill in range(KILLS):
        service = Service(spar).ready()
        before = lines(carried_out)
        spar.until(lambda: lines(carried_out) >= before + 15 + 4 * kill, "calls that were carried out", 60)  # noqa: B023
        service.kill()
    service = Service(spar).ready()
    code = service.stop()
    service.kill()  # closes what it was read through
    assert code == 0, service.err
    done = lines(carried_out)

    cycles, late, experiences, trials = asyncio.run(kept(spar.state / "memory.db"))

    assert late <= KILLS, "a cycle that a kill cut off before its call is done again in the next life, too late"
    assert done - KILLS - 1 <= cycles - late <= done, "each kill loses at most the cycle in hand"
    assert experiences == cycles, "an experience is there with its cycle"
    assert trials == cycles, "and so is what it taught of the tools"


def lines(path: Path) -> int:
    return len(path.read_text().splitlines()) if path.exists() else 0


async def kept(path: Path) -> tuple[int, int, int, int]:
    """Return how many calls of the environment the log of cycles, the experiences and the abilities know of, and how
    many of them found that their episode had ended with its process: these were not carried out."""
    async with Memory(f"sqlite:///{path}", read_only=True) as memory:
        cycles = late = 0
        before: Any = None
        while found := await memory.cycles(200, before=before):
            cycles += sum(sum(each["calls"].values()) for each in found)
            for each in [each for each in found if each["calls"]["failed"]]:
                record = await memory.cycle(each["cycle_id"])
                assert record is not None
                assert record.result is not None
                faults = [result.fault.message for result in record.result.results if result.fault is not None]
                late += sum(message.startswith("the episode is over") for message in faults)
            before = found[-1]["cycle_id"]
        experiences = await memory.recall("", 1_000)
        abilities = await memory.rows("ability:main")
    counted = sum(each.count for each in experiences if each.calls)
    trials = sum(row["trials"] for row in abilities.values() if row["task"].partition("/")[0] == row["task"] == "alert")
    return cycles, late, counted, trials
