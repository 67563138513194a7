"""Whatever a module brings, its cycle is closed: the loop goes on, `LoopCompleted` comes, and the run has its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from memory import Memory
from spar import Action, ActionResult, Agent, Call, CallResult, Experience, Perception, Reflection
from spar.events import ErrorOccurred, ExperienceStored, LoopCompleted, RunEnded
from spar.facts import CycleWritten
from spar.records.journal import RowChange
from spar.testing import RecordingStore, ScriptedActor, ScriptedPlanner, ScriptedSense, VirtualClock

CIRCLE: dict[str, Any] = {}
CIRCLE["me"] = CIRCLE


def made(kind: type, **fields: Any) -> Any:
    """A value whose fields are not what they must be."""
    return kind(**fields)


class Notes:
    """A planner that has something kept with its cycle."""

    def __init__(self, note: Callable[[], Any]) -> None:
        self.note = note

    def attach(self, host: Any) -> None:
        self.host = host

    async def plan(self, perceptions: Any, context: Any) -> Action:
        self.host.note(context.cycle_id, self.note)
        return Action(output="done")


async def raises(result: ActionResult) -> Reflection:
    raise ValueError("no lesson")


def acted(**fields: Any) -> Any:
    async def act(action: Action) -> ActionResult:
        return ActionResult(results=[made(CallResult, **{"call": action.calls[0], "status": "ok", **fields})])

    return act


#: What a module brings, which phase is to blame, and how a run ends in which it does so.
PRODUCTS: dict[str, tuple[dict[str, Any], str, str]] = {
    "a circular output": ({"plan": ScriptedPlanner([Action(output=CIRCLE)])}, "plan", "error"),
    "a note that raises": ({"plan": Notes(lambda: 1 / 0)}, "plan", "ok"),
    "a note that is no object": ({"plan": Notes(lambda: 7)}, "plan", "ok"),
    "a raising reflector": ({"reflect": raises}, "reflect", "ok"),
}


@pytest.mark.parametrize("memory", ["none", "store", "journal"])
@pytest.mark.parametrize("case", PRODUCTS)
async def test_a_bad_product_is_an_error_of_its_phase_and_the_loop_goes_on(
    case: str, memory: str, tmp_path: Any
) -> None:
    parts, phase, ends = PRODUCTS[case]
    stores: dict[str, Callable[[], Any]] = {
        "none": lambda: None,
        "store": RecordingStore,
        "journal": lambda: Memory.open(f"sqlite:///{tmp_path}/m.db"),
    }
    usual: dict[str, Any] = {"plan": ScriptedPlanner([Action([Call("x")], output="done")]), "act": ScriptedActor()}
    agent = Agent(**{**usual, **parts}, memory=stores[memory](), loop_interval="off",
                  settings={"agent": {"min_interval": 0.001}, "runs": {"verify_output": False}})  # fmt: skip
    events: list[Any] = []
    for kind in (LoopCompleted, RunEnded, ErrorOccurred):
        agent.events.subscribe(kind, events.append)

    async with agent:
        status = await agent.wait((await agent.submit("hello")).run_id, 20)
        assert agent.state == "running"

    assert status.status == ends
    assert len([event for event in events if isinstance(event, RunEnded)]) == 1
    assert [event for event in events if isinstance(event, LoopCompleted)]
    phases = {event.phase for event in events if isinstance(event, ErrorOccurred)}
    assert phases == ({phase} if memory != "none" or "note" not in case else set())


async def test_a_consequence_that_fails_is_said_and_the_others_come(clock: VirtualClock) -> None:
    """The agent's own bookkeeping breaks, which no module can make it do: the run ends all the same."""
    agent = Agent(plan=ScriptedPlanner([Action([Call("x")], output="done")]), act=ScriptedActor(),
                  memory=RecordingStore(), loop_interval="off", clock=clock)  # fmt: skip
    heard: list[Any] = []
    for kind in (LoopCompleted, ErrorOccurred):
        agent.events.subscribe(kind, heard.append)

    class NoStats:
        def add(self, results: Any) -> None:
            raise RuntimeError("no statistics today")

    agent.account.calls = NoStats()
    async with agent:
        status = await agent.wait((await agent.submit("go")).run_id, 60)

    assert (status.status, status.output, agent.state) == ("ok", "done", "stopped")
    assert [(event.phase, event.error.part, event.error.message) for event in heard if isinstance(event, ErrorOccurred)]
    assert [event.outcome for event in heard if isinstance(event, LoopCompleted)] == ["acted"]


@pytest.mark.parametrize(
    "content", [{(1, 2): 3}, CIRCLE, {"x": object()}], ids=["a tuple as key", "a circle", "an object"]
)
async def test_what_was_noticed_is_remembered_without_a_reflection_whatever_it_is(
    clock: VirtualClock, content: Any
) -> None:
    store = RecordingStore()
    agent = Agent(sense=ScriptedSense([[Perception(content)]]), plan=ScriptedPlanner([Action([Call("x")])]),
                  act=ScriptedActor(), reflect=raises, memory=store, clock=clock)  # fmt: skip

    async with agent:
        await clock.sleep(0.5)
        assert agent.state == "running"

    (experience,) = store.experiences.values()
    assert experience.situation
    assert [cycle.outcome for cycle in store.cycles] == ["failed"]


