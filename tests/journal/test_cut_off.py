"""What is cut off, with one process and with nodes: a submission after its commit begins at once, as it is on disk; the
end of a run is told once it is on disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from memory import Memory
from memory.postgres.store import PostgresMemory
from spar import Action, Agent, Perception, failpoints
from spar.events import RunEnded
from spar.journal import restart
from spar.protocols import Context
from tests.doubles import heard
from tests.memory.conftest import server
from tests.waiting import until

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


async def test_the_end_of_a_run_that_is_cut_off_is_told_once_it_is_on_disk(
    memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, disk = asyncio.Event(), asyncio.Event()

    async def plan(perceptions: Sequence[Perception], context: Context) -> Action | None:
        if context.run is not None and context.run.goal == "one":
            begun.set()
            await asyncio.Event().wait()
        return Action(output="done")

    agent = Agent(plan=plan, memory=memory, loop_interval="off", name="main")
    async with agent:
        ended = heard(agent, RunEnded)
        run_id = (await agent.submit("one", session="s")).run_id
        await begun.wait()
        journal = type(agent.core.ledger.journal)
        safe = journal.safe

        async def late(self: Any) -> None:
            await disk.wait()
            await safe(self)

        monkeypatch.setattr(journal, "safe", late)
        second = asyncio.create_task(agent.submit("two", session="s", mode="interrupt"))
        try:
            await until(lambda: run_id not in agent.core.ledger.states["s"].runs)
            await asyncio.sleep(0.05)  # nothing tells that nothing is told
            assert ended == []
            assert (await agent.wait(run_id, 0)).status == "timeout"
        finally:
            disk.set()
        assert (await agent.wait(run_id, 30)).error == "interrupted by a newer message"
        assert (await agent.wait((await second).run_id, 30)).output == "done"
