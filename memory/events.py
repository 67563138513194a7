"""Facts of the journal: rows that are only ever added, each linked to the one before it.

`append` runs in the writer's thread inside its transaction, and again if the transaction was undone. The links are
those of `memory.engine.hash_chain`; other tables have the present state (`memory.journal.statements`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from memory.codec import EventRow
from memory.engine import hash_chain

if TYPE_CHECKING:
    from memory.engine.connection import Connection

_INTO = "INSERT INTO fact (seq, at, work, call, kind, body, link)"


def append(connection: Connection, facts: Sequence[EventRow]) -> None:
    """Add facts behind the last one."""
    if not facts:
        return
    if (link_facts := connection.link_facts) is not None:
        texts = [(*fact[:4], str(fact[4])) for fact in facts]
        link_facts([(*fact, hash_chain.head_behind_number(*fact)) for fact in texts])
        return
    seq, link = connection.newest_fact or hash_chain.last(connection) or hash_chain.anchor(connection)
    rows = []
    for at, work, call, kind, body in facts:
        body = str(body)
        seq += 1
        link = hash_chain.link(link, seq, at, work, call, kind, body)
        rows.append((seq, at, work, call, kind, body, link))
    connection.add_facts(_INTO, rows)


def of_work(connection: Connection, work: str) -> Iterator[tuple[str, str, str, float]]:
    """Return the facts of a cycle in order: call, kind, body, time."""
    rows = connection.execute("SELECT call, kind, body, at FROM fact WHERE work = ? ORDER BY seq", (work,))
    return ((str(call), str(kind), str(body), float(str(at))) for call, kind, body, at in rows)
