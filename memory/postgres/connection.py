"""Connection to PostgreSQL, as the port of the statements wants it (`memory.engine.connection`).

Statements have SQLite's parameters (`?`, `?1`), which become those of PostgreSQL (`$1`) when a statement is first used.
Rows are read at once: a statement leaves nothing open.

Between `gather` and `settle` statements that change rows are kept, and sent together before the next one whose answer
is used (the pipeline of libpq): a group of the writer has some twenty of them, and other nodes wait for its end. Their
errors come with that statement, as RELEASE, or with `settle`. None is sent earlier: a server does not end a
transaction that stands still (`idle_in_transaction_session_timeout`) while it waits for the rest of a pipeline.

After `prepare` they are kept also before the transaction, which begins with the first statement whose answer is used:
who waits for its locks waits for the server alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final

import psycopg
from psycopg import pq
from psycopg.adapt import AdaptersMap
from psycopg.pq import TransactionStatus
from psycopg.types.numeric import Int8Dumper

from memory.engine.transactions import Statement
from memory.inserts import insert_all
from memory.postgres.full_text import TsVectors
from memory.postgres.pipeline import Pipeline

_FEW = 8  # rows for which one INSERT takes less time than COPY with its further round trips
#: Classes of errors after which the same statement may succeed later: connection, transaction, authorization,
#: resources, server; and single ones: what a transaction of a node demands is not so, a missing table or column, a
#: missing right. A row is not to blame for them.
_STORAGE_CLASSES = ("08", "25", "28", "3D", "40", "53", "54", "55", "57", "58", "F0", "XX")
_STORAGE_STATES = ("22012", "42501", "42703", "42883", "42P01", "3F000")
_SIZE = (
    "SELECT CAST(coalesce((SELECT sum(bytes) FROM cycle), 0) + coalesce((SELECT sum(bytes) FROM experience), 0) "
    "+ coalesce((SELECT sum(bytes) FROM transcript), 0) + coalesce((SELECT sum(bytes) FROM tape_piece), 0) "
    "+ (SELECT count(*) FROM fact) * 600 AS BIGINT)"
)
#: Insertion of a fact behind the newest one. Its link is that of `memory.engine.hash_chain`, made by the server: the
#: number with its lowest byte first, then the rest of the head (?6), then the texts.
_LINKED: Final = (
    "INSERT INTO fact (seq, at, work, call, kind, body, link) SELECT seq, CAST(?1 AS float8), CAST(?2 AS text), "
    "CAST(?3 AS text), CAST(?4 AS text), CAST(?5 AS text), sha256(link || "
    f"{' || '.join(f'substring(number FROM {place} FOR 1)' for place in range(8, 0, -1))} || ?6 || "
    "convert_to(CAST(?2 AS text) || CAST(?3 AS text) || CAST(?4 AS text) || CAST(?5 AS text), 'UTF8')) "
    "FROM (SELECT seq + 1 AS seq, link, int8send(seq + 1) AS number FROM fact ORDER BY fact.seq DESC LIMIT 1) AS last "
    "RETURNING seq, link"
)
_WITHIN = 5.0  # seconds for the answer to an interruption
_READ = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_FULL_TEXT = TsVectors()
_CHANGES: Final = frozenset((b"INSERT", b"UPDATE", b"DELETE"))
#: First words of statements that are sent later, if no row is asked for; and of those with which they are sent.
_LATER: Final = frozenset(("INSERT", "UPDATE", "DELETE", "SAVEPOINT"))
_WITH_THEM: Final = frozenset(("SELECT", "WITH", "RELEASE", "COMMIT"))


class _BoolDumper(Int8Dumper):
    """Writer of truth values as the numbers that the tables hold."""

    def dump(self, obj: Any) -> bytes:
        return b"1" if obj else b"0"


def adapters() -> AdaptersMap:
    """Return how values are sent: every whole number with 64 bits, so that a statement has one plan."""
    here = AdaptersMap(psycopg.adapters)
    here.register_dumper(int, Int8Dumper)
    here.register_dumper(bool, _BoolDumper)
    return here


@lru_cache(2_000)
def _verb(sql: str) -> str:
    """Return the first word of a statement; SELECT if it returns rows of what it changes."""
    return "SELECT" if " RETURNING " in sql else sql.split(None, 1)[0]


class PostgresRows:
    """Rows of a statement, each returned once."""

    __slots__ = ("_rows",)

    def __init__(self, rows: Sequence[Any]) -> None:
        self._rows = iter(rows)

    @property
    def get(self) -> Any:
        """Return the first value of the first row; None if there is no row."""
        row = next(self._rows, None)
        return None if row is None else row[0]

    def fetchone(self) -> Any:
        """Return the next row; None if there is none."""
        return next(self._rows, None)

    def fetchall(self) -> list[Any]:
        """Return the rows that are left."""
        return list(self._rows)

    def __iter__(self) -> Iterator[Any]:
        return self._rows


class PostgresConnection:
    """Connection to a server. It begins no transaction by itself.

    Args: raw: the connection of the driver, with `autocommit`; again: makes another one in the place of a lost one,
        when a transaction that reads begins.
    """

    full_text = _FULL_TEXT
    #: The rows have no seals: the pages of a server have checksums of their own.
    filename = ""

    def __init__(
        self, raw: psycopg.Connection[Any], again: Callable[[], psycopg.Connection[Any]] | None = None
    ) -> None:
        self.raw, self._again = raw, again
        self._newest_fact: tuple[int, bytes] | None = None
        self._changes = self._total = 0
        self._is_gathering = False
        #: What gives the server facts to link, and the last one that it got in this transaction.
        self.link_facts: Callable[[Sequence[tuple[Any, ...]]], object] | None = None
        self.linked: tuple[Any, ...] | None = None
        self._pipeline = Pipeline(raw)
        self._later: list[tuple[str, Sequence[Any]]] = []  # statements, each with rows of what it is given
        self._prepared: tuple[Sequence[Statement], Callable[[PostgresRows], object]] | None = None
        self._is_late = False  # whether it begins in a turn of its own, when it is to be sent
        self._answers: dict[Statement, PostgresRows | None] = {}
        self._asked = frozenset[str]()  # the texts of the questions

    @property
    def newest_fact(self) -> tuple[int, bytes] | None:
        """Return number and link of the newest fact, if it is known; a transaction that is prepared begins first."""
        self.open()
        return self._newest_fact

    @newest_fact.setter
    def newest_fact(self, fact: tuple[int, bytes] | None) -> None:
        self._newest_fact = fact

    @property
    def in_transaction(self) -> bool:
        """Return whether a transaction has begun and not ended."""
        return self.raw.info.transaction_status in (TransactionStatus.INTRANS, TransactionStatus.INERROR)

    @property
    def is_lost(self) -> bool:
        """Return whether the server cannot be reached through this connection any more."""
        return self.raw.closed

    def gather(self) -> None:
        """Keep from now on statements that change rows until an answer is wanted, or until `settle`."""
        self._is_gathering = True

    def prepare(
        self, first: Sequence[Statement], begun: Callable[[PostgresRows], object], questions: Iterable[Statement] = ()
    ) -> None:
        """Gather for a transaction that begins with the statements `first` when an answer is wanted, or with `open`.

        `begun` gets the rows of the last of these then. Raises: psycopg.Error; the errors of `begun`.
        Args: questions: statements that will be executed later, once each; they are answered in the same turn.
        """
        self.gather()
        self.link_facts = self.linked = None
        self._answers = dict.fromkeys(questions)
        self._asked = frozenset([sql for sql, _ in self._answers])
        self._prepared, self._is_late = (first, begun), False

    def prepare_late(
        self, first: Sequence[Statement], begun: Callable[[PostgresRows], object], questions: Iterable[Statement]
    ) -> None:
        """Gather for a transaction that begins when its statements are to be sent, or with `start`: however long its
        rows take to encode, the server does not see it stand still. It links the facts, if there is one to link to.

        Args, raises: as `prepare`; the questions are answered now, outside of the transaction.
        """
        self.prepare(first, begun, questions)
        if self._answers:
            answers = self._carried_out([(sql, (given,)) for sql, given in self._answers])
            self._answers.update(zip(self._answers, answers, strict=True))
        self._is_late, self.link_facts = True, self._link_facts

    def open(self) -> None:
        """Begin the transaction that is prepared, if it has not begun and is not late. Raises: as `prepare`."""
        if self._prepared is not None and not self._is_late:
            self._send()

    def start(self) -> None:
        """Begin the transaction that is prepared, if it has not begun; a late one alone. Raises: as `prepare`."""
        if self._prepared is not None and self._is_late:
            (first, begun), self._prepared = self._prepared, None
            begun(self._carried_out([(sql, (given,)) for sql, given in first])[-1])
        self.open()

    def settle(self) -> None:
        """Carry out what is kept, and from now on each statement at once. Raises: psycopg.Error: the first error."""
        self._is_gathering = False
        self._send()

    def drop(self) -> None:
        """Forget what is kept, whose transaction is to be undone, and execute from now on each statement at once."""
        self._is_gathering, self._prepared, self._asked = False, None, frozenset()
        self._later.clear()

    def execute(self, sql: str, bindings: Any = (), /) -> PostgresRows:
        """Execute a statement, or several without parameters; return the rows of the last. Raises: psycopg.Error."""
        if sql in self._asked and (sql, bindings) in self._answers:
            self.open()
            return self._answers.pop((sql, bindings))  # type: ignore[return-value]
        if self._is_gathering:
            verb = _verb(sql)
            if verb == "SAVEPOINT":
                self.open()  # an error of the beginning is not one of the unit that follows, and is not undone with it
            if verb in _LATER:
                self._later.append((sql, (bindings,)))
                return PostgresRows(())
            if (self._later or self._prepared) and verb in _WITH_THEM:
                self._later.append((sql, (bindings,)))
                return self._send()
            try:
                self._send()
            except psycopg.Error:
                if verb != "ROLLBACK":  # which undoes what was kept
                    raise
        return self._execute(sql, bindings)

    def executemany(self, sql: str, rows: Any, /) -> None:
        """Execute a statement for each row, without waiting for each answer. Raises: psycopg.Error."""
        given = list(rows)
        if len(given) == 1:
            self.execute(sql, given[0])
        elif given:
            self.later(sql, *given)

    def changes(self) -> int:
        """Return the number of rows that the last statement has changed."""
        self._send()
        return self._changes

    def total_changes(self) -> int:
        """Return the number of rows that all statements have changed."""
        self._send()
        return self._total

    def _link_facts(self, rows: Sequence[tuple[Any, ...]]) -> None:
        self.linked = rows[-1]
        self.later(_LINKED, *rows)

    def add_facts(self, into: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """Insert facts. Raises: psycopg.Error."""
        if len(rows) < _FEW:
            insert_all(self, into, rows)
        else:
            self._send()
            cursor = self.raw.cursor()
            with cursor.copy(f"{into.replace('INSERT INTO', 'COPY')} FROM STDIN") as copy:
                for row in rows:
                    copy.write_row(row)
            self._changes = len(rows)
            self._total += len(rows)
        self.newest_fact = rows[-1][0], rows[-1][-1]

    def later(self, sql: str, *rows: tuple[Any, ...]) -> None:
        """Execute a statement whose answer nobody wants, once for each row of parameters: with the next turn, if
        statements are gathered. Raises: psycopg.Error."""
        if self._is_gathering:
            self._later.append((sql, rows))
        else:
            self._carried_out([(sql, rows)])

    def undone_in_part(self) -> None:
        """Note that a part of the transaction was undone, and maybe the newest fact with it."""
        self.newest_fact = self.linked = None

    def tables(self) -> set[str]:
        """Return the names of the present tables."""
        query = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
        return {str(name) for (name,) in self.execute(query)}

    def bytes_used(self) -> int:
        """Return about how many bytes the rows take; the server gives free space back by itself (autovacuum)."""
        return int(self.execute(_SIZE).get)

    def give_back(self, most: int | None) -> bool:
        """Do nothing: the server uses free space again by itself."""
        return False

    def is_storage(self, error: BaseException) -> bool:
        """Return whether the server or the way to it caused an error, so that the same work may succeed later."""
        if not isinstance(error, psycopg.Error):
            return isinstance(error, (MemoryError, OSError))
        state = error.sqlstate
        if state is None:
            return isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError))
        return state[:2] in _STORAGE_CLASSES or state in _STORAGE_STATES

    def begin(self) -> None:
        """Begin a transaction that reads one state of the data. Raises: psycopg.Error."""
        try:
            self.execute(_READ)
        except psycopg.OperationalError:
            if self._again is None or not self.is_lost:
                raise
            self.raw = self._again()
            self._pipeline = Pipeline(self.raw)
            self.execute(_READ)

    def end(self) -> None:
        """End the transaction that reads. Raises: psycopg.Error."""
        if self.in_transaction:
            self.execute("COMMIT")
        elif self.is_lost:
            raise psycopg.OperationalError("the connection is lost")

    def interrupt(self) -> None:
        """End the present statement with an error. Safe from any thread, also from one that must not wait: the server
        is asked in another one, for at most some seconds."""
        threading.Thread(target=self._cancel, name="memory-interrupt", daemon=True).start()

    def _cancel(self) -> None:
        with suppress(psycopg.Error):  # it is lost, or the server does not answer
            self.raw.cancel_safe(timeout=_WITHIN)

    def close(self) -> None:
        """Close the connection."""
        self.raw.close()

    def _execute(self, sql: str, bindings: Any) -> PostgresRows:
        if ";" not in sql:
            return self._carried_out([(sql, (bindings,))])[0]
        cursor = psycopg.RawCursor(self.raw)
        cursor.execute(sql, prepare=False)
        while cursor.nextset():
            pass
        return PostgresRows(cursor.fetchall() if cursor.description is not None else ())

    def _send(self) -> PostgresRows:
        """Carry out what is kept. Return the rows of the last statement. Raises: psycopg.Error: the first error; as
        `prepare`."""
        if self._is_late:
            self.start()
        later, self._later = self._later, []
        if self._prepared is None:
            return self._carried_out(later)[-1] if later else PostgresRows(())
        (first, begun), self._prepared = self._prepared, None
        asked = [*first, *self._answers]
        rows = self._carried_out([*((sql, (given,)) for sql, given in asked), *later])
        self._answers.update(zip(self._answers, rows[len(first) :], strict=False))
        begun(rows[len(first) - 1])
        return rows[-1]

    def _carried_out(self, statements: Sequence[tuple[str, Sequence[Any]]]) -> list[PostgresRows]:
        """Execute statements in one turn, each with all its rows of parameters. Return the rows of each.

        Raises: psycopg.Error: the first error.
        """
        answers = []
        for (sql, _), results in zip(statements, self._pipeline.run(statements), strict=True):
            if sql == "COMMIT" and _verb_of(results[0]) != b"COMMIT":  # the server tells that in no other way
                raise psycopg.errors.InFailedSqlTransaction("the transaction was undone and not committed")
            if _verb_of(results[0]) in _CHANGES:
                self._changes = sum(result.command_tuples or 0 for result in results)
                self._total += self._changes
            rows = self._pipeline.rows_of(results[-1])
            if sql is _LINKED:
                self._newest_fact = rows[0][0], bytes(rows[0][1])
            answers.append(PostgresRows(rows))
        return answers


def _verb_of(result: pq.abc.PGresult) -> bytes:
    return (result.command_status or b"").partition(b" ")[0]
