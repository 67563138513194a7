"""Inserting of many rows with few statements: between two of them the event loop takes the interpreter."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from apsw import Connection

#: Rows of one statement, the most first.
_AT_ONCE = (32, 4, 1)


def insert_all(connection: Connection, into: str, rows: Sequence[tuple[Any, ...]], then: str = "") -> None:
    """Insert rows. `into` is the statement up to its values, `then` what follows them."""
    done = 0
    for number in _AT_ONCE:
        while len(rows) - done >= number:
            values = tuple(chain(*rows[done : done + number]))
            connection.execute(_statement(into, len(rows[0]), number, then), values)
            done += number


@cache
def _statement(into: str, columns: int, rows: int, then: str) -> str:
    row = f"({', '.join('?' * columns)})"
    return f"{into} VALUES {', '.join([row] * rows)} {then}"
