"""Several nodes on one database: each writes what it owns, and nothing after another node has taken it."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import Collection, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest

from memory import cycle_log
from memory.journal.handover import NO_ORIGIN
from memory.postgres.cluster import ownership, rows
from memory.postgres.cluster.decisions import PARTITIONS, partition_of
from memory.postgres.cluster.lease import LOOK_EVERY, LeaseThread
from memory.postgres.cluster.nodes import ClusterNodes
from memory.postgres.cluster.ownership import LeaseOverError
from memory.postgres.cluster.writing import NodeTransactions, SharedBatch
from memory.postgres.pipeline import Pipeline
from memory.postgres.server import connect, parsed
from memory.postgres.store import PostgresMemory
from spar import Action, Agent, Experience, facts
from spar.errors import ConfigError
from spar.ports.nodes import NodeRequest
from spar.records.journal import Closing, Item, RowChange
from spar.types import CycleRecord, Fault, Perception
from tests.memory.postgres.test_loss import whole
from tests.process.template import ROOT, Forked, clean_environ
from tests.waiting import until

pytestmark = pytest.mark.process

START = datetime(2026, 1, 1, tzinfo=UTC)

#: A node that writes facts in all sessions without a pause, and says which were acknowledged.
WRITES = """
import asyncio, os, sys
from memory.postgres.store import PostgresMemory
from spar import facts
from spar.errors import SparError
from spar.records.journal import RowChange

async def main(url, name):
    async with PostgresMemory(url, nodes=True) as memory:
        number = 0
        while True:
            await asyncio.sleep(0.002)
            session = f"s{number % 40}"
            if not memory.nodes.owns("main", session):
                number += 1
                continue
            cycle = f"{name}-{number}"
            number += 1
            try:
                memory.journal.append(facts.CycleOpened(session=session, cycle=cycle), "main")
                memory.journal.append(facts.RowsChanged(changes=(RowChange("n:main", cycle, 1),)), "main")
                await memory.journal.safe()
            except SparError as error:
                os.write(1, b"lost\\n")
            else:
                os.write(1, f"written {cycle}\\n".encode())

