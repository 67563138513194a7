"""A submission that is cut off after its commit begins at once, with one process and with nodes: it is on disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from memory import Memory
from memory.postgres.store import PostgresMemory
from spar import Action, Agent, Perception, failpoints
from spar.journal import restart
from spar.protocols import Context
from tests.memory.conftest import server

__all__ = ["server"]


@pytest.fixture(params=["file", pytest.param("nodes", marks=pytest.mark.process)])
def memory(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "file":
        return Memory(f"sqlite:///{tmp_path / 'memory.db'}")
    return PostgresMemory(request.getfixturevalue("server").database(), nodes=True)


def cancelling(task: Callable[[], asyncio.Task[Any]]) -> Callable[[str], None]:
    """Return what cancels a task in the transaction that accepts its message: before it hears of the commit."""
    loop = asyncio.get_running_loop()

    def reached(name: str) -> None:
        if name == "sense.before_commit":
            loop.call_soon_threadsafe(task().cancel)

    return reached


async def test_a_submission_that_is_cancelled_after_its_commit_begins_at_once(
    memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restart, "EVERY", 1e6)
    heard = asyncio.Queue[str]()

    async def plan(perceptions: Sequence[Perception], context: Context) -> Action:
        for perception in perceptions:
            heard.put_nowait(perception.text)
        return Action(output="done")

    agent = Agent(plan=plan, memory=memory, loop_interval="off", name="main")
    async with agent:
        submission: asyncio.Task[Any] = asyncio.create_task(agent.submit("hello", session="s", idempotency_key="k"))
        failpoints.armed.append(cancelling(lambda: submission))
        try:
            with pytest.raises(asyncio.CancelledError):
                await submission
        finally:
            failpoints.armed.clear()
        assert await asyncio.wait_for(heard.get(), 30) == "hello"
        receipt = await agent.submit("hello", session="s", idempotency_key="k")
        assert (await agent.wait(receipt.run_id, 30)).output == "done"
        assert heard.empty()
