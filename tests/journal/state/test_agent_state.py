"""What of an agent outlives it: the numbers of its events above all, also when nobody stopped it."""

from __future__ import annotations

import asyncio
import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from memory import Memory
from spar import Action, Agent, Call, ErrorOccurred, Fault, Perception, tool
from spar.data.learning.abilities import MOST_EXACT, ReadAbilities, ToolTrial, ability_key, evidence_of, learn
from spar.observe.sink import configure
from spar.observe.stats import Snapshot
from spar.records.journal import RowChange
from spar.testing import VirtualClock
from spar.types import Ability, Reflection
from tests.waiting import until


async def test_what_another_process_has_learnt_and_forgotten_is_taken_over(clock: VirtualClock) -> None:
    rows: dict[str, Any] = {}

    def learn_at(process: Any, tool: str, rate: float) -> None:
        learnt = Reflection(abilities=[Ability(tool, "task", rate, 0.1, 1)])
        for change in process.changes(process.learn(learnt, None)):
            rows[change.key] = change.value

    here, there = (Agent(name="main", clock=clock).learning for _ in range(2))
    learn_at(there, "a", 0.2)
    learn_at(here, "b", 0.4)
    await here.refresh(rows)
    assert {known.tool: known.estimate for known in here.known.values()} == {"a": 0.2, "b": 0.4}
    taken = here.known.stored[ability_key("b", "task")]
    await clock.sleep(1.0)
    learn_at(there, "a", 0.3)
    await here.refresh(rows)
    assert here.known[ability_key("a", "task")].estimate == 0.3
    assert here.known.stored[ability_key("b", "task")] is taken
    del rows[ability_key("a", "task")]
    await here.refresh(rows)
    assert [known.tool for known in here.known.values()] == ["b"]
    assert here.unwritten() == []


class States:
    """A store that keeps states and counts what is written."""

    def __init__(self) -> None:
        self.states: dict[str, Any] = {}
        self.saves = 0
        self.on_fault: Callable[[Fault | None], None] = lambda fault: None

    async def store(self, experience: Any) -> None:
        raise AssertionError("nothing is to be remembered")

    async def load(self, key: str) -> Any:
        return self.states.get(key)

    async def save(self, key: str, state: Any) -> None:
        self.saves += 1
        self.states[key] = state


async def test_no_number_of_an_event_is_used_again_after_the_process_was_killed(clock: VirtualClock) -> None:
    store = States()
    async with Agent(memory=store, clock=clock) as agent:
        await asyncio.sleep(30.0)
        agent.events.seq += 500_000  # a busy day
        at_the_kill = dict(store.states)
        used = agent.events.seq

        after = States()
        after.states = at_the_kill
        async with Agent(memory=after, clock=clock) as successor:
            assert successor.events.seq > used


async def test_numbers_are_reserved_again_when_an_agent_is_started_again(clock: VirtualClock) -> None:
    store = States()
    agent = Agent(memory=store, clock=clock)
    for _ in range(2):
        async with agent:
            agent.events.seq += 500_000
            assert store.states["agent:main"]["seq"] > agent.events.seq


async def test_a_memory_that_cannot_write_is_reported_as_an_error(clock: VirtualClock) -> None:
    store = States()
    agent = Agent(memory=store, clock=clock)
    seen: list[ErrorOccurred] = []
    agent.on(ErrorOccurred)(seen.append)
    async with agent:
        store.on_fault(Fault("unavailable", "the disk is full", part="disk"))
        store.on_fault(None)

    assert [(e.cycle_id, e.phase, e.error.message, e.policy) for e in seen] == [
        ("", "memory", "the disk is full", "retry")
    ]


# -- abilities and statistics


@tool(effect="read")
async def breaks() -> int:
    raise RuntimeError("no")


def worker(memory: Any) -> Agent:
    async def plan(perceptions: list[Perception]) -> Action:
        return Action(calls=[Call("breaks")])

    return Agent(plan=plan, tools=[breaks], memory=memory, loop_interval="off")