asyncio.run(main(*sys.argv[1:]))
"""


def writing(url: str, name: str) -> Forked:
    command, environ = [sys.executable, "-c", WRITES, url, name], {**clean_environ(), "PYTHONPATH": str(ROOT)}
    return Forked(command, env=environ, stdout=subprocess.PIPE)


def owners(url: str) -> dict[int, tuple[str | None, int]]:
    with psycopg.connect(url) as connection:
        return {id: (owner, epoch) for id, owner, epoch in connection.execute("SELECT id, owner, epoch FROM partition")}


def newest(url: str) -> tuple[int, int]:
    """Return the number of the last fact, and that of the last cycle of the process."""
    sql = "SELECT max(seq), max(substr(work, 3)::int) FILTER (WHERE work LIKE 'a-%') FROM fact"
    with psycopg.connect(url) as connection:
        row = connection.execute(sql).fetchone()
    assert row is not None
    return row


def work_of(session: str, id: str) -> facts.WorkAccepted:
    return facts.WorkAccepted(session=session, item=Item(id, Perception("x", session=session), "run", session, key=id))


async def test_two_nodes_share_all_partitions_and_the_one_that_is_left_takes_all(url: str) -> None:
    first = PostgresMemory(url, nodes=True)
    async with first:
        assert first.nodes.snapshot()["partitions"] == PARTITIONS
        async with PostgresMemory(url, nodes=True) as second:
            nodes = first.nodes, second.nodes

            async def are_shared() -> bool:
                numbers = [node.snapshot()["partitions"] for node in nodes]
                return sum(numbers) == PARTITIONS and min(numbers) > 0

            await until(are_shared)
            rows = await second.nodes.rows()
            assert sum(row.partitions for row in rows) == PARTITIONS
            assert all(row.is_alive for row in rows)
            for number in range(40):
                assert [node.owns("main", f"s{number}") for node in nodes].count(True) == 1
        await until(lambda: first.nodes.snapshot()["partitions"] == PARTITIONS)
        assert len(await first.nodes.rows()) == 1


async def test_accepted_work_is_one_for_all_nodes_and_its_owner_hears_of_it(url: str) -> None:
    async with PostgresMemory(url, nodes=True) as first, PostgresMemory(url, nodes=True) as second:
        memories = first, second
        nodes = [memory.nodes for memory in memories if memory.nodes is not None]
        await until(lambda: min(node.snapshot()["partitions"] for node in nodes) > 0)
        arrived: list[str] = []

        class Listener:
            def gained(self) -> None: ...
            def lost(self) -> None: ...
            def leaving(self) -> None: ...
            def arrived(self, requests: object) -> None:
                arrived.extend("x" for _ in requests)  # type: ignore[attr-defined]

        for node in nodes:
            node.listen(Listener())
        known = await asyncio.gather(
            *(memories[number % 2].journal.commit(work_of("s1", "key"), "main") for number in range(50))
        )
        assert [item is None for item in known].count(True) == 1
        for memory in memories:
            assert len(await memory.journal.views.items("main")) == 1
        await until(lambda: len(arrived) == 25)


async def test_rows_of_a_lost_partition_are_left_out_and_the_others_are_written(url: str) -> None:
    async with PostgresMemory(url, nodes=True) as memory:
        taken, other = partition_of("main", "s1"), partition_of("main", "s2")
        assert taken != other
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("UPDATE partition SET owner = 'x', epoch = epoch + 1 WHERE id = %s", (taken,))
        for session in ("s1", "s2"):
            cursors = {f"cursor of {session}": 1}
            memory.journal.append(facts.CycleOpened(session=session, cycle=f"in {session}", cursors=cursors), "main")
        with pytest.raises(LeaseOverError):
            await memory.journal.safe()
        assert not memory.nodes.owns("main", "s1")
        assert memory.nodes.owns("main", "s2")
        assert memory.nodes.snapshot()["fenced"] == 1
        memory.journal.append(facts.CycleOpened(session="s1", cycle="later"), "main")
        with pytest.raises(LeaseOverError):
            memory.journal.append(
                facts.AttemptStarted(session="s1", cycle="later", call="1", attempt=1, effect="once"), "main"
            )
        await memory.journal.safe()
        assert memory.journal.open_cycles == 1
        with psycopg.connect(url) as connection:
            assert [row[0] for row in connection.execute("SELECT id FROM open_cycle")] == ["in s2"]
            cursors_there = connection.execute("SELECT key FROM state WHERE key LIKE 'cursor of %'").fetchall()
            assert cursors_there == [("cursor of s2",)]
            connection.execute("UPDATE partition SET owner = NULL WHERE owner = 'x'")


async def test_a_row_that_is_refused_beside_those_of_a_lost_partition_is_left_out_alone(url: str) -> None:
    def write(connection: Any, rows: list[tuple[str, str | None]]) -> None:
        connection.executemany("INSERT INTO state (key, value) VALUES (?, ?)", rows)

    async with PostgresMemory(url, nodes=True) as memory:
        owned, lost, faults = memory.nodes.ownership, set[tuple[int, int]](), list[Fault]()
        mine, others = (partition_of("main", session) for session in ("s1", "s2"))
        batch = SharedBatch(faults.append, owned, lost.update)
        for key, value, partition, epoch in (
            ("of another", "1", others, -1), ("good", "1", mine, owned.partitions[mine]),
            ("refused", None, mine, owned.partitions[mine]), ("good, too", "1", mine, owned.partitions[mine]),
        ):  # fmt: skip
            batch.share = partition, epoch
            batch.add(write, (key, value), NO_ORIGIN)
        await memory._file.commit(batch)

        assert lost == {(others, -1)}
        assert [fault.kind for fault in faults] == ["refused"]
        with psycopg.connect(url) as connection:
            kept = {row[0] for row in connection.execute("SELECT key FROM state")}
        assert kept >= {"good", "good, too"}
        assert not kept & {"refused", "of another"}


async def test_no_owner_changes_between_the_check_of_partitions_and_the_commit(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks, begun, commit = [], rows.begun, NodeTransactions._commit

    def is_locked() -> bool:
        with psycopg.connect(url) as other:
            try:
                other.execute(f"{rows.LOCK} NOWAIT".encode())
            except psycopg.errors.LockNotAvailable:
                return True
        return False

    def checked(*given: Any) -> Any:
        found = begun(*given)
        checks.append(is_locked())
        return found

    def committed(transactions: NodeTransactions, *given: Any) -> None:
        transactions.connection.settle()
        checks.append(is_locked())
        commit(transactions, *given)

    monkeypatch.setattr(rows, "begun", checked)
    monkeypatch.setattr(NodeTransactions, "_commit", committed)
    async with PostgresMemory(url, nodes=True) as memory:
        assert memory.nodes is not None
        session = next(f"s{number}" for number in range(1_000) if memory.nodes.owns("main", f"s{number}"))
        memory.journal.append(facts.CycleOpened(session=session, cycle="c"), "main")
        await memory.journal.safe()

    assert len(checks) >= 2
    assert all(checks)


async def test_other_nodes_wait_for_one_turn_of_the_server_and_not_for_what_is_encoded(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns: list[list[str]] = []
    run = Pipeline.run

    def noted(self: Pipeline, statements: Sequence[Any]) -> Any:
        if threading.current_thread().name == "memory-writer":
            turns.append([sql for sql, _ in statements])
        return run(self, statements)

    async def plan(perceptions: Any, context: Any) -> Action | None:
        return Action(output="done") if perceptions else None

    monkeypatch.setattr(Pipeline, "run", noted)
    async with Agent(plan=plan, memory=PostgresMemory(url, nodes=True), loop_interval="off") as agent:
        for _ in range(3):
            turns.clear()
            await agent.wait((await agent.submit("good morning", session="x")).run_id)

    begins = [place for place, turn in enumerate(turns) if turn[0] == "BEGIN"]
    assert len(begins) >= 2
    for place in begins:
        rest = turns[place + 1]
        assert (rest[0], rest[-1]) == (rows.LOCK, "COMMIT"), "all of it, when all is encoded"
    closing = next(place for place, turn in enumerate(turns) if any("INSERT INTO cycle " in sql for sql in turn))
    assert any(sql.startswith("SELECT EXISTS") for sql in turns[closing - 2]), "what the rows ask is answered before"


async def test_what_takes_long_to_encode_is_encoded_before_its_transaction_begins(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server ends a transaction that stands still, and the next attempt would take as long."""
    states, encode = [], cycle_log.rows.row

    def encoded(cycle: CycleRecord) -> Any:
        states.append(memory._file.writer._transactions.connection.in_transaction)
        return encode(cycle)

    monkeypatch.setattr(cycle_log.rows, "row", encoded)
    perceptions = tuple(Perception(f"{number} {'x' * 50}") for number in range(3_000))
    async with PostgresMemory(url, nodes=True) as memory:
        for number in range(2):  # nothing is there to link the first fact to
            memory.journal.append(facts.CycleOpened(session="s", cycle=f"c{number}"), "main")
            await memory.journal.safe()
            record = CycleRecord(f"c{number}", "main", "s", START, 1.0, "acted", perceptions=perceptions)
            experience = Experience("the disk is full", key="disk", outcome="was emptied", at=START)
            closing = Closing("acted", record, (experience,), session="s")
            memory.journal.append(facts.CycleWritten(session="s", cycle=f"c{number}", closing=closing), "main")
            await memory.journal.safe()

    assert states == [False, False]


