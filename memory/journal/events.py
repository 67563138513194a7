"""The journal's tables and the statements on them.

Functions of a connection; what writes runs in the writer's thread inside its transaction and may be called again
when that had to be undone. `fact` is only ever added to, each row linked to the one before it
(`memory.journal.hash_chain`); the other tables say how things stand: what was accepted, which cycles are open, which
calls are in doubt.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from memory.journal import hash_chain as chain
from memory.sqlite import seals

if TYPE_CHECKING:
    from apsw import Connection

#: Format 3 adds these tables.
TABLES = """
CREATE TABLE fact (
    seq   INTEGER PRIMARY KEY,  -- in the order in which they happened; only the oldest are ever deleted
    at    REAL NOT NULL,        -- seconds since 1970
    work  TEXT NOT NULL,        -- the cycle, or the action where there is none
    call  TEXT NOT NULL,        -- the call, item, doubt or approval that it is about
    kind  TEXT NOT NULL,
    body  TEXT NOT NULL,
    link  BLOB NOT NULL         -- over this row and the link before
);
CREATE INDEX fact_by_work ON fact (work);

CREATE TABLE item (             -- accepted work, and for a while what is known of it when it is through
    id        TEXT PRIMARY KEY,
    agent     TEXT NOT NULL,
    session   TEXT NOT NULL,
    kind      TEXT NOT NULL,
    key       TEXT,
    at        REAL NOT NULL,
    attempts  INTEGER NOT NULL,
    state     TEXT NOT NULL,    -- waiting, done, dead
    body      TEXT NOT NULL
) WITHOUT ROWID;
CREATE UNIQUE INDEX item_by_key ON item (agent, key) WHERE key IS NOT NULL;
CREATE INDEX item_by_state ON item (state, at);
CREATE INDEX item_by_age ON item (at);

CREATE TABLE open_cycle (       -- begun and not ended
    id        TEXT PRIMARY KEY,
    agent     TEXT NOT NULL,
    attempts  INTEGER NOT NULL, -- beginnings that were not ended in good order
    body      TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE doubt (            -- calls of which nobody knows whether they had their effect
    id      TEXT PRIMARY KEY,
    agent   TEXT NOT NULL,
    at      REAL NOT NULL,
    answer  TEXT,
    body    TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE spent (            -- what was used of the budgets
    window    TEXT NOT NULL,
    quantity  TEXT NOT NULL,
    used      INTEGER NOT NULL,
    PRIMARY KEY (window, quantity)
) WITHOUT ROWID;
"""

_INSERT = "INSERT INTO fact (seq, at, work, call, kind, body, link) VALUES (?, ?, ?, ?, ?, ?, ?)"

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
Told = tuple[float, str, str, str, str]


def append(connection: Connection, told: Sequence[Told]) -> None:
    """Add facts behind the last one."""
    sealing = seals.of(connection)
    last = (sealing.newest if sealing is not None else None) or chain.last(connection)
    seq, link = last if last is not None else chain.anchor(connection)
    rows = []
    for at, work, call, kind, body in told:
        seq += 1
        link = chain.link(link, seq, at, work, call, kind, body)
        rows.append((seq, at, work, call, kind, body, link))
    if sealing is None:
        connection.executemany(_INSERT, rows)
    else:
        with sealing.unhooked:
            connection.executemany(_INSERT, rows)
        sealing.wrote_facts((seq, link))


def forget(connection: Connection, now: float) -> int:
    """Delete one batch of what is through for so long that nobody asks for it; returns how many rows went."""
    gone = 0
    for sql in _FORGET:
        connection.execute(sql, (now - KEPT_DAYS * 86_400.0,) if "?" in sql else ())
        gone += connection.changes()
    return gone


def of_work(connection: Connection, work: str) -> Iterator[tuple[str, str, str, float]]:
    """The facts of a cycle in order: call, kind, body, when."""
    rows = connection.execute("SELECT call, kind, body, at FROM fact WHERE work = ? ORDER BY seq", (work,))
    return ((str(call), str(kind), str(body), float(str(at))) for call, kind, body, at in rows)


def rows(connection: Connection, sql: str, *bindings: Any) -> list[tuple[Any, ...]]:
    return list(connection.execute(sql, bindings))
