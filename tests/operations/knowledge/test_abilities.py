"""Abilities of tools: as they are now, and how they came about."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from memory import Memory
from planning import RulesPlanner
from spar import Agent, tool
from spar.operations.knowledge.abilities import (
    AbilitiesChoice,
    AbilityRow,
    AbilityTrials,
    HistoryChoice,
    history,
    list_abilities,
)
from spar.operations.operation import Caller

RULES = [
    {"name": "works", "when": {"pattern": "work"}, "calls": [{"tool": "works"}]},
    {"name": "breaks", "when": {"pattern": "break"}, "calls": [{"tool": "breaks"}]},
]


@tool(effect="read")
async def works() -> str:
    """Work."""
    return "fine"


@tool(effect="read")
async def breaks() -> str:
    """Break."""
    raise ValueError("it is broken")


@pytest.fixture
async def store(tmp_path: Path) -> Any:
    """The memory of an agent that has tried two tools, one of which breaks."""
    memory = Memory(f"sqlite:///{tmp_path / 'm.db'}", ballast=0)
    async with Agent(plan=RulesPlanner(RULES), tools=[works, breaks], memory=memory, loop_interval="off") as agent:
        for text in ("work", "work again", "break", "work on"):
            await agent.wait((await agent.submit(text)).run_id, 60)
    return SimpleNamespace(memory=memory, agent_name="main")


async def listed(store: Any, **given: Any) -> list[AbilityRow]:
    async with store.memory:
        return await list_abilities.run(store, AbilitiesChoice(**given), Caller("ann"))


async def tried(store: Any, **given: Any) -> AbilityTrials:
    async with store.memory:
        return await history.run(store, HistoryChoice(**given), Caller("ann"))


async def test_each_tool_has_the_chance_that_it_goes_well(store: Any) -> None:
    before = time.time()
    rows = await listed(store)

    (good, *_), (bad, *_) = ([row for row in rows if row.tool == name] for name in ("works", "breaks"))
    assert good.estimate > 0.5 > bad.estimate
    assert (good.trials, bad.trials) == (3, 1)
    assert abs(good.at.timestamp() - before) < 3600
    assert rows[0].tool == "works"  # the last that was tried
    assert {row.tool for row in await listed(store, tool="breaks")} == {"breaks"}
    assert await listed(store, task="another") == []
    assert len(await listed(store, limit=1)) == 1


async def test_its_history_is_read_from_the_cycles_that_tried_it_page_by_page(store: Any) -> None:
    task = (await listed(store, tool="works"))[0].task
    whole = await tried(store, tool="works", task=task)

    assert whole.before is None
    assert [trial.trials for trial in whole.trials] == [1, 2, 3]
    estimates = [trial.estimate for trial in whole.trials]
    assert estimates == sorted(estimates)
    assert len({trial.cycle_id for trial in whole.trials}) == 3

    pages, before = list[AbilityTrials](), None
    while not pages or before is not None:
        pages.insert(0, await tried(store, tool="works", task=task, limit=1, before=before))
        before = pages[0].before
    assert [trial for page in pages for trial in page.trials] == whole.trials
    last = whole.trials[-1].at
    assert [trial.trials for trial in (await tried(store, tool="works", task=task, since=last)).trials] == [3]
    with pytest.raises(LookupError):
        await tried(store, before="nothing")


async def test_who_has_tried_nothing_has_no_history(tmp_path: Path) -> None:
    store: Any = SimpleNamespace(memory=Memory(f"sqlite:///{tmp_path / 'm.db'}", ballast=0), agent_name="main")

    assert await listed(store) == []
    assert await tried(store) == AbilityTrials([], None)
