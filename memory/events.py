"""The events of the journal, and the statements on its tables.

Functions of a connection; what writes runs in the writer's thread inside its transaction and may be called again
when that had to be undone. `fact` is only ever added to, each row linked to the one before it
(`memory.sqlite.hash_chain`); the other tables say how things stand: what was accepted, which cycles are open, which
calls are in doubt.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from memory.inserts import insert_all
from memory.sqlite import hash_chain, seals

if TYPE_CHECKING:
    from apsw import Connection

_INTO = "INSERT INTO fact (seq, at, work, call, kind, body, link)"

PUT_ITEM = (
    "INSERT INTO item (id, agent, session, kind, key, at, attempts, state, body) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, 'waiting', ?) ON CONFLICT (id) DO UPDATE SET "
    "attempts = excluded.attempts, body = excluded.body WHERE item.state = 'waiting'"
)
END_ITEM = "UPDATE item SET state = ?, body = ? WHERE id = ? AND state = 'waiting'"
AMEND = "UPDATE item SET body = ? WHERE id = ? AND state = 'done'"
EXHUME = "UPDATE item SET state = ?, attempts = 0, body = ? WHERE id = ? AND agent = ? AND state = 'dead'"
OPEN = (
    "INSERT INTO open_cycle (id, agent, attempts, body) VALUES (?, ?, ?, ?) "
    "ON CONFLICT (id) DO UPDATE SET attempts = excluded.attempts, body = excluded.body"
)
CLOSE = "DELETE FROM open_cycle WHERE id = ?"
DOUBT = "INSERT INTO doubt (id, agent, at, answer, body) VALUES (?, ?, ?, NULL, ?) ON CONFLICT (id) DO NOTHING"
ANSWER = "UPDATE doubt SET answer = ?, body = ? WHERE id = ? AND answer IS NULL"
SAVE = "INSERT INTO state (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"

#: What is known of work that is through, and of answered doubts, is forgotten in batches: its ids and keys are what a
#: repetition is known by. Dead letters that nobody deals with make room for newer ones.
_FORGET = (
    "DELETE FROM item WHERE id IN (SELECT id FROM item WHERE state = 'done' AND at < ? LIMIT 250)",
    "DELETE FROM item WHERE id IN (SELECT id FROM item WHERE state = 'done' ORDER BY at DESC LIMIT 250 OFFSET 100000)",
    "DELETE FROM item WHERE id IN (SELECT id FROM item WHERE state = 'dead' ORDER BY at DESC LIMIT 250 OFFSET 1000)",
    "DELETE FROM doubt WHERE id IN (SELECT id FROM doubt WHERE answer IS NOT NULL AND at < ? LIMIT 250)",
)
KEPT_DAYS = 30.0  # for which a key that was accepted is known again

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


def forget(connection: Connection, now: float) -> int:
    """Delete one batch of what is through for so long that nobody asks for it; returns how many rows went."""
    gone = 0
    for sql in _FORGET:
        connection.execute(sql, (now - KEPT_DAYS * 86_400.0,) if "?" in sql else ())
        gone += connection.changes()
    return gone


def of_work(connection: Connection, work: str) -> Iterator[tuple[str, str, str, float]]:
    """Return the facts of a cycle in order: call, kind, body, when."""
    rows = connection.execute("SELECT call, kind, body, at FROM fact WHERE work = ? ORDER BY seq", (work,))
    return ((str(call), str(kind), str(body), float(str(at))) for call, kind, body, at in rows)


def rows(connection: Connection, sql: str, *bindings: Any) -> list[tuple[Any, ...]]:
    return list(connection.execute(sql, bindings))
