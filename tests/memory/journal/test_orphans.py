"""Open cycles of agents that are gone hold up nothing, and neither they nor what they did is lost."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from memory import Memory
from memory.journal import orphans
from spar import Agent, Perception, facts
from spar.errors import ConflictError, TooLargeError
from spar.protocols import Host
from spar.records.journal import Closing, Item, Unfinished
from spar.testing import RecordingEvents, VirtualClock
from spar.types import Action, Call, CallResult, Fault
from tests.journal.left import accept, tell
from tests.waiting import until

GO = Call("note", {"text": "x"}, id="a")
THEN = Call("note", {"text": "y"}, id="b")


async def die_in_a_cycle(path: Path, *, agent: str = "old") -> None:
    """A process of an agent dies in a cycle of which one call had ended."""
    async with Memory.open(f"sqlite:///{path}", durability="off") as memory:
        journal, item = memory.journal, Item("p", Perception("go", id="p"))
        await accept(journal, item, agent=agent)
        cut = Unfinished("c-old", "main", (item.perception,), ("p",))
        journal.append(facts.CycleOpened.of(cut), agent)

        journal.append(facts.Planned(session="main", cycle="c-old", action=Action((GO, THEN))))
        tell(journal, facts.AttemptStarted, cycle="c-old", call="a", attempt=1, effect="idempotent")
        journal.append(facts.CallEnded(session="main", cycle="c-old", result=CallResult(GO, "ok", output=7)))
        await journal.safe()


async def work(memory: Memory, cycles: int) -> None:
    """Another agent begins and ends cycles."""
    journal = memory.journal
    for number in range(cycles):
        journal.append(facts.CycleOpened(session="main", cycle=f"c{number}"), "new")

        journal.append(facts.Planned(session="main", cycle=f"c{number}", action=Action((GO,))))
        tell(journal, facts.CycleWritten, agent="new", cycle=f"c{number}", closing=Closing("acted", done=("x",)))
    await journal.safe()


async def tended(memory: Memory) -> int:
    """How many facts are left when all that is due has been done."""

    def tend(connection: Any) -> int:
        while memory._tend(connection):
            pass
        return int(connection.execute("SELECT count(*) FROM fact").get)

    return await memory._file.commit(tend)


async def test_the_facts_of_an_agent_that_is_gone_do_not_keep_all_others(tmp_path: Path) -> None:
    await die_in_a_cycle(tmp_path / "m.db")

    async with Memory.open(f"sqlite:///{tmp_path}/m.db", durability="off", keep_facts=100) as memory:
        await work(memory, 500)
        assert await tended(memory) == 100
        [cycle] = await memory.journal.views.unfinished("old")

    assert [call.id for call in cycle.action.calls] == ["a", "b"]
    assert [(result.call.id, result.status, result.output) for result in cycle.known] == [("a", "ok", 7)]
    assert cycle.perceptions[0].text == "go"


async def test_an_agent_that_comes_back_before_long_goes_on_with_what_was_folded(tmp_path: Path) -> None:
    await die_in_a_cycle(tmp_path / "m.db")
    async with Memory.open(f"sqlite:///{tmp_path}/m.db", durability="off", keep_facts=100) as memory:
        await work(memory, 500)
        await tended(memory)
    made: list[str] = []

    class Acts:
        effect = "idempotent"

        async def act(self, action: Action) -> Any:
            made.extend(call.id for call in action.calls)
            raise RuntimeError("not asked: its calls are known")

    async with (
        Memory.open(f"sqlite:///{tmp_path}/m.db", durability="off") as memory,
        Agent(name="old", act=Acts(), memory=memory, loop_interval="off") as agent,
    ):
        await until(lambda: not agent.recovery.snapshot()["open_cycles"])
        record = await memory.cycle("c-old")

    assert [(each.call.id, each.status) for each in record.result.results] == [("a", "ok")]


async def test_after_an_hour_the_cycle_of_an_agent_that_is_gone_is_a_dead_letter_and_that_is_told(
    tmp_path: Path, clock: VirtualClock
) -> None:
    await die_in_a_cycle(tmp_path / "m.db")
    told: list[Fault | None] = []

    memory = Memory.open(f"sqlite:///{tmp_path}/m.db", durability="off")
    memory.attach(Host("new", clock, RecordingEvents(), None, lambda: None))
    async with memory:
        memory.on_fault = told.append
        memory.journal.claim("new", clock)
        await tended(memory)
        assert await memory.journal.views.dead_letters("new") == []
        await clock.sleep(orphans.AFTER)
        await tended(memory)
        await asyncio.sleep(0)
        [letter] = await memory.journal.views.dead_letters("new")
        assert await memory.journal.views.unfinished("old") == []
        assert await memory.journal.views.items("old") == []

    assert (letter.id, letter.item.perception.text) == ("p", "go")
    assert letter.reason == "its agent 'old' is gone: it was not started again; of its calls: note ok, 1 not begun"
    [fault] = [each for each in told if each is not None and each.kind == "gone"]
    assert "c-old" in fault.message


# -- two of one name


async def test_a_second_living_agent_of_one_name_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    async with Memory.open(f"sqlite:///{tmp_path}/m.db") as memory:
        async with Agent(memory=memory, loop_interval="off") as first:
            with pytest.raises(ConflictError, match="an agent named 'main' works with this memory already"):
                await Agent(memory=memory, loop_interval="off").start()
            async with Agent(memory=memory, name="other", loop_interval="off"):
                receipt = await first.submit("still there")
                assert (await first.wait(receipt.run_id)).status == "ok"
        async with Agent(memory=memory, loop_interval="off") as next_one:
            assert next_one.state == "running"


# -- nothing is cut in silence


async def test_work_that_is_too_large_is_refused_and_not_cut(tmp_path: Path) -> None:
    async with Memory.open(f"sqlite:///{tmp_path}/m.db") as memory:
        with pytest.raises(TooLargeError, match="perception 'big' is too large to be accepted: at most 16 MiB"):
            await accept(memory.journal, Item("big", Perception("x" * (17 << 20), id="big")))
        large = Perception("x" * (9 << 20), id="large")
        await accept(memory.journal, Item("large", large))
        [item] = await memory.journal.views.items("main")

    assert item.perception == large


async def test_keys_that_are_longer_than_a_column_stay_different(tmp_path: Path) -> None:
    async with Memory.open(f"sqlite:///{tmp_path}/m.db") as memory:
        one, two = ("k" * 70_000 + end for end in "12")
        first = await accept(memory.journal, Item("a", Perception("x"), key=one))
        second = await accept(memory.journal, Item("b", Perception("x"), key=two))
        again = await accept(memory.journal, Item("c", Perception("x"), key=one))

    assert first is second is None
    assert again is not None
