"""The chain of facts: each row's link is a hash over the row and the link before it.

A database's own checks see that pages fit together, not that a row still says what was written: of 400 flipped bits
in a file they found 18, the chain 384, and the rest hit unused bytes. It shows that a row was altered, put in or
taken out, not who did it: whoever can write the file can write a new chain.

Only the oldest facts are ever deleted; number and link of the last one that was stand in the table `state` under
`chain`, changed in the same transaction.
"""

from __future__ import annotations

import json
from hashlib import sha256
from struct import Struct as Layout
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from apsw import Connection

#: The link before the first fact of all.
GENESIS = bytes(32)
#: The key in the table `state` of what was deleted last.
ANCHOR = "chain"
_BATCH = 1_000
_ROWS = f"SELECT seq, at, work, call, kind, body, link FROM fact WHERE seq > ? ORDER BY seq LIMIT {_BATCH}"
_head = Layout("<qdiiii").pack  # lengths of what follows, so that no two rows read the same


class ChainBreak(Struct, frozen=True):
    """The first fact that does not fit: its number, and what is wrong with it."""

    seq: int
    why: str

    def __str__(self) -> str:
        return f"the chain of facts is broken at number {self.seq}: {self.why}"


def link(before: bytes, seq: int, at: float, work: str, call: str | None, kind: str, body: str) -> bytes:
    """Return the link of a fact: 32 bytes over the link before it, its number and its columns."""
    head = _head(seq, at, len(work), -1 if call is None else len(call), len(kind), len(body))
    return sha256(before + head + f"{work}{call or ''}{kind}{body}".encode("utf-8", "surrogatepass")).digest()


def anchor(connection: Connection) -> tuple[int, bytes]:
    """Number and link of the last fact that was deleted for its age; `(0, GENESIS)` where none was.

    Raises: ValueError when what stands there cannot be read.
    """
    text = connection.execute("SELECT value FROM state WHERE key = ?", (ANCHOR,)).get
    if text is None:
        return 0, GENESIS
    try:
        found = json.loads(str(text))
        return int(found["seq"]), bytes.fromhex(found["link"])
    except (TypeError, KeyError) as error:
        raise ValueError(f"state.{ANCHOR} is {str(text)[:100]!r}, expected a number and a link") from error


def check(connection: Connection, *, last: int | None = None) -> ChainBreak | None:
    """Walk the facts in order and return the first that does not fit, or None.

    Args: last: only so many of the newest; None: all, from what was deleted last.
    Raises: apsw.Error when the rows cannot be read.
    """
    if not integer(connection, "SELECT count(*) FROM sqlite_schema WHERE name = 'fact'"):
        return None  # of an older format
    number, before, latest = 0, GENESIS, newest(connection)
    if last is not None and latest > last:
        number = latest - last
        found = connection.execute("SELECT link FROM fact WHERE seq = ?", (number,)).get
        before = found if isinstance(found, bytes) else b""
    if number == 0 or not before:  # from the beginning, or what the newest stand on is gone
        try:
            number, before = anchor(connection)
        except ValueError as error:
            return ChainBreak(0, str(error))
    while True:
        try:
            rows = list(connection.execute(_ROWS, (number,)))
        except UnicodeDecodeError as error:
            return ChainBreak(number + 1, f"it, or one soon after it, cannot be read: {error}")
        for seq, at, work, call, kind, body, found in rows:
            if seq != number + 1:
                return ChainBreak(number + 1, f"it is missing, the next one is number {seq}")
            try:
                before = link(before, seq, at, work, call, kind, body)
            except Exception as error:  # a column is no longer of the type that was written
                return ChainBreak(seq, f"it cannot be read: {error}")
            if before != found:
                return ChainBreak(seq, "its link does not fit: it was altered, or the one before it was")
            number = seq
        if len(rows) < _BATCH:
            break
    if last is None:  # a walk from the front also sees what stands before it
        behind = connection.execute(
            "SELECT seq FROM fact WHERE seq <= ? ORDER BY seq LIMIT 1", (anchor(connection)[0],)
        )
        if (stray := behind.get) is not None:
            return ChainBreak(int(str(stray)), "it stands before the oldest fact that is kept")
    return None


def newest(connection: Connection) -> int:
    """Return the number of the last fact; 0 where there is none."""
    return integer(connection, "SELECT max(seq) FROM fact")


def last(connection: Connection) -> tuple[int, bytes] | None:
    """Number and link of the last fact; None where there is none."""
    found = connection.execute("SELECT seq, link FROM fact ORDER BY seq DESC LIMIT 1").fetchone()
    return None if found is None else (int(str(found[0])), bytes(found[1]))


def move_anchor(connection: Connection, upto: int) -> None:
    """Note that the facts up to this one are being deleted; call it before, in the same transaction.

    Raises: ValueError when there is no such fact.
    """
    found = connection.execute("SELECT link FROM fact WHERE seq = ?", (upto,)).get
    if not isinstance(found, bytes):
        raise ValueError(f"there is no fact number {upto} to begin the chain behind")
    text = json.dumps({"seq": upto, "link": found.hex()}, separators=(",", ":"))
    connection.execute("INSERT OR REPLACE INTO state (key, value) VALUES (?, ?)", (ANCHOR, text))


def integer(connection: Connection, query: str) -> int:
    """Return the number that a query gives; 0 for none."""
    value = connection.execute(query).get
    return value if isinstance(value, int) else 0