async def killed(path: Path, messages: int) -> tuple[dict[str, Ability], Snapshot]:
    """What an agent knew when its process was killed: its file is copied as it stands, before anything is closed."""
    async with worker(Memory.open(f"sqlite:///{path}")) as agent:
        for number in range(messages):
            receipt = await agent.submit(f"go {number}")
            await agent.wait(receipt.run_id)
        for name in ("", "-wal"):
            shutil.copy(f"{path}{name}", f"{path}.left{name}")
        return dict(agent.abilities), agent.stats


async def test_abilities_and_statistics_survive_the_death_of_the_process(tmp_path: Path) -> None:
    abilities, stats = await killed(tmp_path / "m.db", 5)

    async with worker(Memory.open(f"sqlite:///{tmp_path}/m.db.left")) as agent:
        found, after = dict(agent.abilities), agent.stats

    assert found == abilities
    assert sum(each.trials for each in found.values()) == after.outcomes["acted"] >= 5
    assert after.outcomes["acted"] == stats.outcomes["acted"]
    assert after.phase_mean_seconds["act"] == pytest.approx(stats.phase_mean_seconds["act"])
    assert after.cycle_mean_seconds > 0


async def test_the_state_of_an_agent_is_kept_whatever_its_size(tmp_path: Path) -> None:
    many = [Ability(f"tool {number}", "x" * 3_000, 0.7, 0.1, 17) for number in range(900)]  # 3 MB
    async with worker(Memory.open(f"sqlite:///{tmp_path}/m.db")) as agent:
        agent.abilities.update({ability_key(each.tool, each.task): each for each in many})

    async with worker(Memory.open(f"sqlite:///{tmp_path}/m.db")) as agent:
        assert agent.abilities == {ability_key(each.tool, each.task): each for each in many}
        del agent.abilities[next(iter(agent.abilities))]

    async with worker(Memory.open(f"sqlite:///{tmp_path}/m.db")) as agent:
        assert len(agent.abilities) == 899


async def test_a_flood_of_things_pushes_out_what_was_learnt_of_things_only() -> None:
    async with worker(None) as agent:
        abilities = agent.learning
        for number in range(3 * MOST_EXACT):
            abilities.learn(Reflection(abilities=[Ability("t", f"alert.disk[host{number}]", 0.7, 0.1, 1)]), None)
            if number == 0:
                abilities.learn(Reflection(abilities=[Ability("rare", "alert.rare", 0.1, 0.1, 9)]), None)

        assert "rare|alert.rare" in agent.abilities
        assert len(agent.abilities) == MOST_EXACT + 1
        assert f"t|alert.disk[host{3 * MOST_EXACT - 1}]" in agent.abilities


