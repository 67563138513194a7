"""The file's format: made, migrated, refused."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from memory import Memory
from memory.care.integrity import verify
from memory.cycle_log.queries import FAILED
from memory.engine import hash_chain
from memory.sqlite import database, schema
from spar import Agent, tool
from spar.errors import ConfigError, FencedError
from spar.records.journal import Item
from spar.records.transcript import Entry
from spar.types import Credit, Experience, Feedback, Perception
from tests.journal.left import accept

if TYPE_CHECKING:
    from apsw import Connection


def open_at(path: Path) -> Connection:
    return database.open_writer(str(path), "off")


def old_file(path: Path) -> None:
    """A file as a first version might have written it: one table, format 1 of the steps below."""
    connection = open_at(path)
    schema.migrate(connection, steps=[create_notes])
    connection.execute("INSERT INTO note (text) VALUES ('kept')")
    connection.close()


def create_notes(connection: Connection) -> None:
    connection.execute("CREATE TABLE note (text TEXT)")


def add_kind(connection: Connection) -> None:
    connection.execute("ALTER TABLE note ADD COLUMN kind TEXT DEFAULT 'old'")


def fail_halfway(connection: Connection) -> None:
    connection.execute("DELETE FROM note")
    raise RuntimeError("power cut")


def test_a_migration_that_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    old_file(tmp_path / "memory.db")
    connection = open_at(tmp_path / "memory.db")

    with pytest.raises(RuntimeError, match="power cut"):
        schema.migrate(connection, steps=[create_notes, add_kind, fail_halfway])

    assert schema.version(connection) == 1
    assert connection.execute("SELECT * FROM note").get == "kept"
    connection.close()


@pytest.mark.parametrize(
    ("is_ours", "statement", "said"),
    [
        (True, "PRAGMA user_version = 99", r"memory\.db' was written by a newer version \(format 99.*upgrade spar"),
        (False, "CREATE TABLE customer (name TEXT)", "database of another program"),
    ],
    ids=["newer", "of another program"],
)
def test_a_newer_file_and_one_of_another_program_are_refused_and_left_unchanged(
    tmp_path: Path, is_ours: bool, statement: str, said: str
) -> None:
    path = tmp_path / "memory.db"
    connection = open_at(path)
    if is_ours:
        schema.migrate(connection)
    connection.execute(statement)
    connection.close()
    before = path.read_bytes()
    with pytest.raises(ConfigError, match=said):
        database.prepare(str(path), "power")
    assert path.read_bytes() == before


def test_an_older_file_is_not_read_before_it_was_migrated(tmp_path: Path) -> None:
    (tmp_path / "memory.db").touch()

    with pytest.raises(ConfigError, match="holds no memory yet"):
        database.inspect(str(tmp_path / "memory.db"), read_only=True)


@pytest.mark.parametrize(("durability", "synchronous"), [("power", 2), ("process", 1), ("off", 0)])
def test_durability_is_what_the_database_is_told(tmp_path: Path, durability: str, synchronous: int) -> None:
    connection = database.open_writer(str(tmp_path / "memory.db"), durability)

    assert connection.execute("PRAGMA synchronous").get == synchronous
    assert connection.execute("PRAGMA journal_mode").get == "wal"
    assert connection.execute("PRAGMA wal_autocheckpoint").get == 0
    connection.close()


def released(path: Path, version: int) -> None:
    """A file as the release of that format wrote it."""
    connection = open_at(path)
    connection.execute((Path(__file__).parent / f"format_{version}.sql").read_text("utf-8"))
    connection.close()


@pytest.mark.parametrize("version", [1, 2])
async def test_a_file_of_an_earlier_release_keeps_what_it_holds_and_takes_what_is_new(
    tmp_path: Path, version: int
) -> None:
    path = tmp_path / "memory.db"
    released(path, version)

    async with Memory.open(f"sqlite:///{path}") as memory:
        found = await memory.recall("disk")
        await memory.keep("approval", "a", {"n": 1})
        assert [(each.id, each.situation) for each in found] == [("e1", "the disk is full")]
        assert [each.id for each in await memory.records("approval")] == ["a", "old"][:version]
        assert await memory.load("cursor") == 7
        assert await memory.counts() == {"experiences": 1, "cycles": 1, "state": 1}
        await memory.store(Experience("the disk is full again"))
        earlier = await accept(memory.journal, Item("p", Perception("hello")))
        assert earlier is None
    connection = open_at(path)
    assert schema.version(connection) == len(schema.STEPS) == 8
    assert hash_chain.check(connection) is None
    connection.close()


async def test_the_transcripts_of_an_earlier_release_are_read_and_added_to(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    released(path, 4)

    async with Memory.open(f"sqlite:///{path}") as memory:
        before = await memory.transcripts.read("main", "talk")
        with pytest.raises(FencedError):
            await memory.transcripts.append("main", "talk", "run-1", [Entry("user", {"text": "too late"})])
        await memory.transcripts.append("main", "talk", "run-2", [Entry("end", {"status": "ok"})])
        after = await memory.transcripts.read("main", "talk")

    assert [(each.seq, each.kind, each.run_id) for each in before] == [(5, "compaction", "run-2"), (4, "user", "run-2")]
    assert before[0].body["summary"] == "the load was 2"
    assert [each.seq for each in after] == [5, 4, 6]


@pytest.mark.parametrize("version", [3, 4, 5, 6])
async def test_a_file_that_a_released_version_left_in_the_middle_of_a_cycle_is_gone_on_with(
    tmp_path: Path, version: int
) -> None:
    path, done = tmp_path / "memory.db", list[str]()
    released(path, version)

    @tool(effect="once")
    async def pay(amount: int) -> None:
        done.append(f"pay {amount}")

    @tool(effect="read")
    async def look(at: int) -> None:
        done.append(f"look {at}")

    @tool(effect="idempotent")
    async def put(value: int) -> int:
        done.append(f"put {value}")
        return value

    seen: list[str] = []

    async def plan(perceptions: list[Perception]) -> None:
        seen.extend(perception.text for perception in perceptions)

    cycle_id = "18ea256e775307670000245362"
    agent = Agent(plan=plan, tools=[pay, look, put], memory=Memory(f"sqlite:///{path}"), loop_interval=0.01)
    async with agent:
        for _ in range(2000):
            if len(seen) > 1 and agent.stats.outcomes["acted"]:
                break
            await asyncio.sleep(0.01)
        record = await agent.memory.cycle(cycle_id)  # type: ignore[union-attr]
        [doubt] = await agent.recovery.restart.doubts.list()

    assert done == ["put 4"]
    assert doubt.id == f"{cycle_id}/c"
    assert [result.status for result in record.result.results] == ["ok", "ok", "in_doubt", "ok"]
    assert record.result.state == {"a": 2, "b": 4, "d": 4}
    assert sorted(seen)[-1] == "still waiting"
    connection = open_at(path)
    assert hash_chain.check(connection) is None
    connection.close()


async def test_a_file_of_format_7_knows_trust_and_cycle_of_what_it_holds_and_merges_what_comes(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    released(path, 7)

    async with Memory.open(f"sqlite:///{path}") as memory:
        for _ in range(2):
            await memory.store(Experience("the disk is full", key="alert.disk", trust="trusted"))
        found = await memory.recall("disk")
        await memory.apply(credits=[Credit("e1", has_helped=True)])
        [helped] = [each for each in await memory.recall("disk") if each.id == "e1"]
        await memory.apply(feedback=[Feedback("c1", False, "person"), Feedback("c2", True, "person")])
        judged = {each.id: each.success for each in await memory.recall("disk")}

    assert sorted((each.trust, each.count) for each in found) == [("trusted", 1), ("trusted", 2), ("untrusted", 1)]
    assert (helped.helped, helped.harmed, helped.lesson) == (1, 0, "make room")
    assert (judged["e1"], judged["e2"]) == (False, True)
    assert verify(str(path)).is_whole
    connection = open_at(path)
    rows = connection.execute("SELECT trust, first_at = at, count FROM experience WHERE id LIKE 'e_' ORDER BY id")
    assert list(rows) == [("trusted", 1, 1), ("untrusted", 1, 1)]
    connection.close()


async def test_a_migration_hides_no_row_that_was_altered_before(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    released(path, 7)
    connection = open_at(path)
    connection.execute("UPDATE experience SET success = 1 WHERE id = 'e2'")
    connection.close()

    async with Memory.open(f"sqlite:///{path}"):
        pass

    assert [(each.table, each.row) for each in verify(str(path)).findings] == [("experience", "e2")]


def test_pages_of_cycles_are_read_from_an_index_of_what_they_are_filtered_by(tmp_path: Path) -> None:
    connection = open_at(tmp_path / "memory.db")
    schema.migrate(connection)
    for condition, index in (
        (f"({FAILED})", "cycle_failed"),
        ("session = 'x'", "cycle_by_age"),
        ("true", "cycle_by_age"),
    ):
        sql = f"SELECT id, summary FROM cycle WHERE {condition} ORDER BY started_at DESC, id DESC LIMIT 50"
        (plan,) = connection.execute(f"EXPLAIN QUERY PLAN {sql}")
        assert f"INDEX {index}" in str(plan), "no row of another kind is read, and none is sorted"
    connection.close()
