"""Releases of two formats on one database: the format rises when all nodes know it, and who does not takes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from memory.postgres import schema
from memory.postgres.cluster.decisions import PARTITIONS
from memory.postgres.cluster.ownership import LeaseOverError
from memory.postgres.store import PostgresMemory
from spar.errors import ConfigError
from spar.types import Fault
from tests.memory.postgres.test_loss import accepted, admin
from tests.waiting import until

#: A format that has a further column, and no longer a table of the first one.
SECOND = schema.Change("ALTER TABLE item ADD COLUMN IF NOT EXISTS second BIGINT", "DROP TABLE only_first")


@pytest.fixture(autouse=True)
def newer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the memories of the test be of a release that knows the second format."""
    monkeypatch.setattr(schema, "CHANGES", (SECOND,))


class Older(PostgresMemory):
    """Memory of a release that knows the first format alone: it knows what this process does when it is opened."""

    async def __aenter__(self) -> Older:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(schema, "CHANGES", ())
            return await super().__aenter__()


@pytest.fixture
async def old(url: str) -> str:
    """Return a database of the first format."""
    async with Older(url):
        pass
    with admin(url) as connection:
        connection.execute("CREATE TABLE only_first ()")
    return url


def state(url: str) -> tuple[list[int], bool, bool]:
    """Return the formats that are there, whether the new column is, and whether the former table is."""
    with admin(url) as connection:
        formats = [row[0] for row in connection.execute("SELECT number FROM spar_format ORDER BY number")]
        columns = connection.execute(
            "SELECT 1 FROM information_schema.columns WHERE table_schema = current_schema() AND column_name = 'second'"
        ).fetchall()
        tables = connection.execute("SELECT to_regclass('only_first')").fetchone()
        return formats, bool(columns), tables != (None,)


FIRST, BOTH, LAST = ([1], False, True), ([1], True, True), ([2], True, False)


def owned(memory: PostgresMemory) -> int:
    return int(memory.nodes.snapshot()["partitions"])


def share(*memories: PostgresMemory) -> Callable[[], bool]:
    """Return whether all nodes own something, and all is owned."""
    return lambda: min(map(owned, memories)) > 0 and sum(map(owned, memories)) == PARTITIONS


async def test_a_node_that_is_alone_changes_the_format_at_once(old: str) -> None:
    async with PostgresMemory(old, nodes=True):
        assert state(old) == LAST


async def test_nodes_of_two_formats_work_side_by_side_until_the_older_one_ends(old: str) -> None:
    first = Older(old, nodes=True)
    await first.__aenter__()
    async with PostgresMemory(old, nodes=True) as second, PostgresMemory(old, nodes=True) as third:
        await until(share(first, second, third))
        assert state(old) == BOTH
        for number, memory in enumerate((first, second, third)):
            await memory.journal.commit(accepted(f"before {number}"), "main")
        rows = await second.nodes.rows()
        assert sorted((row.lowest, row.highest, row.format) for row in rows) == [(1, 1, 1), (1, 2, 1), (1, 2, 1)]
        await first.__aexit__()
        await until(lambda: state(old) == LAST)
        await until(lambda: [memory.nodes.snapshot()["format"] for memory in (second, third)] == [2, 2])  # type: ignore[union-attr]
        for number, memory in enumerate((second, third)):
            await memory.journal.commit(accepted(f"after {number}"), "main")
    with pytest.raises(ConfigError, match="has the format 2 of a later version, known here is 1; it is left unchanged"):
        await Older(old, nodes=True).__aenter__()


async def test_before_the_format_has_risen_nodes_of_the_former_release_take_all_back(old: str) -> None:
    async with Older(old, nodes=True) as first:
        async with PostgresMemory(old, nodes=True) as second:
            await until(share(first, second))
        async with Older(old, nodes=True) as third:
            await until(share(first, third))
            await third.journal.commit(accepted("work"), "main")
        assert state(old) == BOTH


