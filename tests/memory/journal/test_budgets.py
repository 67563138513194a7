"""The rows of what was used of the budgets, on a real file's connection."""

from __future__ import annotations

from collections.abc import Iterator

import apsw
import pytest

from memory.journal.statements import MOST_WINDOWS, SPEND, spent, trim_spent
from memory.sqlite import schema
from spar.records.journal import Spend


@pytest.fixture
def connection() -> Iterator[apsw.Connection]:
    connection = apsw.Connection(":memory:")
    schema.migrate(connection)
    yield connection
    connection.close()


def spend(connection: apsw.Connection, *spends: Spend) -> None:
    connection.executemany(SPEND, [(each.window, each.quantity, each.amount) for each in spends])


@pytest.mark.parametrize("amounts", [[-5], [3, -5], [3, -5, 0]])
def test_what_was_used_is_never_less_than_nothing(amounts: list[int], connection: apsw.Connection) -> None:
    spend(connection, *(Spend("hour:2026-11-21T18", "calls", amount) for amount in amounts))

    assert spent(connection) == [Spend("hour:2026-11-21T18", "calls", 0)]


def test_a_sum_stays_a_whole_number_however_large(connection: apsw.Connection) -> None:
    spend(connection, *[Spend("month:2026-11", "money", 1 << 61)] * 8)
    spend(connection, Spend("month:2026-11", "money", 1))

    assert spent(connection) == [Spend("month:2026-11", "money", 1 << 60)]


def test_the_newest_windows_of_each_kind_are_kept(connection: apsw.Connection) -> None:
    hours = [f"hour:{2000 + n}-01-01T00" for n in range(MOST_WINDOWS + 10)]
    spend(connection, *(Spend(hour, quantity, 1) for hour in hours for quantity in ("calls", "tokens")))
    spend(connection, Spend("day:1999-01-01", "calls", 1), Spend("month:1999-01", "calls", 1))

    gone = trim_spent(connection, [hours[3]])

    kept = {each.window for each in spent(connection)}
    assert gone == 18
    assert kept == {"day:1999-01-01", "month:1999-01", hours[3], *hours[10:]}
    assert trim_spent(connection, [hours[3]]) == 0
