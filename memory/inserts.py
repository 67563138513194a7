"""Parts of statements: conditions, and the insertion of many rows with few statements.

They are few because the event loop may take the interpreter after each statement.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memory.engine.connection import Connection

#: Numbers of rows that one statement inserts.
_MANY, _SOME = 32, 4


def where(terms: Iterable[tuple[str, Any]]) -> tuple[str, tuple[Any, ...]]:
    """Return the condition that all terms with a value hold, and its bindings: their values. None is no value; without
    any the condition is `true`."""
    given = [(text, value) for text, value in terms if value is not None]
    return " AND ".join(text for text, _ in given) or "true", tuple(value for _, value in given)


def insert_all(connection: Connection, into: str, rows: Sequence[tuple[Any, ...]], then: str = "") -> None:
    """Insert rows. `into` is the text of the statement before its values, `then` the text after them."""
    if len(rows) == 1:  # the usual case when somebody waits for the rows
        connection.execute(_statement(into, len(rows[0]), 1, then), rows[0])
        return
    done, left = 0, len(rows)
    while left:
        number = _MANY if left >= _MANY else _SOME if left >= _SOME else 1
        part = rows[done : done + number]
        connection.execute(_statement(into, len(part[0]), number, then), tuple(chain.from_iterable(part)))
        done, left = done + number, left - number


@cache
def _statement(into: str, columns: int, rows: int, then: str) -> str:
    row = f"({', '.join('?' * columns)})"
    return f"{into} VALUES {', '.join([row] * rows)} {then}"
