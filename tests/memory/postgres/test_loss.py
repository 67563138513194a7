"""Connections that are lost, servers that restart, processes that are replaced: nothing is lost, nothing doubled."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from functools import partial
from typing import Any

import psycopg
import pytest

from memory.engine import hash_chain
from memory.postgres.connection import PostgresConnection
from memory.postgres.server import connect, parsed
from memory.postgres.store import PostgresMemory
from memory.postgres.transactions import PostgresTransactions
from spar import facts
from spar.errors import ConfigError, FencedError, SparError, TransientError
from spar.records.journal import Item, RowChange
from spar.types import Fault, Perception
from tests.servers.postgresql import PostgresServer
from tests.waiting import until


def admin(url: str) -> psycopg.Connection:
    return psycopg.connect(url, autocommit=True, application_name="test")


def holder(connection: psycopg.Connection) -> int:
    query = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2 AND granted AND objid = " \
            "(hashtext(current_schema())::bigint & 4294967295)::oid"  # fmt: skip
    row = connection.execute(query).fetchone()
    return 0 if row is None else int(row[0])


def accepted(id: str) -> facts.WorkAccepted:
    return facts.WorkAccepted(session="main", item=Item(id, Perception(id), key=id))


def whole(url: str) -> tuple[int, set[str], int]:
    """Return the number of facts, the ids of items and the used budget; check that the chain of facts holds."""
    connection: PostgresConnection = connect(parsed(url))
    try:
        assert hash_chain.check(connection) is None
        ids = [str(id) for (id,) in connection.execute("SELECT id FROM item")]
        used = connection.execute("SELECT coalesce(sum(used), 0) FROM spent").get
        return int(connection.execute("SELECT count(*) FROM fact").get), set(ids), int(used)
    finally:
        connection.close()


async def test_a_second_memory_on_one_database_is_refused_and_told_who_uses_it(url: str) -> None:
    async with PostgresMemory(url):
        with pytest.raises(ConfigError, match=r"is in use by 'spar .*' on .*\(backend \d+\); stop it first"):
            await PostgresMemory(url).__aenter__()
        async with PostgresMemory(url, read_only=True) as reader:
            assert await reader.counts() == {"experiences": 0, "cycles": 0, "state": 0}


async def test_a_process_that_was_replaced_writes_nothing_more(url: str) -> None:
    told: list[Fault | None] = []
    memory = PostgresMemory(url)
    await memory.__aenter__()
    memory.on_fault = told.append
    await memory.journal.commit(accepted("first"), "main")
    with admin(url) as connection:
        connection.execute("UPDATE state SET value = '7' WHERE key = 'epoch'")
    with pytest.raises(FencedError, match="was taken over by another process"):
        await memory.journal.commit(accepted("second"), "main")
    await until(lambda: bool(told))
    with pytest.raises(SparError):
        await memory.close()

    assert whole(url)[1] == {"first"}
    assert told[0].kind == "fenced"


async def test_a_process_that_was_replaced_writes_nothing_more_when_it_tries_again(url: str) -> None:
    """A unit that is tried again is undone alone if it fails, but not for the error of its transaction."""
    memory = PostgresMemory(url)
    await memory.__aenter__()
    handover = memory.journal
    with admin(url) as other:
        other.execute("UPDATE state SET value = '99' WHERE key = 'epoch'")
        memory.journal.append(facts.RowsChanged(changes=(RowChange("late", "key", 1),)), "main")
        batch = handover.take_batch()
        batch.is_repeated = True  # as after a lost connection
        try:
            with pytest.raises(FencedError):
                await handover._writer.submit(batch)
        finally:
            with suppress(SparError):
                await memory.close()
        assert other.execute("SELECT count(*) FROM own_row").fetchone() == (0,)


@pytest.mark.parametrize("is_guarded", [False, True])
def test_a_transaction_that_may_not_begin_is_never_committed(url: str, is_guarded: bool) -> None:
    connection = connect(parsed(url), is_writer=True)
    connection.execute("CREATE TABLE state (key TEXT PRIMARY KEY, value TEXT)")
    connection.execute("INSERT INTO state VALUES ('epoch', '2')")
    transactions = PostgresTransactions(connection, "here", 1, lambda lost: connection, is_strict=False)

    def write(key: str, to: Any) -> None:
        to.execute("INSERT INTO state VALUES (?, ?)", (key, "1"))

    with pytest.raises(FencedError):
        transactions.run([partial(write, "a"), partial(write, "b")], is_guarded=is_guarded, must_flush=True)
    transactions.undo()
    assert connection.execute("SELECT count(*) FROM state").get == 1
    connection.close()


async def test_a_claimant_takes_over_from_one_that_lost_its_connection(url: str) -> None:
    first = PostgresMemory(url)
    await first.__aenter__()
    await first.journal.commit(accepted("first"), "main")
    with admin(url) as connection:
        connection.execute("SELECT pg_terminate_backend(%s)", (holder(connection),))
        await until(lambda: not holder(connection))
    async with PostgresMemory(url) as second:
        with pytest.raises(FencedError):
            await first.journal.commit(accepted("of the first"), "main")
        await second.journal.commit(accepted("of the second"), "main")
        assert second.journal.epoch == first.journal.epoch + 1
    with pytest.raises(SparError):
        await first.close()

    assert whole(url)[1] == {"first", "of the second"}


async def test_a_database_that_went_back_in_time_is_refused(url: str) -> None:
    memory = PostgresMemory(url)
    await memory.__aenter__()
    await memory.journal.commit(accepted("first"), "main")
    with admin(url) as connection:
        connection.execute("DELETE FROM fact")
        connection.execute("SELECT pg_terminate_backend(%s)", (holder(connection),))
    with pytest.raises(FencedError, match="went back in time: fact number 1, which was committed, is missing"):
        await memory.journal.commit(accepted("second"), "main")
    with pytest.raises(SparError):
        await memory.close()


async def test_a_table_that_is_gone_is_told_and_work_waits_for_it(url: str) -> None:
    told: list[Fault | None] = []
    async with PostgresMemory(url) as memory:
        memory.on_fault = told.append
        with admin(url) as connection:
            connection.execute("ALTER TABLE item RENAME TO gone")
            waiting = asyncio.create_task(memory.journal.commit(accepted("first"), "main"))
            await until(lambda: bool(told))
            connection.execute("ALTER TABLE gone RENAME TO item")
        await waiting

    assert 'cannot be written: relation "item" does not exist; ' in told[0].message
    assert whole(url)[1] == {"first"}


BAD = (
    ("mysql://x", "memory.url is no URL of PostgreSQL"),
    ("postgresql://spar:s3cret@h:x/d", "memory.url cannot be read as a URL|cannot be reached"),
    (
        "postgresql://spar:s3cret@127.0.0.1:1/d",
        r"postgresql://spar@127.0.0.1:1/d cannot be reached: .*start the server",
    ),
)


@pytest.mark.parametrize(("url", "sentence"), BAD)
async def test_a_wrong_or_unreachable_server_is_one_sentence_without_the_password(url: str, sentence: str) -> None:
    with pytest.raises((ConfigError, TransientError), match=sentence) as refusal:
        await PostgresMemory(url).__aenter__()

    assert "s3cret" not in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("UPDATE spar_format SET number = 99", "has the format 99 of a later version, known here is 1"),
        ("DROP TABLE spar_format", "holds tables of another program"),
        ("SET default_transaction_read_only", "is a standby that only reads: let memory.url name the primary"),
    ],
)
async def test_a_database_that_cannot_be_used_is_refused(change: str, sentence: str, url: str) -> None:
    async with PostgresMemory(url):
        pass
    if change.startswith("SET"):
        url = url.replace("options=", "options=-cdefault_transaction_read_only%3Don%20")
    else:
        with admin(url) as connection:
            connection.execute(change.encode())
    with pytest.raises(ConfigError, match=sentence):
        await PostgresMemory(url).__aenter__()


async def test_a_database_that_does_not_exist_is_named(server: PostgresServer) -> None:
    with pytest.raises(ConfigError, match='database "none" does not exist; make it with: createdb'):
        await PostgresMemory(f"postgresql://spar@/none?host={server.folder}").__aenter__()


async def test_a_reading_is_interrupted_without_waiting_for_the_server(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, may_answer = threading.Event(), threading.Event()

    def cancel(connection: psycopg.Connection[Any], *, timeout: float) -> None:
        asked.set()
        assert may_answer.wait(60), "whoever interrupts waits for the answer"  # a network may swallow the question

    monkeypatch.setattr(psycopg.Connection, "cancel_safe", cancel)
    connection = connect(parsed(url))
    connection.interrupt()
    assert await asyncio.to_thread(asked.wait, 60)
    may_answer.set()
    connection.close()
