"""A running service that follows a log: rotated as logrotate does while it is written, and the service killed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from memory import Memory

pytestmark = pytest.mark.process

CONFIG = """
[agent]
loop_interval = "off"

[[sensors]]
use = "tail"
name = "log"
options = { paths = ["app.log"], kind = "line", look_every = 0.02, start = "beginning" }

[perception.dedup]
enabled = false

[plan]
use = "mine:plan"

[[tools]]
use = "mine:seen"
"""
MINE = """
from spar import Action, Call, tool

@tool(effect="read", safe_with_untrusted=True)
def seen(count: int) -> int:
    "Count."
    return count

async def plan(perceptions):
    with open("planned", "a") as file:
        file.writelines(f"{each.text}\\n" for each in perceptions)
    return Action(calls=[Call("seen", {"count": len(perceptions)})])
"""


class Log:
    """A log and what was written to it."""

    def __init__(self, folder: Path) -> None:
        self.path, self.count, self.turns = folder / "app.log", 0, 0

    def write(self, number: int = 20) -> None:
        with self.path.open("a") as file:
            for _ in range(number):
                file.write(f"line {self.count}\n")
                self.count += 1

    def rotate(self) -> None:
        """Rotate as logrotate does with `copytruncate`."""
        self.turns += 1
        self.path.with_name(f"app.log.{self.turns}").write_bytes(self.path.read_bytes())
        with self.path.open("r+") as file:
            file.truncate(0)


def missing(planned: Path, count: int) -> set[str]:
    """Return the lines that no plan has seen."""
    return {f"line {number}" for number in range(count)} - set(planned.read_text().splitlines())


def is_planned(planned: Path, count: int) -> bool:
    return not missing(planned, count)


async def lines_of(folder: Path) -> Counter[str]:
    """Return the lines that cycles have dealt with, and how often."""
    memory = Memory.open(f"sqlite:///{folder}/state/memory.db")
    async with memory:
        cycles = await memory.cycles(limit=1000)
        records = [await memory.cycle(each["cycle_id"]) for each in cycles]
    done = [record for record in records if record is not None and record.outcome != "interrupted"]
    return Counter(each.text for record in done for each in record.perceptions)


async def test_no_line_is_lost_through_rotations_and_a_kill_and_none_of_a_finished_cycle_comes_again(
    spar: Any, start: Callable[..., Any]
) -> None:
    spar.write(CONFIG)
    (spar.folder / "mine.py").write_text(MINE)
    log, planned = Log(spar.folder), spar.folder / "planned"
    service = start().ready()
    for _ in range(3):
        log.write()
        spar.until(partial(is_planned, planned, log.count), "the lines")
        log.rotate()
        log.write()
    service.kill()  # with whatever it has in hand
    in_hand = {f"line {number}" for number in range(log.count - 60, log.count)}
    log.write()
    last = start().ready()
    log.write(1)

    def is_done() -> bool:
        sensor = last.agent["modules"]["sense"]["sensors"]["log"]
        return sensor["waiting"] == 0 and last.agent["recovery"]["in_hand"] == 0 and sensor["pushed"] > 0

    spar.until(is_done, "the rest of the lines")
    spar.until(lambda: len(missing(planned, log.count)) == 0, "every line")
    spar.until(is_done, "the end of their cycles")
    assert last.stop() == 0

    found = await lines_of(spar.folder)
    assert sorted(found) == sorted(f"line {number}" for number in range(log.count))
    assert {line for line, count in found.items() if count > 1} <= in_hand  # their cycle was cut off