async def test_what_another_process_has_forgotten_makes_room_for_other_things(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spar.data.learning.abilities.MOST_EXACT", 2)
    known = [Ability("t", f"alert.disk[host{number}]", 0.7, 0.1, 1) for number in range(4)]
    async with worker(None) as agent:
        abilities = agent.learning
        rows = {
            change.key: change.value
            for change in abilities.changes(abilities.learn(Reflection(abilities=known[:2]), None))
        }
        await abilities.refresh({key: row for key, row in rows.items() if "host0" not in key})

        for ability in known[2:]:
            abilities.learn(Reflection(abilities=[ability]), None)

        assert {ability.task for ability in agent.abilities.values()} == {"alert.disk[host2]", "alert.disk[host3]"}


async def test_a_trial_changes_one_row_however_many_tools_are_known_at_its_task() -> None:
    for tools in (2, 200):
        async with worker(None) as agent:
            abilities = agent.learning
            learnt = learn([ToolTrial(f"tool {number}", "message", True) for number in range(tools)], abilities.known)
            abilities.learn(Reflection(abilities=learnt), None)
            read = ReadAbilities(abilities.known, agent.clock.now)

            trial = Reflection(abilities=learn([ToolTrial("tool 0", "message", False)], read))
            changes = abilities.changes(abilities.learn(trial, read))

            assert [change.key for change in changes] == ["tool 0|message"]
            others = {agent.abilities[f"tool {number}|message"].halvings for number in range(tools)}
            assert others == {abilities.known.halvings_of("message")}


async def test_rows_of_an_earlier_version_fade_with_the_trials_that_come_after_them(tmp_path: Path) -> None:
    known = [Ability("breaks", "message", 0.8, 0.05, 30), Ability("rests", "message", 0.9, 0.05, 30)]
    rows = [msgspec.structs.asdict(each) for each in known]
    for row in rows:
        del row["halvings"], row["prior"]
    async with Memory.open(f"sqlite:///{tmp_path}/m.db") as memory:
        await memory.change(
            [RowChange("ability:main", ability_key(row["tool"], row["task"]), {**row, "tried_at": 1.0}) for row in rows]
        )

    async with worker(Memory.open(f"sqlite:///{tmp_path}/m.db")) as agent:
        assert {key: dict(agent.abilities)[key] for key in agent.abilities} == {
            ability_key(each.tool, each.task): each for each in known
        }
        for number in range(3):
            receipt = await agent.submit(f"go {number}")
            await agent.wait(receipt.run_id)
        trials = agent.abilities["breaks|message"].trials - 30

    async with worker(Memory.open(f"sqlite:///{tmp_path}/m.db")) as agent:
        good, bad = evidence_of(agent.abilities["rests|message"])

    assert trials >= 3
    assert (good, bad) == pytest.approx([0.975**trials * part for part in evidence_of(known[1])])
    assert agent.abilities["breaks|message"].estimate < 0.8


async def test_the_one_value_of_an_older_file_becomes_rows_and_counts_once(tmp_path: Path) -> None:
    former = {"tool": "breaks", "task": "message", "estimate": 0.2, "uncertainty": 0.1, "trials": 3}
    stats = {"outcomes": {"acted": 7}, "errors_by_phase": {"plan": 2}}
    async with Memory.open(f"sqlite:///{tmp_path}/m.db") as memory:
        await memory.save("agent:main", {"seq": 5, "stats": stats, "abilities": [former]})

    for _ in range(2):
        async with worker(Memory.open(f"sqlite:///{tmp_path}/m.db")) as agent:
            assert agent.stats.outcomes["acted"] == 7
            assert agent.stats.errors_by_phase["plan"] == 2
            assert [(each.tool, each.trials) for each in agent.abilities.values()] == [("breaks", 3)]

    async with Memory.open(f"sqlite:///{tmp_path}/m.db") as memory:
        assert list(await memory.load("agent:main")) == ["seq"]
        assert list(await memory.rows("ability:main")) == ["breaks|message"]


async def test_the_order_of_trials_by_which_abilities_are_forgotten_is_known_after_a_restart(tmp_path: Path) -> None:
    async with worker(Memory.open(f"sqlite:///{tmp_path}/m.db")) as agent:
        for kind in ("b", "a", "c", "b"):
            before = agent.stats.outcomes["acted"]
            await agent.accept(Perception("go", kind=kind, trust="trusted"))
            await until(lambda before=before: agent.stats.outcomes["acted"] > before)
        order = list(agent.abilities)

    async with worker(Memory.open(f"sqlite:///{tmp_path}/m.db")) as agent:
        assert list(agent.abilities) == order
        assert [key.partition("|")[2][:1] for key in order] == ["a", "c", "b"]


async def test_the_log_names_what_is_wrong_with_a_memory(clock: VirtualClock) -> None:
    store, out = States(), io.StringIO()
    logs = configure("info", "json", stream=out)
    try:
        async with Agent(memory=store, clock=clock):
            store.on_fault(Fault("damaged", "page 3 is torn", part="memory", retryable=False))
            store.on_fault(Fault("io", "no disk", part="memory"))
    finally:
        logs.close()

    said = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [line["msg"] for line in said if line["level"] == "error"] == ["memory is damaged", "memory cannot write"]
