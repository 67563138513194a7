"""Connection of a writer: between `gather` and `settle` it waits only for answers that are used."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg.pq import Trace

from memory.engine.transactions import Rejected, guarded
from memory.postgres.connection import PostgresConnection
from memory.postgres.server import connect, parsed

INSERT = "INSERT INTO kept (id, words) VALUES (?, ?)"


@pytest.fixture
def connection(url: str) -> Iterator[PostgresConnection]:
    connection = connect(parsed(url), is_writer=True)
    connection.execute("CREATE TABLE kept (id BIGINT PRIMARY KEY, words TEXT)")
    yield connection
    connection.close()


def turns(trace: Path) -> int:
    """Return how often the server was asked something after it had answered."""
    ways = "".join(re.findall(r"^([FB])\t", trace.read_text(), re.MULTILINE))
    return ways.count("BF")


@contextmanager
def traced(connection: PostgresConnection, path: Path) -> Iterator[None]:
    with path.open("w") as file:
        connection.raw.pgconn.trace(file.fileno())
        connection.raw.pgconn.set_trace_flags(Trace.SUPPRESS_TIMESTAMPS)
        yield
        connection.raw.pgconn.untrace()


def test_twenty_changes_are_one_turn(connection: PostgresConnection, tmp_path: Path) -> None:
    connection.execute("BEGIN")
    connection.gather()
    with traced(connection, tmp_path / "trace"):
        connection.execute("SAVEPOINT unit")
        for number in range(10):
            connection.execute(INSERT, (number, "well"))
        connection.executemany(INSERT, [(number, "well") for number in range(10, 20)])
        connection.execute("RELEASE unit")
        connection.settle()
    connection.execute("COMMIT")

    assert turns(tmp_path / "trace") <= 1
    assert connection.execute("SELECT count(*) FROM kept").get == 20
    assert connection.total_changes() == 20


def test_what_a_caller_asks_is_answered_at_once(connection: PostgresConnection) -> None:
    connection.execute("BEGIN")
    connection.gather()
    connection.execute(INSERT, (1, "well"))
    assert connection.execute("SELECT words FROM kept").fetchall() == [("well",)]
    assert connection.execute("UPDATE kept SET words = ? RETURNING id", ("better",)).get == 1
    connection.execute("UPDATE kept SET words = ? WHERE id < ?", ("best", 5))
    assert connection.changes() == 1
    connection.execute("DELETE FROM kept WHERE id > ?", (5,))
    assert connection.changes() == 0
    connection.add_facts("INSERT INTO kept (id, words)", [(number, b"x") for number in range(10, 30)])
    connection.settle()
    connection.execute("COMMIT")

    assert connection.execute("SELECT count(*) FROM kept").get == 21


def test_a_unit_that_is_refused_later_is_undone_alone(connection: PostgresConnection) -> None:
    def good(number: int) -> None:
        connection.execute(INSERT, (number, "well"))

    def bad() -> None:
        good(2)
        good(1)  # is there already: refused when the server comes to it
        good(3)

    connection.execute("BEGIN")
    connection.gather()
    outcomes = [guarded(connection, lambda _, work=work: work()) for work in (lambda: good(1), bad, lambda: good(4))]
    connection.settle()
    connection.execute("COMMIT")

    assert [type(outcome) for outcome in outcomes] == [type(None), Rejected, type(None)]
    assert isinstance(outcomes[1].error, psycopg.errors.UniqueViolation)
    assert [id for (id,) in connection.execute("SELECT id FROM kept ORDER BY id")] == [1, 4]


def test_a_unit_that_fails_by_itself_after_a_row_that_is_refused_is_undone_alone(
    connection: PostgresConnection,
) -> None:
    def bad(connection: PostgresConnection) -> None:
        connection.execute(INSERT, (1, "well"))  # is there already, and was not sent yet
        raise ValueError("a row that cannot be encoded")

    connection.execute(INSERT, (1, "well"))
    connection.execute("BEGIN")
    connection.gather()
    outcome = guarded(connection, bad)
    connection.execute(INSERT, (2, "well"))
    connection.settle()
    connection.execute("COMMIT")

    assert isinstance(outcome.error, ValueError)
    assert [id for (id,) in connection.execute("SELECT id FROM kept ORDER BY id")] == [1, 2]


def test_what_is_dropped_is_never_sent(connection: PostgresConnection) -> None:
    connection.execute("BEGIN")
    connection.gather()
    connection.execute(INSERT, (1, "well"))
    connection.drop()
    connection.execute("COMMIT")

    assert connection.execute("SELECT count(*) FROM kept").get == 0


@pytest.mark.parametrize("how", ["settle", "changes", "select", "copy"])
def test_an_error_is_that_of_the_statement_that_failed(connection: PostgresConnection, how: str) -> None:
    connection.execute(INSERT, (1, "well"))
    connection.execute("BEGIN")
    connection.gather()
    ways = {
        "settle": connection.settle,
        "changes": connection.changes,
        "select": lambda: connection.execute("SELECT 1 FROM kept"),
        "copy": lambda: connection.add_facts("INSERT INTO kept (id, words)", [(9, b"")] * 20),
    }

    def fail() -> None:
        for number in (2, 1, 3, 4):
            connection.execute(INSERT, (number, "well"))
        ways[how]()

    with pytest.raises(psycopg.errors.UniqueViolation):
        fail()
    connection.settle()
    connection.execute("ROLLBACK")

    assert connection.execute("SELECT count(*) FROM kept").get == 1


def test_a_connection_that_is_lost_meanwhile_says_so(connection: PostgresConnection, url: str) -> None:
    connection.execute("BEGIN")
    connection.gather()
    connection.execute(INSERT, (1, "well"))
    with psycopg.connect(url, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s)", (connection.raw.info.backend_pid,))
    with pytest.raises(psycopg.OperationalError) as caught:
        connection.settle()

    assert connection.is_storage(caught.value)


# -- transactions that begin late


FIRST = (("BEGIN", ()), ("SELECT count(*) FROM kept", ()))


def test_a_prepared_transaction_begins_with_all_that_is_kept(connection: PostgresConnection, tmp_path: Path) -> None:
    begun = list[int]()
    with traced(connection, tmp_path / "trace"):
        connection.prepare(FIRST, lambda rows: begun.append(rows.get))
        for number in range(5):
            connection.execute(INSERT, (number, "well"))
        assert not connection.in_transaction
        assert connection.execute("SELECT count(*) FROM kept").get == 5
        connection.execute(INSERT, (5, "well"))
        connection.execute("COMMIT")

    assert begun == [0], "the first statements came before those that were kept"
    assert turns(tmp_path / "trace") <= 2
    assert connection.execute("SELECT count(*) FROM kept").get == 6


def test_questions_are_answered_in_the_turn_that_begins_and_once(
    connection: PostgresConnection, tmp_path: Path
) -> None:
    ask = "SELECT words FROM kept WHERE id = ?"
    connection.executemany(INSERT, [(number, f"word {number}") for number in range(9)])
    with traced(connection, tmp_path / "trace"):
        connection.prepare(FIRST, lambda rows: None, [(ask, (number,)) for number in range(9)])
        assert [connection.execute(ask, (number,)).get for number in range(9)] == [f"word {n}" for n in range(9)]
        connection.execute("UPDATE kept SET words = ? WHERE id = ?", ("new", 3))
    assert turns(tmp_path / "trace") <= 1
    assert connection.execute(ask, (3,)).get == "new", "the second time it is asked"
    connection.execute("COMMIT")


def test_a_transaction_that_may_not_begin_writes_nothing(connection: PostgresConnection) -> None:
    def begun(rows: object) -> None:
        raise LookupError("the lease is over")

    connection.prepare(FIRST, begun)
    connection.execute(INSERT, (1, "well"))
    with pytest.raises(LookupError, match="over"):
        connection.open()
    connection.drop()
    connection.execute("ROLLBACK")
    assert connection.execute("SELECT count(*) FROM kept").get == 0

    connection.prepare(FIRST, begun)
    connection.execute(INSERT, (1, "well"))
    connection.drop()
    assert not connection.in_transaction
    assert connection.execute("SELECT count(*) FROM kept").get == 0


# -- the pipeline


def test_more_than_fits_into_the_buffers_of_both_sides_goes_through(connection: PostgresConnection) -> None:
    connection.executemany(INSERT, [(number, "x" * 2_000) for number in range(5_000)])
    connection.execute("BEGIN")
    connection.gather()
    connection.executemany("UPDATE kept SET words = words || ? WHERE id = ?", [("y" * 2_000, n) for n in range(5_000)])
    rows = connection.execute("SELECT id, words FROM kept ORDER BY id").fetchall()
    connection.execute("COMMIT")

    assert [id for id, _ in rows] == list(range(5_000))
    assert {len(words) for _, words in rows} == {4_000}


def test_a_statement_that_was_prepared_lives_on_after_errors(connection: PostgresConnection) -> None:
    for number in range(5):
        connection.execute(INSERT, (number, "well"))
        with pytest.raises(psycopg.errors.UniqueViolation):
            connection.execute(INSERT, (number, "well"))
        with pytest.raises(psycopg.errors.UndefinedTable):
            connection.execute("INSERT INTO gone (id) VALUES (?)", (number,))
    connection.execute(INSERT, (9, None))  # the same text with another type

    assert [id for (id,) in connection.execute("SELECT id FROM kept ORDER BY id")] == [0, 1, 2, 3, 4, 9]


def test_the_last_word_of_a_server_that_ends_is_its_error(connection: PostgresConnection) -> None:
    connection.execute("BEGIN")
    connection.gather()
    for number in range(3):
        connection.execute(INSERT, (number, "well"))
    with pytest.raises(psycopg.OperationalError):
        connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")
    assert connection.is_lost
    with pytest.raises(psycopg.OperationalError):
        connection.execute("SELECT 1")


@pytest.mark.parametrize("value", [object(), "a\0b", tuple(range(70_000))], ids=["no type", "NUL", "too many"])
def test_what_cannot_be_sent_costs_its_own_statement_alone(connection: PostgresConnection, value: object) -> None:
    given = value if isinstance(value, tuple) else (1, value)
    sql = "INSERT INTO kept (id, words) VALUES (" + ", ".join("?" * len(given)) + ")"
    with pytest.raises(psycopg.Error) as caught:
        connection.execute(sql, given)
    assert not connection.is_lost
    assert not connection.is_storage(caught.value) or isinstance(value, tuple)
    connection.execute(INSERT, (1, "well"))
    assert connection.execute("SELECT count(*) FROM kept").get == 1


def test_a_statement_is_prepared_anew_when_its_table_has_changed(connection: PostgresConnection) -> None:
    for number in range(5):
        connection.execute(INSERT, (number, "well"))
        connection.execute("SELECT * FROM kept WHERE id = ?", (number,))
    connection.execute("ALTER TABLE kept ADD COLUMN more TEXT")
    with pytest.raises(psycopg.errors.FeatureNotSupported):
        connection.execute("SELECT * FROM kept WHERE id = ?", (1,))

    assert connection.execute("SELECT * FROM kept WHERE id = ?", (1,)).fetchone() == (1, "well", None)
    connection.execute(INSERT, (6, "well"))
    connection.execute("DEALLOCATE ALL")
    with pytest.raises(psycopg.errors.InvalidSqlStatementName):
        connection.execute(INSERT, (7, "well"))
    connection.execute(INSERT, (8, "well"))


def test_a_commit_that_the_server_turns_into_an_undoing_is_an_error(connection: PostgresConnection) -> None:
    connection.execute("BEGIN")
    connection.execute(INSERT, (1, "well"))
    with pytest.raises(psycopg.errors.UniqueViolation):
        connection.execute(INSERT, (1, "well"))
    with pytest.raises(psycopg.errors.InFailedSqlTransaction, match="not committed"):
        connection.execute("COMMIT")
    assert connection.execute("SELECT count(*) FROM kept").get == 0
