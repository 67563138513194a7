"""Experiences go by what they are worth, and the file stays within its limit while it is written."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memory import Memory, cycle_log, events, transcripts
from memory.care.integrity import verify
from memory.experiences import rows as experiences
from memory.retention import NEWEST, RetentionLimits, fit, tidy, trim, value
from spar.records.transcript import Entry
from spar.types import CycleRecord, Experience

if TYPE_CHECKING:
    from apsw import Connection

NOW = datetime(2026, 6, 1, tzinfo=UTC)
LIMIT = 1 << 20


def number_of(connection: Connection, table: str) -> int:
    return int(str(connection.execute(f"SELECT count(*) FROM {table}").get))


def put(connection: Connection, number: int, **more: Any) -> None:
    made = Experience(f"disk {number}", id=f"e{number}", at=NOW + timedelta(minutes=number), **more)
    experiences.insert(connection, [experiences.row(made)])


def ids(connection: Connection) -> set[str]:
    return {str(id) for (id,) in connection.execute("SELECT id FROM experience")}


def test_what_helped_is_worth_more_than_what_harmed_and_a_rare_failure_that_teaches_more_than_frequent_success() -> (
    None
):
    def worth(success: bool, count: int = 1, helped: int = 0, harmed: int = 0, **given: bool) -> float:
        return value(success, count, helped, harmed, **{"is_teaching": True, "is_trusted": False, **given})

    plain = worth(True)

    assert worth(True, helped=3) > plain > worth(True, harmed=3)
    assert worth(False) > worth(True, 500, 2)
    assert worth(False, 100) < worth(False, 2), "a frequent failure is known anyway"
    assert worth(False, is_teaching=False) < worth(False), "it teaches nothing"
    assert worth(False, harmed=3) < plain, "its lesson is retired"
    assert worth(True, is_trusted=True) >= worth(False), "a stranger who makes failures pushes out nothing of trust"
    assert worth(False, is_trusted=True) > worth(True, 5, is_trusted=True)


def test_under_the_limit_the_least_useful_of_the_oldest_go_first(connection: Connection) -> None:
    for number in range(400):
        put(connection, number, success=True, helped=number % 2)
    put(connection, -1, success=False, lesson="never delete the index while it is merged")

    while trim(connection, RetentionLimits(None, None, 200, None), NOW.timestamp()):
        pass

    kept = ids(connection)
    assert len(kept) == 200
    assert "e-1" in kept
    assert sum(int(id[1:]) % 2 for id in kept if id != "e-1") == 199


def written(connection: Connection, beginning: int, count: int) -> None:
    for number in range(beginning, beginning + count):
        at = NOW + timedelta(seconds=number)
        text = " ".join(f"w{(number * 7 + place) % 997}" for place in range(60))
        experiences.insert(connection, [experiences.row(Experience(text, id=f"e{number}", at=at))])
        cycle_log.insert(connection, cycle_log.row(CycleRecord(f"c{number}", "main", "main", at, 0.1, text)))  # type: ignore[arg-type]
        entry = Entry("user", {"text": f"{text} {number}"}, at=at)
        transcripts.append(connection, transcripts.rows("main", "talk", "run", [entry]))
        events.append(connection, [(at.timestamp(), f"c{number}", "", "closed", f'{{"text":"{text}"}}')])


def test_the_file_stays_within_its_limit_under_load_and_keeps_the_newest_of_all(
    connection: Connection, tmp_path: Path
) -> None:
    limits = RetentionLimits(None, None, None, None, None, None, None, None, None, LIMIT)
    connection.execute("INSERT INTO open_cycle VALUES ('c150', 'main', 1, '{}')")
    for beginning in range(0, 1_000, 50):
        written(connection, beginning, 50)
        while fit(connection, limits, NOW.timestamp()) or tidy(connection, LIMIT):
            pass
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        assert (tmp_path / "memory.db").stat().st_size <= LIMIT

    assert connection.bytes_used() > LIMIT // 2, "it does not throw away what there is room for"
    for table in ("experience", "cycle", "transcript", "fact"):
        assert number_of(connection, table) >= NEWEST
    assert {"e999", "e950"} <= ids(connection)
    assert connection.execute("SELECT count(*) FROM fact WHERE work = 'c150'").get == 1, "what is open stays whole"


def test_where_nothing_is_left_that_may_go_it_stops(connection: Connection) -> None:
    written(connection, 0, NEWEST)
    limits = RetentionLimits(None, None, None, None, None, None, None, None, None, 1)

    assert fit(connection, limits, NOW.timestamp()) == 0
    assert number_of(connection, "experience") == NEWEST


async def test_an_open_memory_keeps_its_file_within_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    async with Memory.open(f"sqlite:///{path}", ballast=0, max_bytes=LIMIT, keep_days=None) as memory:
        for number in range(1_000):
            text = " ".join(f"w{(number * 7 + place) % 997}" for place in range(80))
            await memory.store(Experience(text, id=f"e{number}", at=NOW + timedelta(seconds=number)))
        await memory.flush()
        for _ in range(3_000):
            size = path.stat().st_size
            if size <= LIMIT and not memory.snapshot()["wal_bytes"]:
                break
            await asyncio.sleep(0.01)
        newest = await memory.recall("", 1)

    assert size <= LIMIT
    assert newest[0].id == "e999"
    assert verify(str(path)).is_whole
