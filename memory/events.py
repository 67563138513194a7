"""The events of the journal: rows that are only ever added, each linked to the one before it.

Functions of a connection; what writes runs in the writer's thread inside its transaction and may be called again
when that had to be undone. The links are those of `memory.sqlite.hash_chain`; how things stand is said by other tables
(`memory.journal.statements`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from memory.inserts import insert_all
from memory.sqlite import hash_chain, seals

if TYPE_CHECKING:
    from apsw import Connection

_INTO = "INSERT INTO fact (seq, at, work, call, kind, body, link)"

#: A fact before it has its place: when, which work, what it is about, kind, body.
EventRow = tuple[float, str, str, str, str]


def append(connection: Connection, told: Sequence[EventRow]) -> None:
    """Add facts behind the last one."""
    sealing = seals.of(connection)
    last = (sealing.newest if sealing is not None else None) or hash_chain.last(connection)
    seq, link = last if last is not None else hash_chain.anchor(connection)
    rows = []
    for at, work, call, kind, body in told:
        seq += 1
        link = hash_chain.link(link, seq, at, work, call, kind, body)
        rows.append((seq, at, work, call, kind, body, link))
    if sealing is None:
        insert_all(connection, _INTO, rows)
    else:
        with sealing.unhooked:
            insert_all(connection, _INTO, rows)
        sealing.wrote_facts((seq, link))


def of_work(connection: Connection, work: str) -> Iterator[tuple[str, str, str, float]]:
    """Return the facts of a cycle in order: call, kind, body, when."""
    rows = connection.execute("SELECT call, kind, body, at FROM fact WHERE work = ? ORDER BY seq", (work,))
    return ((str(call), str(kind), str(body), float(str(at))) for call, kind, body, at in rows)