async def test_one_that_comes_back_after_the_format_has_risen_takes_nothing_and_says_so(
    old: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[Fault | None] = []
    async with Older(old, nodes=True) as first, PostgresMemory(old, nodes=True) as second:
        await until(share(first, second))
        first.on_fault = reported.append
        thread, is_away = first.nodes.thread, True
        connect = thread._connect

        def away() -> Any:
            if is_away:
                raise psycopg.OperationalError("no way to the server")
            return connect()

        thread._connect = away
        with admin(old) as connection:
            connection.execute("DELETE FROM node WHERE highest = 1")
        await until(lambda: state(old) == LAST)
        is_away = False
        sentence = "the database has the format 2, known here is 1; upgrade spar on it"
        await until(lambda: first.journal.refusal.endswith(sentence))
        await until(lambda: owned(second) == PARTITIONS)
        rows = {(row.highest, row.format, row.partitions, row.is_alive) for row in await second.nodes.rows()}
        assert rows == {(1, 0, 0, True), (2, 2, PARTITIONS, True)}
        assert [fault.message for fault in reported if fault is not None][-1] == first.journal.refusal
        assert owned(first) == 0
        with pytest.raises(LeaseOverError):
            await first.journal.commit(accepted("late"), "main")
        # A copy of the former format is put back: it works again, and says that, too.
        is_shared = share(first, second)

        def put_back() -> bool:
            if state(old)[0] == [2]:  # it rises again while the first one is not seen alive
                with admin(old) as connection:
                    connection.execute("UPDATE spar_format SET number = 1")
            return is_shared()

        await until(put_back)
        assert reported[-1] is None
        assert first.journal.refusal == ""


async def test_a_process_that_has_the_database_alone_changes_it_at_once_and_ends_all_leases(old: str) -> None:
    async with Older(old, nodes=True):
        pass
    with admin(old) as connection:
        connection.execute("INSERT INTO node SELECT 'x', 'x', 'x', 0, 1e12, 0, 0, 0, 1, 1, 1")
        async with PostgresMemory(old):
            assert state(old) == LAST
            assert connection.execute("SELECT 1 FROM node").fetchone() is None
    async with PostgresMemory(old, read_only=True):
        pass


async def test_a_new_database_has_the_highest_format(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "CHANGES", (SECOND._replace(remove=""),))
    async with PostgresMemory(url, nodes=True):
        assert state(url) == ([2], True, False)


async def test_a_release_that_no_longer_writes_the_format_waits_for_nobody_but_refuses_beside_others(
    old: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "LOWEST", 2)
    with pytest.raises(ConfigError, match="has the older format 1, known here is 2; open it once for writing"):
        await PostgresMemory(old, read_only=True).__aenter__()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schema, "LOWEST", 1)
        first = await Older(old, nodes=True).__aenter__()
    with pytest.raises(
        ConfigError, match="has the older format 1, and other nodes work in it; known here is 2: upgrade"
    ):
        await PostgresMemory(old, nodes=True).__aenter__()
    assert state(old) == FIRST
    await first.__aexit__()
    async with PostgresMemory(old, nodes=True):
        assert state(old) == LAST


async def test_what_reads_a_table_for_long_delays_its_removal_and_costs_no_node_its_lease(old: str) -> None:
    async with Older(old, nodes=True) as first, PostgresMemory(old, nodes=True) as second:
        await until(share(first, second))
        with admin(old) as connection:
            connection.execute("BEGIN; LOCK TABLE only_first IN ACCESS SHARE MODE")
            await first.__aexit__()
            await until(lambda: "lock timeout" in second.nodes.thread.last_error)  # type: ignore[union-attr]
            assert state(old) == ([1, 2], True, True)
            await second.journal.commit(accepted("work"), "main")
            assert second.nodes.ownership.is_valid
            connection.execute("COMMIT")
        await until(lambda: state(old) == LAST)
