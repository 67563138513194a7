"""Facts of the journal: rows that are only ever added, each linked to the one before it.

`append` runs in the writer's thread inside its transaction, and again if the transaction was undone. The links are
those of `memory.sqlite.hash_chain`; other tables have the present state (`memory.journal.statements`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from memory.inserts import insert_all
from memory.sqlite import hash_chain, seals

if TYPE_CHECKING:
    from apsw import Connection

_INTO = "INSERT INTO fact (seq, at, work, call, kind, body, link)"

#: A fact before it has a number: time (seconds since 1970), id of the cycle, id of the call or item, kind, body.
EventRow = tuple[float, str, str, str, str]


def append(connection: Connection, facts: Sequence[EventRow]) -> None:
    """Add facts behind the last one."""
    sealing = seals.of(connection)
    last = (sealing.newest if sealing is not None else None) or hash_chain.last(connection)
    seq, link = last if last is not None else hash_chain.anchor(connection)
    rows = []
    for at, work, call, kind, body in facts:
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
    """Return the facts of a cycle in order: call, kind, body, time."""
    rows = connection.execute("SELECT call, kind, body, at FROM fact WHERE work = ? ORDER BY seq", (work,))
    return ((str(call), str(kind), str(body), float(str(at))) for call, kind, body, at in rows)
