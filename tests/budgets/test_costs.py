"""What requests to models have cost: summed up on disk, by day, model, session and rule."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from memory import Memory
from planning.llm.planner import ModelPlanner
from planning.ports import Usage
from spar import Agent
from spar.budgets import costs
from spar.budgets.costs import OTHERS, CostRecord
from spar.cli.main import cli
from spar.cli.offline import StoreAlone
from spar.events import ModelAnswered
from spar.operations.operation import Caller
from spar.operations.runs import CostChoice, cost
from spar.ports.costs import Cost, costs_of, days_since
from spar.testing import ScriptedModel, VirtualClock, stream

DAY = datetime(2026, 11, 22, 12, tzinfo=UTC)


class Disk:
    """Rows of an agent by owner, which can be broken."""

    def __init__(self) -> None:
        self.owners: defaultdict[str, dict[str, Any]] = defaultdict(dict)
        self.is_broken, self.reads = False, 0

    async def rows(self, owner: str) -> dict[str, Any]:
        self.reads += 1
        if self.is_broken:
            raise OSError("no disk")
        return dict(self.owners.get(owner, {}))

    async def change(self, changes: Any) -> None:
        raise NotImplementedError

    def of(self, name: str) -> Any:
        disk, owner = self, f"{name}:main"

        class Rows:
            def keep(self, key: str, value: Any, *, cycle_id: str = "") -> None:
                disk.owners[owner][key] = value

            def drop(self, key: str, *, cycle_id: str = "") -> None:
                disk.owners[owner].pop(key)

            async def list(self) -> dict[str, Any]:
                return await disk.rows(owner)

        return Rows()


class Recorded:
    """A record of costs, and what it does in the background."""

    def __init__(self, disk: Disk, at: datetime = DAY) -> None:
        self.now, self.tasks = at, set[asyncio.Task[None]]()
        self.record = CostRecord(disk.of, lambda: self.now, lambda event: (event.run_id or "", ""), self._begin)

    def _begin(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self.tasks.add(asyncio.get_running_loop().create_task(work))

    async def ask(self, session: str, model: str = "good", *, cost: int | None = 30, read: int = 100) -> None:
        self.record.take(answered(session, self.now, model, cost, read))
        await asyncio.gather(*self.tasks, return_exceptions=True)


def answered(session: str, at: datetime, model: str = "good", cost: int | None = 30, read: int = 100) -> ModelAnswered:
    return ModelAnswered(cycle_id="c", run_id=session, started_at=at, at=at, duration=1.0, answered_by=model,
                         input_tokens=read, output_tokens=read // 10, cached_tokens=read // 2, cost=cost)  # fmt: skip


async def test_sums_outlive_the_process_and_are_told_for_the_days_that_are_asked_for() -> None:
    disk = Disk()
    first = Recorded(disk)
    await first.record.begin()
    await first.ask("alice")
    await first.ask("bob", cost=None)
    second = Recorded(disk, DAY + timedelta(days=2))
    await second.record.begin()
    for _ in range(3):
        await second.ask("alice", "better", read=0, cost=None)
    await second.ask("alice")

    week = await costs_of(disk, "main", days_since(DAY, second.now), "session")
    assert week.sums == {"alice": Cost(5, 200, 100, 20, 60, unmeasured=3), "bob": Cost(1, 100, 50, 10, 0, unpriced=1)}
    assert (week.whole.requests, week.recorded_since) == (6, DAY)
    assert list((await costs_of(disk, "main", days_since(DAY, second.now), "day")).sums) == ["2026-11-24", "2026-11-22"]
    disk.reads = 0
    today = await costs_of(disk, "main", days_since(second.now, second.now), "model")
    assert {name: cost.requests for name, cost in today.sums.items()} == {"better": 3, "good": 1}
    assert disk.reads == 2, "the work is that of the days that are asked for"


async def test_sums_of_several_processes_at_the_same_time_are_added() -> None:
    disk = Disk()
    nodes = [Recorded(disk), Recorded(disk)]
    for number, node in enumerate(nodes):
        node.record.mark = (f"node{number}",)
    for node in (*nodes, *nodes, nodes[0]):
        await node.ask("alice")
    assert (await costs_of(disk, "main", [DAY.date()], "session")).sums["alice"].requests == 5


async def test_a_request_reads_nothing_that_an_earlier_one_of_its_day_has_read() -> None:
    disk = Disk()
    recorded = Recorded(disk)
    await recorded.ask("first")
    before = disk.reads
    for number in range(50):
        await recorded.ask(f"s{number}")
    assert disk.reads == before
    assert len(disk.owners[f"costs {DAY.date()}:main"]) == 51


async def test_what_a_memory_refuses_is_written_later() -> None:
    disk = Disk()
    disk.is_broken = True
    record = Recorded(disk)
    await record.ask("alice")
    disk.is_broken = False
    assert (await costs_of(disk, "main", [DAY.date()], "model")).sums == {}
    await record.ask("alice")
    assert (await costs_of(disk, "main", [DAY.date()], "model")).whole.requests == 2


async def test_a_day_of_many_sessions_is_bounded_and_old_days_are_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs, "MOST_ROWS", 3)
    disk = Disk()
    record = Recorded(disk)
    await record.record.begin()
    for number in range(7):
        await record.ask(f"guest {number}")
    assert disk.reads == 2, "no day is looked at that was before the first"
    sums = (await costs_of(disk, "main", [DAY.date()], "session")).sums
    assert {name: cost.requests for name, cost in sums.items()} == {
        "guest 0": 1, "guest 1": 1, "guest 2": 1, OTHERS: 4
    }  # fmt: skip
    record.now = DAY + timedelta(days=405)
    await record.ask("guest")
    assert disk.reads == 2 + 2 + 6 + 1, "the old days since the first are looked at"
    assert not disk.owners["costs 2026-11-22:main"]


async def test_a_row_that_cannot_be_read_is_left_out() -> None:
    disk = Disk()
    await Recorded(disk).ask("alice")
    disk.owners["costs 2026-11-22:main"] |= {"{": 1, "[1]": {"requests": 1}, '["m", "s", "r"]': {"requests": "many"}}
    assert (await costs_of(disk, "main", [DAY.date()], "session")).sums.keys() == {"alice"}


async def test_what_nobody_has_recorded_is_said_and_is_not_nothing() -> None:
    disk = Disk()
    answer = await cost.run(StoreAlone(disk, "main", dict), CostChoice(), Caller("ada"))
    assert [sentence[:22] for sentence in answer.unknown] == ["nothing is recorded yet"[:22]]
    record = Recorded(disk, datetime.now(UTC))
    await record.record.begin()
    await record.ask("alice", cost=None)
    await record.ask("alice", "better")
    answer = await cost.run(StoreAlone(disk, "main", dict), CostChoice(since=record.now), Caller("ada"))
    assert [(row.what, row.money) for row in answer.rows] == [("better", 30), ("good", None)]
    assert (answer.total.money, answer.total.unpriced, answer.total.cached) == (30, 1, 0.5)
    assert len(answer.unknown) == 2
    for ago in (DAY - timedelta(days=1_000), datetime.min.replace(tzinfo=timezone(timedelta(hours=14)))):
        answer = await cost.run(StoreAlone(disk, "main", dict), CostChoice(since=ago), Caller("ada"))
        assert answer.unknown[0].endswith("are not kept")


async def test_the_costs_of_an_agent_in_a_program_are_told_by_the_command(tmp_path: Path, clock: VirtualClock) -> None:
    url, config = f"sqlite:///{tmp_path / 'memory.db'}", tmp_path / "config.toml"
    usage = Usage("good", input_tokens=100, output_tokens=10, cached_tokens=40, cost=30)
    model = ScriptedModel([stream([{"output": "yes"}, usage])] * 2)
    async with Agent(plan=ModelPlanner(model), memory=Memory(url), clock=clock, loop_interval="off",
                     attach=["costs"]) as agent:  # fmt: skip
        for session in ("ada", "bob"):
            await agent.wait((await agent.submit("hello?", session=session)).run_id)
    config.write_text(f'[memory]\nurl = "{url}"\n')

    def ask() -> Any:
        since = f"{clock.now():%Y-%m-%d}"
        arguments = ["-c", str(config), "--json", "cost", "--by", "session", "--since", since]
        result = CliRunner().invoke(cli, arguments, standalone_mode=False)
        assert not result.exception, (result.exception, result.output)
        return json.loads(result.output)

    answer = await asyncio.to_thread(ask)
    assert (answer["total"]["requests"], answer["total"]["money"], answer["total"]["cached"]) == (2, 60, 0.4)
    assert sorted(row["what"] for row in answer["rows"]) == ["ada", "bob"]


def test_an_agent_without_a_model_imports_nothing_for_costs() -> None:
    program = (
        "import sys; from spar import Agent; from memory import Memory; Agent(memory=Memory('sqlite://:memory:')); "
        "assert 'spar.budgets.costs' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
