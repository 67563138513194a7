"""Small rows change in the transaction of what they belong to, or not at all."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from memory import Memory
from planning import RulesPlanner
from spar import Agent, facts
from spar.errors import TooLargeError
from spar.records.journal import Closing, RowChange, Unfinished
from spar.types import Action, Call, Experience, Perception
from tests.journal.left import tell


async def as_left(path: Path, memory: Memory, owner: str) -> dict[str, Any]:
    """The rows that the next process would find, were this one killed now."""
    await memory.journal.safe()
    left = f"{path}.{time.monotonic_ns()}"
    for name in ("", "-wal"):
        shutil.copy(f"{path}{name}", f"{left}{name}")
    async with Memory.open(f"sqlite:///{left}") as found:
        return await found.rows(owner)


def begin(memory: Memory, cycle_id: str) -> None:
    memory.journal.append(facts.CycleOpened(session="main", cycle=cycle_id), "main")


@pytest.mark.parametrize("is_one_batch", [False, True])
async def test_what_a_cycle_without_a_record_has_learnt_is_kept(tmp_path: Path, is_one_batch: bool) -> None:
    async with Memory.open(f"sqlite:///{tmp_path}/m.db") as memory:
        begin(memory, "c")
        if not is_one_batch:
            await memory.journal.safe()
        closing = Closing("acted", experiences=(Experience("learnt"),), changes=(RowChange("owner", "key", 1),))
        tell(memory.journal, facts.CycleWritten, agent="main", cycle="c", closing=closing)

        assert await memory.rows("owner") == {"key": 1}
        assert [experience.situation for experience in await memory.recall()] == ["learnt"]


async def test_a_row_of_a_cycle_changes_when_it_is_told_what_the_cycle_does(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    async with Memory.open(f"sqlite:///{path}") as memory:
        begin(memory, "c")
        memory.journal.append(facts.RowsChanged(changes=(RowChange("cooldown:main", "rule", 1.0),), cycle="c"))
        assert await as_left(path, memory, "cooldown:main") == {}
        memory.journal.append(facts.Planned(session="main", cycle="c", action=Action((Call("note"),))))
        assert await as_left(path, memory, "cooldown:main") == {"rule": 1.0}


async def test_a_row_of_a_cycle_that_is_to_begin_again_does_not_change(tmp_path: Path) -> None:
    async with Memory.open(f"sqlite:///{tmp_path}/m.db") as memory:
        begin(memory, "c")
        memory.journal.append(facts.RowsChanged(changes=(RowChange("o", "a", 1),), cycle="c"))
        tell(
            memory.journal, facts.CycleWritten, cycle="c", closing=Closing("interrupted", again=Unfinished("c", "main"))
        )

        assert await memory.rows("o") == {}


async def test_changes_belong_together_and_too_large_a_value_is_refused_by_name(tmp_path: Path) -> None:
    async with Memory.open(f"sqlite:///{tmp_path}/m.db") as memory:
        with pytest.raises(TooLargeError, match=r"row 'big' of 'o' is too large .* keep a row for each thing instead"):
            memory.journal.append(
                facts.RowsChanged(
                    changes=(
                        RowChange("o", "a", 1),
                        RowChange("o", "big", "x" * (2 << 20)),
                    )
                )
            )
        with pytest.raises(TooLargeError, match="a key of 'o' is longer"):
            memory.journal.append(facts.RowsChanged(changes=(RowChange("o", "k" * 100_000, 1),)))

        assert await memory.rows("o") == {}


async def test_a_rule_stays_cooled_down_over_the_death_of_the_process(tmp_path: Path) -> None:
    path = tmp_path / "m.db"

    def agent(memory: Memory) -> Agent:
        rules = RulesPlanner([{"name": "load", "when": {"kind": "load"}, "answer": "load is high", "cooldown": 300}])
        return Agent(plan=rules, memory=memory, loop_interval="off")

    async with Memory.open(f"sqlite:///{path}") as memory, agent(memory) as first:
        told = await first.submit(Perception("load is high", kind="load"))
        before = await first.wait(told.run_id)
        await memory.journal.safe()
        for name in ("", "-wal"):
            shutil.copy(f"{path}{name}", f"{path}.left{name}")
    async with Memory.open(f"sqlite:///{path}.left") as memory, agent(memory) as second:
        told = await second.submit(Perception("load is high", kind="load"))
        after = await second.wait(told.run_id)

    assert before.output == "load is high"
    assert after.output is None
