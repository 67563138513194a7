"""Chain of facts: each row's link is a hash over the row and the link of the row before it.

A database's own checks see that pages fit together, not that a row still has its content: of 400 flipped bits in a file
they found 18, the chain 384, and the others hit unused bytes. A broken chain shows that a row was altered, inserted or
removed, not who did it: a person who can write the file can write a new chain.

Only the oldest rows are ever deleted. Number and link of the last deleted row are in the table `state` under `chain`
(the anchor), changed in the same transaction. The audit log is a chain of the same kind (`AUDIT`).
"""

from __future__ import annotations

import json
from hashlib import sha256
from struct import Struct as Layout
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

if TYPE_CHECKING:
    from memory.engine.connection import Connection

#: Link before the first fact of all.
GENESIS = bytes(32)
_BATCH = 1_000
TAIL = 1_000  # newest facts whose chain is checked at the opening
_PUT_ANCHOR = "INSERT INTO state (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"


class Chain(NamedTuple):
    """Table that is a chain: its name, its name for people, its columns, and the key of its anchor in `state`."""

    table: str
    noun: str
    columns: str
    anchor: str


FACTS = Chain("fact", "facts", "seq, at, work, call, kind, body, link", "chain")
AUDIT = Chain("audit", "the audit log", "seq, at, actor, subject, action, body, link", "audit_chain")
_head = Layout("<qdiiii").pack  # with the lengths of the texts, so that no two rows give the same bytes


class ChainBreak(Struct, frozen=True):
    """First row that does not fit: its number, the reason, and the name of the chain."""

    seq: int
    why: str
    noun: str = FACTS.noun

    def __str__(self) -> str:
        return f"the chain of {self.noun} is broken at number {self.seq}: {self.why}"


def link(before: bytes, seq: int, at: float, work: str, call: str | None, kind: str, body: str) -> bytes:
    """Return the link of a fact: a hash of 32 bytes over the link before it, its number and its columns."""
    head = _head(seq, at, len(work), -1 if call is None else len(call), len(kind), len(body))
    return sha256(before + head + f"{work}{call or ''}{kind}{body}".encode("utf-8", "surrogatepass")).digest()


def head_behind_number(at: float, work: str, call: str | None, kind: str, body: object) -> bytes:
    """Return the bytes that `link` puts between the number of a fact and its texts."""
    return _head(0, at, len(work), -1 if call is None else len(call), len(kind), len(str(body)))[8:]


def anchor(connection: Connection, chain: Chain = FACTS) -> tuple[int, bytes]:
    """Return number and link of the last row that was deleted for its age; `(0, GENESIS)` if none was.

    Raises: ValueError when they cannot be read.
    """
    text = connection.execute("SELECT value FROM state WHERE key = ?", (chain.anchor,)).get
    if text is None:
        return 0, GENESIS
    try:
        deleted = json.loads(str(text))
        return int(deleted["seq"]), bytes.fromhex(deleted["link"])
    except (TypeError, KeyError) as error:
        raise ValueError(f"state.{chain.anchor} is {str(text)[:100]!r}, expected a number and a link") from error


def check(connection: Connection, *, last: int | None = None, chain: Chain = FACTS) -> ChainBreak | None:
    """Return the first row, in their order, that does not fit; None if all fit.

    Args: last: number of the newest rows to check; None: all, from the anchor on.
    Raises: the error of the database when the rows cannot be read.
    """
    table = chain.table
    if table not in connection.tables():
        return None  # of an older format
    query = f"SELECT {chain.columns} FROM {table} WHERE seq > ? ORDER BY seq LIMIT {_BATCH}"
    number, before, latest = 0, GENESIS, newest(connection, chain)
    if last is not None and latest > last:
        number = latest - last
        stored = connection.execute(f"SELECT link FROM {table} WHERE seq = ?", (number,)).get
        before = stored if isinstance(stored, bytes) else b""
    if number == 0 or not before:  # all rows are to be checked, or the row before the newest ones is missing
        try:
            number, before = anchor(connection, chain)
        except ValueError as error:
            return ChainBreak(0, str(error), chain.noun)
    while True:
        try:
            rows = list(connection.execute(query, (number,)))
        except UnicodeDecodeError as error:
            return ChainBreak(number + 1, f"it, or one soon after it, cannot be read: {error}", chain.noun)
        for seq, at, work, call, kind, body, stored in rows:
            if seq != number + 1:
                return ChainBreak(number + 1, f"it is missing, the next one is number {seq}", chain.noun)
            try:
                before = link(before, seq, at, work, call, kind, body)
            except Exception as error:  # a column is no longer of the type that was written
                return ChainBreak(seq, f"it cannot be read: {error}", chain.noun)
            if before != stored:
                return ChainBreak(seq, "its link does not fit: it was altered, or the one before it was", chain.noun)
            number = seq
        if len(rows) < _BATCH:
            break
    if last is None:  # a check of all rows also finds rows that should have been deleted
        older = connection.execute(
            f"SELECT seq FROM {table} WHERE seq <= ? ORDER BY seq LIMIT 1", (anchor(connection, chain)[0],)
        )
        if (stray := older.get) is not None:
            return ChainBreak(int(str(stray)), "it stands before the oldest one that is kept", chain.noun)
    return None


def newest(connection: Connection, chain: Chain = FACTS) -> int:
    """Return the number of the last row; 0 if there is none."""
    return integer(connection, f"SELECT max(seq) FROM {chain.table}")


def last(connection: Connection, chain: Chain = FACTS) -> tuple[int, bytes] | None:
    """Return number and link of the last row; None if there is none."""
    row = connection.execute(f"SELECT seq, link FROM {chain.table} ORDER BY seq DESC LIMIT 1").fetchone()
    return None if row is None else (int(str(row[0])), bytes(row[1]))


def move_anchor(connection: Connection, upto: int, chain: Chain = FACTS) -> None:
    """Write that the rows up to number `upto` are deleted. Call it before the deletion, in the same transaction.

    Raises: ValueError when there is no such row.
    """
    stored = connection.execute(f"SELECT link FROM {chain.table} WHERE seq = ?", (upto,)).get
    if not isinstance(stored, bytes):
        raise ValueError(f"there is no row number {upto} of {chain.noun} to begin the chain behind")
    text = json.dumps({"seq": upto, "link": stored.hex()}, separators=(",", ":"))
    connection.execute(_PUT_ANCHOR, (chain.anchor, text))


def integer(connection: Connection, query: str) -> int:
    """Return the number that is the result of a query; 0 if there is none."""
    value = connection.execute(query).get
    return value if isinstance(value, int) else 0
