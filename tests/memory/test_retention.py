"""What may go is decided purely, and carried out in small batches, the oldest first."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from memory import cycle_log
from memory.experiences import rows as experiences
from memory.retention import RetentionLimits, tidy, trim
from memory.sqlite import database
from spar.types import CycleRecord, Experience

if TYPE_CHECKING:
    from apsw import Connection

NOW = datetime(2026, 6, 1, tzinfo=UTC)
ALL = RetentionLimits(None, None, None, None)


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[Connection]:
    path = str(tmp_path / "memory.db")
    opened = database.prepare(path, "off").connection
    yield opened
    opened.close()


def fill(connection: Connection, count: int, *, text: str = "x") -> None:
    for number in range(count):
        at = NOW - timedelta(days=number)
        lived = Experience(f"{text} {number}", id=f"e{number}", at=at, success=False, lesson="rare", helped=9)
        experiences.insert(connection, [experiences.row(lived)])
        cycle_log.insert(connection, cycle_log.row(CycleRecord(f"c{number}", "main", "main", at, 0.1, "acted")))


def left(connection: Connection, table: str) -> int:
    return int(str(connection.execute(f"SELECT count(*) FROM {table}").get))


def trim_all(connection: Connection, limits: RetentionLimits) -> int:
    gone = 0
    while step := trim(connection, limits, NOW.timestamp()):
        gone += step
    return gone


def test_what_is_too_old_goes_whatever_it_is_worth_and_with_it_its_words(connection: Connection) -> None:
    fill(connection, 10, text="disk")

    gone = trim_all(connection, RetentionLimits(4.5, None, None, None))

    assert gone == 10
    assert left(connection, "experience") == left(connection, "cycle") == 5
    assert left(connection, "experience_text WHERE experience_text MATCH 'disk'") == 5
    assert connection.execute("SELECT min(at) FROM experience").get == (NOW - timedelta(days=4)).timestamp()


def test_nothing_due_writes_nothing(connection: Connection) -> None:
    fill(connection, 20)
    while tidy(connection):
        pass
    pages: list[int] = []

    def note(connection: Connection, name: str, count: int) -> int:
        pages.append(count)
        return 0

    connection.set_wal_hook(note)

    assert trim(connection, ALL, NOW.timestamp()) == 0
    assert tidy(connection) is False
    assert pages == []