async def test_like_experiences_of_one_group_are_counted_as_one_row_each_time(url: str) -> None:
    async with PostgresMemory(url, nodes=True) as memory:
        for number in range(4):
            cycle = facts.CycleOpened(session=f"s{number}", cycle=f"c{number}")
            memory.journal.append(cycle, "main")
        for number in range(4):
            record = CycleRecord(f"c{number}", "main", f"s{number}", START, 1.0, "acted")
            experience = Experience("the disk is full", key="disk", outcome="was emptied", at=START)
            closing = Closing("acted", record, (experience,), session=f"s{number}")
            memory.journal.append(facts.CycleWritten(session=f"s{number}", cycle=f"c{number}", closing=closing), "main")
        await memory.journal.safe()
        [found] = await memory.recall("disk full")
    assert found.count == 4


async def test_what_was_deleted_between_the_look_and_the_lock_is_written_anew(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    demands, deleted = rows.demands, []

    def demanded(*given: Any) -> Any:
        with psycopg.connect(url) as other:
            deleted.append(other.execute("DELETE FROM experience").rowcount)
        return demands(*given)

    async with PostgresMemory(url, nodes=True) as memory:
        for number in range(2):
            if number:
                monkeypatch.setattr(rows, "demands", demanded)
            memory.journal.append(facts.CycleOpened(session="größer", cycle=f"c{number}"), "main")
            record = CycleRecord(f"c{number}", "main", "größer", START, 1.0, "acted")
            experience = Experience("日本 is full 😀", key="disk", outcome="was emptied", at=START)
            closing = Closing("acted", record, (experience,), session="größer")
            written = facts.CycleWritten(session="größer", cycle=f"c{number}", closing=closing)
            memory.journal.append(written, "main")
            await memory.journal.safe()
        [found] = await memory.recall("full")
    assert (deleted, found.count) == ([1], 1)
    assert whole(url)


async def test_no_node_replaces_what_others_have_counted(url: str) -> None:
    async with PostgresMemory(url, nodes=True) as first, PostgresMemory(url, nodes=True) as second:
        for memory in (first, second):
            memory.journal.append(facts.TotalsCounted(total={"outcomes": {"acted": 7}}), "main")
            await memory.journal.safe()
        assert await first.journal.views.counts("main") == {}


async def test_a_node_alone_refuses_others_and_the_other_way_round(url: str) -> None:
    async with PostgresMemory(url, nodes=True):
        with pytest.raises(ConfigError, match="is in use by"):
            await PostgresMemory(url).__aenter__()
    async with PostgresMemory(url):
        with pytest.raises(ConfigError, match="is in use by"):
            await PostgresMemory(url, nodes=True).__aenter__()
    with pytest.raises(ConfigError, match="delete standby"):
        PostgresMemory(url, nodes=True, standby=True)


async def test_a_process_that_stood_still_changes_no_row_afterwards_and_goes_on_as_a_new_node(url: str) -> None:
    async with PostgresMemory(url, nodes=True) as memory:
        assert memory.nodes is not None
        process = writing(url, "a")
        assert process.stdout is not None
        try:
            while not (await asyncio.to_thread(process.stdout.readline)).startswith(b"written"):
                pass
            process.send_signal(signal.SIGSTOP)
            await until(lambda: memory.nodes.snapshot()["partitions"] == PARTITIONS)
            for number in range(40):
                memory.journal.append(facts.CycleOpened(session=f"s{number}", cycle=f"b-{number}"), "main")
            memory.journal.append(facts.RowsChanged(changes=(RowChange("n:main", "b", 1),)), "main")
            await memory.journal.safe()
            tokens = {row.token for row in await memory.nodes.rows()}
            before, last = newest(url)
            process.send_signal(signal.SIGCONT)

            async def has_joined_and_written() -> bool:
                are_new = {row.token for row in await memory.nodes.rows()} - tokens
                return bool(are_new) and newest(url)[1] > last

            await until(has_joined_and_written)
            with psycopg.connect(url) as connection:
                works = [row[0] for row in connection.execute("SELECT work FROM fact WHERE seq > %s", (before,))]
            assert all(int(work.split("-")[1]) > last for work in works if work.startswith("a-"))
        finally:
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.communicate()
        whole(url)


async def test_a_damaged_item_keeps_no_other_one_from_its_owner(url: str) -> None:
    async with PostgresMemory(url, nodes=True) as memory:
        for id in ("good", "bad", "other"):
            item = Item(id, Perception(id, id=id), session="s")
            await memory.journal.commit(facts.WorkAccepted(session="s", item=item), "main")
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("UPDATE item SET body = '{' WHERE id = 'bad'")
        assert memory.nodes is not None
        assert [item.id for item in await memory.journal.views.items("main", ["good", "bad", "none"])] == ["good"]


async def test_a_node_opens_a_database_while_another_one_writes_to_it(url: str) -> None:
    async with PostgresMemory(url, nodes=True):
        pass
    waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    with psycopg.connect(url) as writer, psycopg.connect(url, autocommit=True) as other:
        writer.execute(rows.LOCK.encode())
        memory = PostgresMemory(url, nodes=True)
        opening = asyncio.create_task(memory.__aenter__())
        await until(lambda: other.execute(waits).fetchone() == (1,))
        writer.execute("INSERT INTO inbox (partition, agent, kind, body) VALUES (0, 'x', 'x', '{}')")
        writer.commit()
        await opening
        await memory.__aexit__(None, None, None)


async def test_what_has_to_wait_for_the_commits_of_others_costs_no_lease(url: str) -> None:
    async with PostgresMemory(url, nodes=True) as memory:
        nodes = memory.nodes
        token = nodes.ownership.token
        with psycopg.connect(url) as slow, psycopg.connect(url, autocommit=True) as connection:
            slow.execute("SELECT 1 FROM state WHERE key = 'epoch' FOR UPDATE")
            connection.execute("UPDATE partition SET owner = NULL")
            work = asyncio.create_task(asyncio.to_thread(slow.execute, "SELECT pg_sleep(600)"))
            await until(lambda: "lock timeout" in nodes.thread.last_error)
            slow.cancel()
            with pytest.raises(psycopg.errors.QueryCanceled):
                await work

        async def has_all() -> bool:
            return all(owner == token for owner, _ in owners(url).values())

        await until(has_all)
        assert nodes.ownership.token == token


async def test_an_accepted_item_is_not_begun_while_its_session_is_to_be_taken_over(url: str) -> None:
    planned, reads = [], []

    async def plan(perceptions: Sequence[Perception]) -> None:
        planned.extend(perceptions)

    memory = PostgresMemory(url, nodes=True)
    async with Agent(plan=plan, memory=memory, loop_interval="off") as agent:
        assert memory.nodes is not None
        owned = agent.core.shared

        views = memory.journal.views
        all_items = views.items

        async def items(name: str, ids: Collection[str] = ()) -> list[Item]:
            if not ids:
                return await all_items(name)
            owned._has_read = lambda session: False  # its session has just come here, perhaps with an open cycle
            owned.gained()
            reads.append(ids)
            return [work_of("s", "1").item]

        views.items = items  # type: ignore[method-assign]
        owned.arrived([NodeRequest(partition_of("main", "s"), "main", "work", '{"item": "1"}')])
        await until(lambda: reads)
        await agent.wait((await agent.submit("other", session="s")).run_id)
    assert [perception.content for perception in planned] == ["other"]


async def test_the_first_rows_of_a_new_lease_are_written(url: str) -> None:
    async with PostgresMemory(url, nodes=True) as memory:
        assert memory.nodes is not None
        nodes = memory.nodes
        memory.journal.append(facts.CycleOpened(session="s1", cycle="before"), "main")
        await memory.journal.safe()
        token = nodes.ownership.token
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("DELETE FROM node")
        await until(lambda: nodes.ownership.token not in ("", token) and nodes.owns("main", "s1"))
        memory.journal.append(facts.CycleOpened(session="s1", cycle="after"), "main")
        await memory.journal.safe()
        with psycopg.connect(url) as connection:
            assert connection.execute("SELECT id FROM open_cycle ORDER BY id").fetchall() == [("after",), ("before",)]


def test_a_lease_that_was_over_for_a_moment_is_over_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(ownership, "present", lambda: now[0])
    here = ownership.Ownership("here")
    assert here.hold("first", 0.0)
    here.begun, here.partitions = "first", dict.fromkeys(range(PARTITIONS), 1)
    now[0] = 2.4
    assert here.hold("first", 2.3)
    now[0] = 5.0  # the answer to the renewal comes late: rows may have been left out meanwhile
    assert here.share_of("main", "s") is None
    assert not here.hold("first", 4.9)
    here.lose("first")
    assert here.hold("second", 4.9)
    assert here.share_of("main", "s") is None  # the event loop has not heard of it
    here.begun = "second"
    assert here.share_of("main", "s") is not None


def holders() -> list[threading.Thread]:
    """Return the threads that hold leases."""
    return [thread for thread in threading.enumerate() if thread.name == "memory-lease"]


async def test_an_opening_that_is_left_leaves_no_node(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClusterNodes, "looked", lambda nodes: None)  # the opening waits for that
    opening = asyncio.create_task(PostgresMemory(url, nodes=True).__aenter__())

    async def has_lease() -> bool:
        with suppress(psycopg.errors.UndefinedTable), psycopg.connect(url) as connection:
            return connection.execute("SELECT count(*) FROM node").fetchone() == (1,)
        return False

    await until(has_lease)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert holders() == []
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT count(*) FROM node").fetchone() == (0,)


async def test_the_end_of_a_lease_holds_up_no_event_loop(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stop, stopped_in = LeaseThread.stop, []

    def noted(lease: LeaseThread, within: float) -> None:
        stopped_in.append(threading.current_thread())
        stop(lease, within)

    monkeypatch.setattr(LeaseThread, "stop", noted)
    async with PostgresMemory(url, nodes=True):
        pass
    assert stopped_in
    assert threading.main_thread() not in stopped_in
    assert holders() == []


async def test_a_lease_begins_anew_after_an_error_that_nobody_expected(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with PostgresMemory(url, nodes=True) as memory:
        assert memory.nodes is not None
        nodes, view = memory.nodes, rows.view
        token = nodes.ownership.token

        def broken(connection: Any) -> Any:
            monkeypatch.setattr(rows, "view", view)
            raise ValueError("a row of another shape")

        monkeypatch.setattr(rows, "view", broken)
        await until(lambda: nodes.ownership.token not in ("", token) and nodes.owns("main", "s"))
        assert "another shape" in nodes.thread.last_error


async def test_what_is_written_just_before_a_handing_over_is_stored(url: str) -> None:
    async with PostgresMemory(url, nodes=True) as memory:
        assert memory.nodes is not None
        nodes = memory.nodes
        handed = frozenset(range(PARTITIONS))
        with psycopg.connect(url) as connection:
            connection.execute(rows.LOCK.encode())  # the writer waits
            memory.journal.append(facts.CycleOpened(session="s", cycle="last"), "main")
            safe = asyncio.create_task(memory.journal.safe())
            await asyncio.sleep(0)
            nodes.leaving(nodes.ownership.token, handed)
            await asyncio.sleep(0)
            assert nodes.owns("main", "s")  # until it is stored
            connection.rollback()
        await safe
        with psycopg.connect(url) as connection:
            assert connection.execute("SELECT work FROM fact WHERE kind = 'opened'").fetchall() == [("last",)]


class Listening:
    """A listener that notes requests, and deals with none."""

    def __init__(self) -> None:
        self.requests: list[NodeRequest] = []

    def gained(self) -> None: ...
    def lost(self) -> None: ...
    def leaving(self) -> None: ...

    def arrived(self, requests: Sequence[NodeRequest]) -> None:
        self.requests += requests


async def test_requests_that_take_long_keep_no_other_from_its_owner(url: str) -> None:
    async with PostgresMemory(url, nodes=True) as memory:
        memory.nodes.listen(listening := Listening())
        with psycopg.connect(url) as connection:
            add = "INSERT INTO inbox (partition, agent, kind, body, asker) VALUES (%s, 'main', %s, '{}', 'x')"
            for number in range(250):
                connection.execute(add, (number % 7, "events" if number < 249 else "abort"))
        await until(lambda: len(listening.requests) == 250)
        await asyncio.sleep(2 * LOOK_EVERY)  # none comes twice
        assert [request.kind for request in listening.requests] == ["events"] * 249 + ["abort"]


async def test_who_holds_all_commits_off_and_stands_still_in_a_pipeline_is_ended(url: str) -> None:
    async with PostgresMemory(url, nodes=True):
        pass
    still, other = connect(parsed(url), is_writer=True), connect(parsed(url))
    try:
        with still.raw.pipeline():
            still.raw.execute("BEGIN")
            assert still.raw.execute(rows.LOCK.encode()).fetchone() == (1,)  # no timeout of the server ends it now
            for _ in range(20):
                with suppress(psycopg.errors.LockNotAvailable):
                    rows.take(other, "other", [0])
                    break
            else:
                pytest.fail("nobody ends it")
            with pytest.raises(psycopg.OperationalError):
                still.raw.execute("SELECT 1").fetchone()
    except psycopg.OperationalError:  # of the end of the pipeline
        pass
    finally:
        still.close()
        other.close()
