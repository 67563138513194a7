"""Work that ends the processes that begin it: it is put aside before it ends them all, and other work is not."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import psycopg
import pytest

from memory.postgres.cluster.decisions import LOST_WITHIN
from memory.postgres.store import PostgresMemory
from spar import Agent
from spar.facts import WorkAccepted
from spar.records.journal import MOST_ATTEMPTS, Item
from spar.types import Action, Perception
from tests.cluster.programs import process_cluster

pytestmark = pytest.mark.process


def lose(url: str, seconds_ago: float = 0.0) -> None:
    """Let the present owner of all partitions be a process that ended some seconds ago."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("UPDATE partition SET owner = 'gone', lost_at = lost_at - %s", (seconds_ago,))


async def test_a_partition_is_suspect_after_two_owners_that_did_not_give_it_up(url: str) -> None:
    seen = []
    for seconds_ago in (None, 0.0, 0.0, None, LOST_WITHIN + 1, 0.0):
        if seconds_ago is not None:
            lose(url, seconds_ago)
        async with PostgresMemory(url, nodes=True) as memory:
            assert memory.nodes is not None
            seen.append(memory.nodes.is_suspect("main", "s"))
    assert seen == [False, False, True, True, False, True]


async def test_the_last_attempt_at_a_suspect_is_on_disk_before_it_begins_and_counts_only_if_the_process_dies(
    url: str,
) -> None:
    stored: list[int] = []
    begun, go_on = asyncio.Event(), asyncio.Event()

    def attempts() -> int:
        with psycopg.connect(url) as connection:
            row = connection.execute("SELECT body FROM item WHERE state = 'waiting'").fetchone()
        assert row is not None
        return int(row[0].partition('"attempts":')[2][:1] or 0)

    async def plan(perceptions: Sequence[Perception]) -> Action:
        stored.append(attempts())
        begun.set()
        await go_on.wait()
        return Action(output="done")

    def node() -> Agent:
        memory = PostgresMemory(url, nodes=True)
        return Agent(plan=plan, memory=memory, loop_interval="off", name="main")

    item = Item("r", Perception("x", session="s", kind="message"), "run", "s")
    async with PostgresMemory(url, nodes=True) as memory:
        await memory.journal.commit(WorkAccepted(session="s", item=item), "main")
    lose(url)
    async with PostgresMemory(url, nodes=True):
        pass
    lose(url)
    async with node() as agent, asyncio.timeout(60):
        await begun.wait()
        await agent.stop(deadline=0)  # in the middle of the attempt
    assert stored == [MOST_ATTEMPTS]
    assert attempts() < MOST_ATTEMPTS
    begun.clear()
    go_on.set()
    async with node() as agent:
        assert (await agent.wait("r", 60)).output == "done"
        assert await agent.recovery.restart.letters.list() == []


async def test_a_message_that_ends_its_process_at_once_ends_three_and_is_put_aside(url: str) -> None:
    async with process_cluster(url, 4) as cluster:
        left, status = [*cluster.nodes], None
        while status is None:
            try:
                receipt = await left[0].ask("submit", "s", "key", "poison")
                status = await left[0].ask("wait", receipt["run"])
            except (ConnectionError, BrokenPipeError):
                left.pop(0)
        assert status["status"] == "error"
        assert "the process ended with it in hand" in status["error"]
        ended = [node for node in cluster.nodes if node.has_ended]
        assert len(ended) == 3, ended
        [survivor] = [node for node in cluster.nodes if node not in ended]
        receipt = await survivor.ask("submit", "s", "next", "next")
        assert (await survivor.ask("wait", receipt["run"]))["status"] == "ok"
        assert cluster.done == ["next"]
