"""Texts of a forgotten session: in no row of the database, but experiences and the journal's facts, which stay."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apsw

from acting import Executor
from memory import Memory
from reflection import Reflect
from spar import Action, Agent, Call, Context, Perception, tool
from spar.records.approvals import Approver
from spar.testing import VirtualClock

MARK = "zebrafink"
#: Tables whose rows stay for a while: docs/assistant.md.
STAYING = {"experience", "experience_source", "fact"}


async def plan(perceptions: Sequence[Perception], context: Context) -> Action | None:
    if context.run is None:
        return None
    text = next((each.text for each in perceptions if each.kind == "message"), "")
    if context.run.number > 1 or not text:
        return Action(output=f"answer to {context.session}")
    name = "act" if text.startswith("act") else "look"
    return Action((Call(name, {"what": text}, id="x"),), goal=text)


def agent_of(path: Path, clock: VirtualClock) -> Agent:
    @tool(effect="read", safe_with_untrusted=True)
    async def look(what: str) -> str:
        return f"found {what}"

    @tool(approval="ask")
    async def act(what: str) -> str:
        return f"did {what}"

    act_part = Executor([look, act], settings={"approval": {"hold": 1.0}})
    return Agent(plan=plan, act=act_part, reflect=Reflect(), clock=clock, loop_interval="off",
                 memory=Memory(f"sqlite:///{path}", ballast=0))  # fmt: skip


def marked(path: Path) -> dict[str, set[str]]:
    """Return the sessions whose marked texts are in each table, but for those that stay."""
    found: dict[str, set[str]] = {}
    with apsw.Connection(str(path)) as connection:
        names = "SELECT name FROM sqlite_schema WHERE type = 'table' AND sql NOT LIKE '%VIRTUAL%'"
        for (table,) in connection.execute(names).fetchall():
            for row in connection.execute(f"SELECT * FROM {table}") if table not in STAYING else ():
                texts = " ".join(map(str, row))
                sessions = {name for name in ("alice", "bob") if f"{MARK} {name}" in texts}
                if sessions:
                    found.setdefault(str(table), set()).update(sessions)
    return found


async def asked(approver: Approver, count: int) -> list[Any]:
    for _ in range(2000):
        if len(found := await approver.list()) >= count:
            return list(found)
        await asyncio.sleep(0.01)
    raise AssertionError("nobody was asked")


async def test_no_row_but_experiences_and_facts_has_texts_of_a_forgotten_session(
    clock: VirtualClock, tmp_path: Path
) -> None:
    path = tmp_path / "memory.db"
    async with agent_of(path, clock) as agent:
        approver: Approver = agent.setup.modules["act"].part.approvals
        for session in ("alice", "bob"):
            seen = await agent.submit(f"see {MARK} {session}", session=session)
            assert (await agent.wait(seen.run_id, 600)).status == "ok"
            done = await agent.submit(f"act {MARK} {session} first", session=session)
            (row,) = await asked(approver, 1)
            await approver.decide(row.id, row.digest, "approve", by="ada", grant_for=3600)
            assert (await agent.wait(done.run_id, 600)).status == "ok"
        for session in ("alice", "bob"):
            await agent.submit(f"act {MARK} {session} second", session=session)
        await asked(approver, 2)
        await agent.memory.flush()
        before = marked(path)
        assert await agent.conversations.resets.forget("alice") > 0
        after = marked(path)

    assert {"cycle", "item", "own_row", "record", "transcript"} <= before.keys()
    assert [table for table, sessions in before.items() if "alice" in sessions] == list(before)
    assert [table for table, sessions in after.items() if "alice" in sessions] == []
    assert {table for table, sessions in after.items() if "bob" in sessions} == before.keys()