async def test_a_note_that_cannot_be_kept_is_told_on_the_tape(clock: VirtualClock) -> None:
    store = RecordingStore()
    agent = Agent(plan=Notes(lambda: 1 / 0), memory=store, loop_interval="off", clock=clock)

    async with agent:
        await agent.wait((await agent.submit("go")).run_id, 60)

    (cycle,) = store.cycles
    assert cycle.notes == ({"kind": "unreadable", "phase": "plan", "error": "ZeroDivisionError: division by zero"},)


class RowsOfCycles:
    """A sense module with rows for each cycle."""

    def __init__(self, rows: Callable[[str], Any], *, is_deaf: bool = False, is_broken: bool = False) -> None:
        self.cycle_rows, self.is_deaf, self.is_broken = rows, is_deaf, is_broken

    async def sense(self) -> list[Perception]:
        if self.is_broken:
            raise ValueError("no sensor answers")
        return []

    async def perceive(self, pushed: list[Perception], context: Any) -> list[Perception]:
        return [] if self.is_deaf else pushed


def unheard(cycle_id: str) -> Any:
    raise ValueError("no rows today")


@pytest.mark.parametrize("is_deaf", [False, True], ids=["in a cycle that plans", "in one that has nothing to plan"])
async def test_rows_that_a_sense_module_fails_to_give_are_its_own_error_and_the_work_is_done(
    tmp_path: Any, is_deaf: bool
) -> None:
    memory = Memory.open(f"sqlite:///{tmp_path}/m.db")
    agent = Agent(sense=RowsOfCycles(unheard, is_deaf=is_deaf), plan=ScriptedPlanner([Action(output="done")]),
                  memory=memory, loop_interval="off")  # fmt: skip
    errors: list[ErrorOccurred] = []
    ended = asyncio.Event()
    agent.events.subscribe(ErrorOccurred, errors.append)
    agent.events.subscribe(LoopCompleted, lambda event: ended.set())

    async with memory, agent:
        agent.push(Perception("something"))
        await asyncio.wait_for(ended.wait(), 20)
        assert await memory.journal.views.items(agent.name) == []
        assert agent.recovery.snapshot()["in_hand"] == 0

    assert [(event.phase, event.error.part, event.error.message) for event in errors] == [
        ("sense", "RowsOfCycles", "no rows today")
    ]
    assert agent.account.outcomes["failed"] == 0


async def test_a_row_that_the_journal_refuses_costs_no_other_part_of_a_cycles_end(tmp_path: Any) -> None:
    rows = RowsOfCycles(lambda cycle_id: [RowChange("owner", "key", object())], is_broken=True)
    memory = Memory.open(f"sqlite:///{tmp_path}/m.db")
    agent = Agent(sense=rows, plan=ScriptedPlanner([]), memory=memory, loop_interval="off")
    errors: list[ErrorOccurred] = []
    ended = asyncio.Event()
    agent.events.subscribe(ErrorOccurred, errors.append)
    agent.events.subscribe(LoopCompleted, lambda event: ended.set())

    async with memory, agent:
        agent.push(Perception("something"))
        await asyncio.wait_for(ended.wait(), 20)
        assert [cycle["outcome"] for cycle in await memory.cycles()] == ["failed"]
        assert (await memory.journal.views.counts(agent.name))["outcomes"] == {"failed": 1}

    assert [event.phase for event in errors] == ["sense", "loop"]
    assert "row 'key' of 'owner' cannot be kept" in errors[1].error.message


async def test_an_experience_that_the_journal_refuses_is_not_told_as_stored_and_its_cycle_still_counts(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def reflect(result: ActionResult) -> Reflection:
        return Reflection(experiences=[Experience("it went well")])

    memory = Memory.open(f"sqlite:///{tmp_path}/m.db")
    agent = Agent(plan=ScriptedPlanner([Action([Call("x")], output="done")] * 2), act=ScriptedActor(), reflect=reflect,
                  memory=memory, loop_interval="off", settings={"runs": {"verify_output": False}})  # fmt: skip
    stored: list[ExperienceStored] = []
    agent.events.subscribe(ExperienceStored, stored.append)

    async with memory, agent:
        append, refused = memory.journal.append, list[Any]()

        def refuse(fact: Any, agent: str = "") -> None:
            if isinstance(fact, CycleWritten) and fact.closing.record is not None and not refused:
                refused.append(fact)
                raise ValueError("refused")
            append(fact, agent)

        monkeypatch.setattr(memory.journal, "append", refuse)
        for _ in range(2):
            assert (await agent.wait((await agent.submit("go")).run_id, 60)).status == "ok"
        await memory.flush()
        assert len(refused) == len(stored) == len(await memory.recall()) == len(await memory.cycles()) == 1
        assert agent.agent_state.account["stored"] == 2
        assert (await memory.journal.views.counts(agent.name))["outcomes"] == {"acted": 2}
