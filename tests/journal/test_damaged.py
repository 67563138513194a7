"""Open cycles whose facts cannot be read: their sessions are put aside, and all others go on."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from memory import Memory
from spar import Agent, facts
from spar.events import ErrorOccurred
from spar.protocols.tools import tool
from spar.records.journal import Item, Unfinished
from spar.testing import ScriptedPlanner, VirtualClock
from spar.types import Action, Call, Perception
from tests.journal.left import tell

PAY = Call("pay", {"amount": 2}, id="b")


async def cut_off(path: Path, damage: str) -> None:
    """Leave two sessions in the middle of a payment, of which the facts of the first are damaged."""
    async with Memory(f"sqlite:///{path}") as memory:
        for session in ("bad", "good"):
            items = [
                Item(f"{session}{number}", Perception("go", session=session), session=session) for number in (1, 2)
            ]
            for item in items:
                await memory.journal.commit(facts.WorkAccepted(session=session, item=item), "main")
            first, cycle = items[0], f"0{session}"
            begun = Unfinished(cycle, session, (first.perception,), (first.id,))
            memory.journal.append(facts.CycleOpened.of(begun), "main")
            memory.journal.append(facts.Planned(session=session, cycle=cycle, action=Action((PAY,), id=session)))
            tell(memory.journal, facts.AttemptStarted, session=session, cycle=cycle, call="b", attempt=1, effect="once")
        await memory.journal.safe()
    connection = sqlite3.connect(path)
    connection.execute(damage)
    connection.commit()
    connection.close()


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE fact SET body = '[' WHERE work = '0bad' AND kind = 'started'",
        "UPDATE fact SET body = '{\"attempt\": \"x\"}' WHERE work = '0bad' AND kind = 'started'",
        "UPDATE fact SET body = '[1]' WHERE work = '0bad' AND kind = 'acting'",
        "UPDATE open_cycle SET body = '[' WHERE id = '0bad'",
    ],
)
async def test_a_session_whose_facts_cannot_be_read_is_put_aside_and_all_others_go_on(
    tmp_path: Path, clock: VirtualClock, damage: str
) -> None:
    path, paid = tmp_path / "memory.db", list[str]()
    await cut_off(path, damage)
    assert not Memory(f"sqlite:///{path}").care.verify().is_whole, "a check before the start finds it"

    @tool(effect="once")
    async def pay(amount: int) -> None:
        paid.append("paid")

    plan: Any = ScriptedPlanner([], then=lambda _: [Call("pay", {"amount": 2})])
    agent = Agent(plan=plan, tools=[pay], memory=Memory(f"sqlite:///{path}"), clock=clock, loop_interval="off")
    errors: list[ErrorOccurred] = []
    agent.events.subscribe(ErrorOccurred, errors.append)
    async with agent:
        await clock.sleep(5.0)
        letters = await agent.recovery.restart.letters.list()
        doubts = await agent.recovery.restart.doubts.list()
    assert [letter.id for letter in letters] == ["bad1", "bad2"]
    assert all("of its session cannot be read" in letter.reason for letter in letters)
    assert [doubt.id for doubt in doubts] == ["0good/b"], "the other session goes on"
    assert paid == ["paid"], "what waited in the other session is done, what waited in this one is not"
    assert {error.error.kind for error in errors} == {"damaged"}
    lines = {line.name: line for line in Memory(f"sqlite:///{path}").care.examine()}
    assert lines["dead letters"].state == "warn"
    assert "2" in lines["dead letters"].found
