"""Port between the statements and the database: one set of statements, in SQL that SQLite and PostgreSQL both know.

Statements have `?`, or `?1` and so on, for their values. The few that differ are methods of a connection: searches of
the full text index, insertion of many rows, and questions about the database itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar


class FullTextIndex(Protocol):
    """Index of the words of experiences. An expression is a text in the query language of the index."""

    def insert(self, connection: Any, sql: str, row: Sequence[Any], texts: Sequence[str]) -> None:
        """Insert the row of an experience, and add its texts. Args: sql: the statement that inserts the row."""

    def add(self, connection: Any, seq: int, texts: Sequence[str]) -> None:
        """Add the texts of a row, in the order of the indexed fields."""

    def remove(self, connection: Any, seq: int) -> None: ...

    def phrase(self, word: str, field: str) -> str:
        """Return the expression that finds a word. Args: field: the only field to search; "" for all."""

    def any_of(self, expressions: Sequence[str]) -> str: ...
    def both(self, first: str, second: str) -> str: ...

    def count(self, connection: Any, expression: str, most: int) -> int:
        """Return the number of rows that fit, counted up to `most`."""

    def ranked(
        self, connection: Any, words: Sequence[str], expression: str, after: int, number: int, condition: str,
        bindings: Sequence[Any],
    ) -> dict[int, float]:  # fmt: skip
        """Return the rows after `after` that fit, the best first, each with its score.

        Args: words: expressions of all words of the query; condition, bindings: the filter of the rows, as SQL.
        """

    def holding(self, connection: Any, word: str, rows: str, bindings: Sequence[Any] = ()) -> list[int]:
        """Return those of some rows that fit a word. Args: rows: numbers of rows or a query of them, as SQL."""

    def merge(self, connection: Any) -> bool:
        """Do one step of the index's own maintenance. Return whether more is left."""


class Connection(Protocol):
    """Connection to a database, used by one thread at a time.

    `filename` is "" if the rows of the database have no seals. `newest_fact` are number and link of the newest fact, if
    this connection has written it; else None. `link_facts` is not None while the database itself gives facts their
    numbers and links: it takes their other columns, each with `hash_chain.head_behind_number`.
    """

    @property
    def full_text(self) -> FullTextIndex: ...
    @property
    def filename(self) -> str: ...
    @property
    def newest_fact(self) -> tuple[int, bytes] | None: ...
    @property
    def link_facts(self) -> Callable[[Sequence[tuple[Any, ...]]], object] | None: ...
    @property
    def in_transaction(self) -> bool: ...

    def execute(self, sql: str, bindings: Any = ..., /) -> Any:
        """Execute a statement. Return its rows: an iterator with `fetchone()`, `fetchall()` and `get`, the first value
        of the first row or None."""

    def executemany(self, sql: str, rows: Any, /) -> object: ...

    def changes(self) -> int:
        """Return the number of rows that the last statement has changed."""

    def total_changes(self) -> int:
        """Return the number of rows that all statements have changed."""

    def add_facts(self, into: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """Insert facts. Args: into: the statement before its values; rows: the last one ends with the newest link."""

    def undone_in_part(self) -> None:
        """Note that a part of the transaction was undone."""

    def tables(self) -> set[str]:
        """Return the names of the present tables."""

    def bytes_used(self) -> int:
        """Return the bytes of the database without its free space."""

    def give_back(self, most: int | None) -> bool:
        """Return a part of the free space to the disk. Return whether more is left.

        Args: most: bytes from which on the database keeps no free space.
        """

    def is_storage(self, error: BaseException) -> bool:
        """Return whether the disk or the server caused an error, so that the same work may succeed later."""

    def begin(self) -> None:
        """Begin a transaction that only reads and sees one state of the data."""

    def end(self) -> None:
        """End that transaction. If that fails, the connection must be closed."""

    def interrupt(self) -> object:
        """End the present statement with an error. Safe from any thread."""

    def close(self) -> object: ...


C = TypeVar("C", bound=Connection)


@contextmanager
def closed_on_error(connection: C) -> Iterator[C]:
    """Close a connection if what is done with it before it is in use fails."""
    try:
        yield connection
    except BaseException:
        connection.close()
        raise
