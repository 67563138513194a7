"""What is wrong with the database of nodes, or with their clocks: it is told, and they go on once it is right."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace

import psycopg
import pytest

from memory.postgres.cluster import lease
from memory.postgres.cluster.decisions import PARTITIONS, clock_ahead
from memory.postgres.store import PostgresMemory
from spar import Agent
from spar.errors import ConfigError
from spar.types import Fault
from tests.memory.postgres.test_loss import accepted, admin, whole
from tests.waiting import until

#: Makes the rows of a table fail as on a full disk.
FULL = """
CREATE FUNCTION full_disk() RETURNS TRIGGER LANGUAGE plpgsql AS
'BEGIN RAISE EXCEPTION ''could not extend file: No space left on device'' USING ERRCODE = ''disk_full''; END';
CREATE TRIGGER full_disk BEFORE INSERT OR UPDATE ON {} FOR EACH ROW EXECUTE FUNCTION full_disk();
"""


def owned(memory: PostgresMemory) -> int:
    return int(memory.nodes.snapshot()["partitions"])


@pytest.mark.parametrize(
    ("wrong", "right", "sentence"),
    [
        (FULL.format("node"), "DROP TRIGGER full_disk ON node", "No space left on device"),
        (FULL.format("item"), "DROP TRIGGER full_disk ON item", "No space left on device"),
        *(
            (f"ALTER TABLE {table} RENAME TO gone", f"ALTER TABLE gone RENAME TO {table}", f'"{table}" does not exist')
            for table in ("node", "partition", "spar_format", "item")
        ),
    ],
)
async def test_a_full_disk_and_a_table_that_is_gone_are_told_and_the_node_goes_on_once_that_is_over(
    url: str, wrong: str, right: str, sentence: str
) -> None:
    async with PostgresMemory(url, nodes=True) as memory:
        with admin(url) as connection:
            connection.execute(wrong.encode())
            waiting = asyncio.create_task(memory.journal.commit(accepted("first"), "main"))
            await until(lambda: sentence in memory.journal.refusal)
            connection.execute(right.encode())
        await asyncio.wait([waiting])
        await until(lambda: memory.journal.refusal == "" and owned(memory) == PARTITIONS)
        if waiting.exception() is not None:  # what was not acknowledged is not there
            assert whole(url)[1] == set()
            await memory.journal.commit(accepted("first"), "main")
    assert whole(url)[1] == {"first"}


async def test_nodes_refuse_a_server_that_only_reads(url: str) -> None:
    only_reads = url.replace("options=", "options=-cdefault_transaction_read_only%3Don%20")
    with pytest.raises(ConfigError, match=r"is a standby that only reads: let memory.url name the primary"):
        await PostgresMemory(only_reads, nodes=True).__aenter__()


async def test_clusters_of_one_name_in_two_schemas_of_a_database_know_nothing_of_each_other(
    url: str, server: object
) -> None:
    other = server.database()  # type: ignore[attr-defined]
    async with PostgresMemory(url, nodes=True) as first, PostgresMemory(other, nodes=True) as second:
        assert [owned(first), owned(second)] == [PARTITIONS, PARTITIONS]
        await first.journal.commit(accepted("same"), "main")
        await second.journal.commit(accepted("same"), "main")
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("DELETE FROM node")
        await until(lambda: "does not own" in str(first.nodes.ownership.error()) and owned(first) == 0)  # type: ignore[union-attr]
        assert owned(second) == PARTITIONS
        await until(lambda: owned(first) == PARTITIONS)
    assert whole(url)[1] == whole(other)[1] == {"same"}


@pytest.mark.parametrize(("by", "side"), [(3_600.0, "3600 s ahead of"), (-3_600.0, "3600 s behind")])
async def test_a_clock_that_is_off_is_told_once_and_the_node_works(
    url: str, by: float, side: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[Fault | None] = []
    monkeypatch.setattr(lease, "time", SimpleNamespace(time=lambda: time.time() + by))
    memory = PostgresMemory(url, nodes=True)
    memory.on_fault = reported.append
    async with memory:
        await until(lambda: bool(reported))
        assert owned(memory) == PARTITIONS
        await memory.journal.commit(accepted("work"), "main")
    (fault,) = reported
    assert fault.kind == "clock"
    assert f"the clock of this machine is {side} that of the database; leases do not go by it" in fault.message


@pytest.mark.parametrize(
    ("before", "now", "after", "ahead"),
    [(10, 10, 10, 0), (10, 4, 10, 6), (10, 5, 10, 0), (10, 16, 10, -6), (10, 4, 20, 6), (10, 16, 20, 0), (0, 9, 3, -6)],
)
def test_a_clock_is_off_only_beyond_what_the_question_took(before: int, now: int, after: int, ahead: int) -> None:
    assert clock_ahead(before, now, after) == ahead


async def test_an_agent_of_another_name_is_refused_while_nodes_work_for_the_first(url: str) -> None:
    def agent(name: str) -> Agent:
        return Agent(memory=PostgresMemory(url, nodes=True), name=name, loop_interval="off")

    async with agent("a") as first, agent("a"):
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("DELETE FROM node")  # each joins again, for the same agent
            await until(lambda: connection.execute("SELECT agent FROM node").fetchall() == [("a",), ("a",)])
        with pytest.raises(
            ConfigError, match="works for the agent 'a' on this database: give the agent 'b' a database"
        ):
            await agent("b").start()
        assert first.core.state == "running"
    async with agent("b"):
        pass


@pytest.mark.parametrize("nodes", [False, True])
async def test_a_fact_that_was_altered_is_told_at_the_opening(url: str, nodes: bool) -> None:
    async with PostgresMemory(url, nodes=nodes) as memory:
        await memory.keep("row", "a", 1)
    with admin(url) as other:
        other.execute("UPDATE fact SET body = '{}'")

    told: list[Fault] = []
    memory = PostgresMemory(url, nodes=nodes)
    memory.on_fault = lambda fault: told.append(fault) if fault is not None else None
    async with memory:
        await memory.keep("row", "b", 1)

    assert [fault.kind for fault in told] == ["damaged"]
    assert "the chain of facts is broken at number 1" in told[0].message
