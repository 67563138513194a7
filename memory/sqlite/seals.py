"""A seal for every row: a digest over all its columns, so that no row can be changed, added or taken away unseen.

The seals stand in a table of their own. How many there are of each table, with their sum, stands in the table `state`
under `seals`, with number and link of the newest fact. All of it changes in the transaction that changes the rows:
SQLite tells of each row that a transaction touches (its pre-update hook); the seals are written before the commit.
Facts have no seals: they are a chain (`memory.sqlite.hash_chain`), of which only the end must be known.

It shows that a row was altered, put in or taken out, not who did it: whoever can write the file can seal what he wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from weakref import WeakKeyDictionary, ref

import msgspec

from memory.inserts import insert_all
from memory.sqlite import hash_chain

if TYPE_CHECKING:
    from apsw import Connection, PreUpdate

#: The key in the table `state`; it seals itself by what it says.
HEAD: Final = "seals"
_LIMIT = 1 << 64
_INTO = "INSERT INTO seal (tbl, key, digest)"
_OR_REPLACE = "ON CONFLICT (tbl, key) DO UPDATE SET digest = excluded.digest"
_PUT_HEAD = "INSERT INTO state (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
_BATCH = 500
#: Seals that are known without being read.
_MOST_KNOWN = 2_000

Key = int | str


class SealedTable(NamedTuple):
    """A table whose rows are sealed: its number, the columns of its key, the column by which people know a row."""

    number: int
    key: tuple[str, ...]
    name: str = ""


#: Numbers are never used for another table.
TABLES: Final[dict[str, SealedTable]] = {
    "experience": SealedTable(1, ("seq",), "id"),
    "cycle": SealedTable(2, ("seq",), "id"),
    "state": SealedTable(3, ("key",)),
    "record": SealedTable(4, ("kind", "id")),
    "item": SealedTable(5, ("id",)),
    "open_cycle": SealedTable(6, ("id",)),
    "doubt": SealedTable(7, ("id",)),
    "spent": SealedTable(8, ("window", "quantity")),
    "transcript": SealedTable(9, ("seq",)),
    "writer": SealedTable(10, ("seq",)),
    "own_row": SealedTable(11, ("owner", "key")),
    "tape_piece": SealedTable(12, ("seq",)),
    "session": SealedTable(13, ("agent", "key")),
    "audit": SealedTable(14, ("seq",)),
    "experience_source": SealedTable(15, ("id",)),
}


#: Those of which a row changes more than once as a rule.
_CHANGING: Final = frozenset({"state", "record", "item", "open_cycle", "doubt", "spent", "own_row", "session"})


class Head(msgspec.Struct):
    """The totals of all seals: by table their number and sum, and the newest fact."""

    rows: dict[str, tuple[int, int]]
    fact: int = 0
    link: str = ""


class SealBreak(NamedTuple):
    """A row that does not fit: in which table, which one, why."""

    table: str
    row: str
    why: str


class TouchedRow:
    """A row that a transaction has touched: whether it is new with it, and what it is now.

    `row` are its columns, None once it is gone.
    """

    __slots__ = ("is_new", "must_read", "row")

    def __init__(self, *, is_new: bool, must_read: bool = False) -> None:
        self.is_new, self.must_read = is_new, must_read
        self.row: Any = None


class Unhooked:
    """A hook of a connection that is off while this is entered."""

    __slots__ = ("_connection", "_hook")

    def __init__(self, connection: Connection, hook: Callable[[PreUpdate], None]) -> None:
        self._connection, self._hook = connection, hook
        self.__exit__()

    def __enter__(self) -> None:
        self._connection.preupdate_hook(None, id="seals")

    def __exit__(self, *error: object) -> None:
        self._connection.preupdate_hook(self._hook, id="seals")


class Seals:
    """Keeps the seals of a connection that writes. Call `write` before each commit, `done` after it or `forget`.

    Every row that changes is seen, whoever changes it. Who writes very many rows tells them (`of`) and has the hook off
    meanwhile (`unhooked`): each call of it from SQLite costs as much as the digest.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._touched: dict[tuple[str, Key], TouchedRow] = {}
        #: Digests of the rows that were added and told, by table and number.
        self._added: dict[str, dict[Key, int]] = {}
        self._has_facts = False
        self._head: Head | None = None
        self._next: Head | None = None
        #: Number and link of the newest fact, where this transaction or one before it has written that.
        self.newest: tuple[int, bytes] | None = None
        #: Seals of rows that change again and again, by table and key, so that they need not be read; and those of this
        #: transaction.
        self._known: dict[tuple[int, Key], int] = {}
        self._written: dict[tuple[int, Key], int] = {}
        #: The greatest number given in a table of which numbers are never used again, once somebody has looked.
        self.tops: dict[str, int] = {}
        #: While it is entered no row is seen: who enters it tells what it writes, or writes what has no seals.
        self.unhooked = Unhooked(connection, self._touch)
        _OF[connection] = ref(self)

    def write(self) -> None:
        """Seal the rows that this transaction has touched. Raises: apsw.Error."""
        if not (self._touched or self._added or self._has_facts):
            return
        if self._head is None:
            self._head = head(self._connection) or counted(self._connection)
        rows = dict(self._head.rows)
        new: list[tuple[int, Key, int]] = []
        with self.unhooked:
            for (name, key), row in self._touched.items():
                # Once, of what the row is in the end: many are written again in one transaction, or gone with it.
                digest = self._digest(name, key, row)
                count, total = rows.get(name, (0, 0))
                number = TABLES[name].number
                if row.is_new and digest is not None:
                    new.append((number, key, digest))
                    more, added = 1, digest
                    if name in _CHANGING:
                        self._written[number, key] = digest
                else:
                    more, added = (0, 0) if row.is_new else self._seal(number, key, digest)
                rows[name] = (count + more, (total + added) % _LIMIT)
            for name, digests in self._added.items():
                count, total = rows.get(name, (0, 0))
                rows[name] = (count + len(digests), (total + sum(digests.values())) % _LIMIT)
                number = TABLES[name].number
                new += [(number, key, digest) for key, digest in digests.items()]
            insert_all(self._connection, _INTO, new, _OR_REPLACE)
            fact, link = self._head.fact, self._head.link
            if self._has_facts:
                fact, link = _newest(self._connection, self.newest)
            self._next = Head(rows, fact, link)
            _put_head(self._connection, self._next)
        self._touched, self._added, self._has_facts = {}, {}, False

    def done(self) -> None:
        """Note that the transaction was committed."""
        self._head, self._next = self._next or self._head, None
        if self._written:
            known = self._known
            for row, digest in self._written.items():
                known.pop(row, None)  # to the end: those that change most stay
                known[row] = digest
            while len(known) > _MOST_KNOWN:
                del known[next(iter(known))]
            self._written = {}

    def forget(self) -> None:
        """Note that the transaction was undone."""
        self._touched, self._added, self._has_facts, self._next, self.newest = {}, {}, False, None, None
        self._written, self.tops = {}, {}

    def distrust(self) -> None:
        """Note that a part of the transaction was undone: touched rows are to be read again."""
        self.newest, self.tops = None, {}
        for row in self._touched.values():
            row.must_read, row.is_new = True, False
        for name, digests in self._added.items():
            self._touched |= {(name, key): TouchedRow(is_new=False, must_read=True) for key in digests}
        self._added = {}

    def wrote_facts(self, newest: tuple[int, bytes]) -> None:
        """Note that facts were added, and number and link of the last of them."""
        self._has_facts, self.newest = True, newest

    def wrote(self, name: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """Note that these rows were added, each under a new number, which is its first column."""
        self._added.setdefault(name, {}).update({row[0]: digest_of(row) for row in rows})

    def _touch(self, update: PreUpdate) -> None:
        name = update.table_name
        if name == "fact":
            self._has_facts = True
            return
        if (table := TABLES.get(name)) is None:
            return
        new: Any = update.new
        row: Any = new if new is not None else update.old
        key = _key_of(row[: len(table.key)])  # the key stands first in each of them
        if key == HEAD and name == "state":
            return
        touched = self._touched.get((name, key))
        if touched is None:
            is_new = update.op == "INSERT" or (name in self._added and self._added[name].pop(key, None) is not None)
            touched = self._touched[name, key] = TouchedRow(is_new=is_new)
        touched.row = new

    def _digest(self, name: str, key: Key, row: TouchedRow) -> int | None:
        """Return the digest of a row as it is now; None where it is gone."""
        found = _row(self._connection, name, key) if row.must_read else row.row
        return None if found is None else digest_of(found)

    def _seal(self, number: int, key: Key, digest: int | None) -> tuple[int, int]:
        """Seal a row that was there, or take its seal away; by how much that changes number and sum of the seals."""
        old = self._known.get((number, key))
        if old is None:
            before = self._connection.execute("SELECT digest FROM seal WHERE tbl = ? AND key = ?", (number, key)).get
            old = int(before) if isinstance(before, int) else None
        if digest is None:
            self._known.pop((number, key), None)
            if old is not None:
                self._connection.execute("DELETE FROM seal WHERE tbl = ? AND key = ?", (number, key))
            return (0, 0) if old is None else (-1, -old)
        if digest != old:
            insert_all(self._connection, _INTO, ((number, key, digest),), _OR_REPLACE)
        self._written[number, key] = digest
        return int(old is None), digest - (old or 0)


_OF: WeakKeyDictionary[Connection, ref[Seals]] = WeakKeyDictionary()


def of(connection: Connection) -> Seals | None:
    """Return who keeps the seals of a connection; None where nobody does, so that what it writes has none."""
    found = _OF.get(connection)
    return None if found is None else found()


def head(connection: Connection) -> Head | None:
    """Return the totals of the seals as they were written last; None where they cannot be read."""
    text = connection.execute("SELECT value FROM state WHERE key = ?", (HEAD,)).get
    try:
        return msgspec.json.decode(str(text), type=Head) if text is not None else None
    except msgspec.DecodeError:
        return None


def counted(connection: Connection) -> Head:
    """Count the totals of the seals anew."""
    names = {table.number: name for name, table in TABLES.items()}
    rows: dict[str, tuple[int, int]] = {}
    for number, digest in connection.execute("SELECT tbl, digest FROM seal"):
        name = names.get(int(str(number)), str(number))
        count, total = rows.get(name, (0, 0))
        rows[name] = count + 1, (total + int(str(digest))) % _LIMIT
    return Head(rows)


def _newest(connection: Connection, known: tuple[int, bytes] | None = None) -> tuple[int, str]:
    """Return number and link of the newest fact, which is read unless it is known; nothing where there is none."""
    seq, link = known or hash_chain.last(connection) or (0, b"")
    return seq, link.hex()


def _put_head(connection: Connection, head: Head) -> None:
    connection.execute(_PUT_HEAD, (HEAD, msgspec.json.encode(head).decode()))


def seal_all(connection: Connection) -> None:
    """Seal every row of every table, in place of all seals that there are: the step of a migration."""
    connection.execute("DELETE FROM seal")
    rows: dict[str, tuple[int, int]] = {}
    there = _names(connection)
    for name in TABLES.keys() & there:
        rows[name] = _sealed(connection, name)
    _put_head(connection, Head(rows, *_newest(connection)))


def seal_new(connection: Connection, name: str) -> None:
    """Seal the rows of a table that a migration has made; the seals of all others stay as they are."""
    known = head(connection)
    if known is None:  # that it is missing is told of: nothing here hides it
        return
    rows = _sealed(connection, name)
    _put_head(connection, Head({**known.rows, name: rows}, known.fact, known.link))


def seal_again(connection: Connection, name: str, columns: int) -> None:
    """Seal the rows of a table to which a migration has added columns, behind its first `columns`.

    A row that did not fit its seal, or had none, is left so: a migration hides nothing.
    """
    known, table = head(connection), TABLES[name]
    change = 0
    after: Key = ""
    while batch := list(_rows_after(connection, name, after)):
        found: dict[Key, int] = {}
        for key, row in batch:
            after = key
            sealed = connection.execute("SELECT digest FROM seal WHERE tbl = ? AND key = ?", (table.number, key)).get
            if isinstance(sealed, int) and sealed == digest_of(row[:columns]):
                found[key] = digest_of(row)
                change += found[key] - sealed
        insert_all(connection, _INTO, [(table.number, key, digest) for key, digest in found.items()], _OR_REPLACE)
    if known is not None:
        count, total = known.rows.get(name, (0, 0))
        _put_head(connection, Head({**known.rows, name: (count, (total + change) % _LIMIT)}, known.fact, known.link))


def _rows_after(connection: Connection, name: str, after: Key) -> Iterator[tuple[Key, tuple[Any, ...]]]:
    """Return some rows of a table with a key of one column, in its order; "" for the first."""
    (column,) = TABLES[name].key
    where, bindings = ("1", ()) if after == "" else (f"{column} > ?", (after,))
    query = f"SELECT {column} FROM {name} WHERE {where} ORDER BY {column} LIMIT {_BATCH}"
    for (key,) in list(connection.execute(query, bindings)):
        row = _row(connection, name, key)
        yield key, row if row is not None else ()


def _sealed(connection: Connection, name: str) -> tuple[int, int]:
    """Seal every row of a table; return their number and the sum of the seals."""
    count, total, table = 0, 0, TABLES[name]
    for _, key, row in _rows(connection, name, table):
        if (name, key) == ("state", HEAD):
            continue
        digest = digest_of(row)
        insert_all(connection, _INTO, ((table.number, key, digest),), _OR_REPLACE)
        count, total = count + 1, (total + digest) % _LIMIT
    return count, total


def _names(connection: Connection) -> set[str]:
    """Return the names of the tables that there are."""
    return {str(name) for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}


def check(connection: Connection) -> Iterator[SealBreak]:
    """Hold every row against its seal, and all seals against what they come to. In short reads: others may write.

    Raises: apsw.Error when the rows cannot be read.
    """
    there = _names(connection)
    if not {"seal", "state", "fact"} <= there:
        return  # that they are missing is another's finding
    for name, table in TABLES.items():
        if name in there:
            yield from _held_against_seals(connection, name, table)
    yield from _totals(connection)


def check_table(connection: Connection, name: str) -> Iterator[SealBreak]:
    """Hold the rows of one table against their seals, and these against what they come to. In one read."""
    if not {"seal", "state", name} <= _names(connection):
        return
    table = TABLES[name]
    query = connection.execute("SELECT key, digest FROM seal WHERE tbl = ?", (table.number,))
    seals = {key: int(str(digest)) for key, digest in query}
    held = len(seals), sum(seals.values()) % _LIMIT
    for shown, key, row in _rows(connection, name, table):
        yield from _compared_row(name, shown, row, seals.pop(key, None))
    for key in seals:
        yield SealBreak(name, _shown(key), "it is missing")
    known = head(connection)
    if known is None:
        yield SealBreak("state", HEAD, "it is missing or cannot be read: nobody knows how many rows there were")
    else:
        yield from _compared(name, known.rows.get(name, (0, 0)), held)


def fits(connection: Connection, name: str, key: Key) -> bool:
    """Return whether a row is as it was written, in all its columns; in a read of what was committed.

    Rows of a memory that is in no file have no seals.
    """
    if not connection.filename:
        return True
    query = "SELECT digest FROM seal WHERE tbl = ? AND key = ?"
    sealed = connection.execute(query, (TABLES[name].number, key)).get
    row = _row(connection, name, key)
    return sealed is not None and row is not None and digest_of(row) == sealed


def digest_of(row: tuple[Any, ...]) -> int:
    """A digest over all columns of a row."""
    return int.from_bytes(blake2b(msgspec.msgpack.encode(row), digest_size=8).digest(), "big", signed=True)


def _totals(connection: Connection) -> Iterator[SealBreak]:
    connection.execute("BEGIN")
    try:
        known, found = head(connection), counted(connection).rows
        fact = None if known is None or not known.fact else (known.fact, known.link)
        link = None if fact is None else connection.execute("SELECT link FROM fact WHERE seq = ?", (fact[0],)).get
        newest = hash_chain.newest(connection)
    finally:
        connection.execute("COMMIT")
    if known is None:
        yield SealBreak("state", HEAD, "it is missing or cannot be read: nobody knows how many rows there were")
        return
    for name in sorted(known.rows.keys() | found.keys()):
        yield from _compared(name, known.rows.get(name, (0, 0)), found.get(name, (0, 0)))
    if fact is not None and newest < fact[0]:
        yield SealBreak("fact", str(newest + 1), f"it is missing, and so are all up to number {fact[0]}")
    elif fact is not None and (not isinstance(link, bytes) or link.hex() != fact[1]):
        yield SealBreak("fact", str(fact[0]), "it is not the one that was written last")


def _compared_row(name: str, shown: str, row: tuple[Any, ...] | None, sealed: int | None) -> Iterator[SealBreak]:
    """Hold a row, None for one that cannot be read, against its seal."""
    if sealed is None:
        yield SealBreak(name, shown, "it has no seal: it was put in by somebody else")
    elif row is None or digest_of(row) != sealed:
        yield SealBreak(name, shown, "it was altered: its seal does not fit")


def _compared(name: str, told: tuple[int, int], held: tuple[int, int]) -> Iterator[SealBreak]:
    """Hold number and sum of the seals of a table against what was told of them last."""
    if told[0] != held[0]:
        yield SealBreak(name, "", f"{held[0]} rows are sealed, {told[0]} were")
    elif told != held:
        yield SealBreak(name, "", "its seals do not come to what they did: a row and its seal were changed")


def _held_against_seals(connection: Connection, name: str, table: SealedTable) -> Iterator[SealBreak]:
    for batch, seals in _batches(connection, name, table):
        for shown, key, row in batch:
            sealed = seals.pop(key, None)
            if (name, key) != ("state", HEAD):
                yield from _compared_row(name, shown, row, sealed)
        for key in seals:
            yield SealBreak(name, _shown(key), "it is missing")


def _batches(
    connection: Connection, name: str, table: SealedTable
) -> Iterator[tuple[list[tuple[str, Key, Any]], dict[Key, int]]]:
    """Return the rows of a table, some at a time in the order of their keys, each time with the seals of that
    stretch."""
    last: Key | None = None
    while True:
        connection.execute("BEGIN")
        try:
            beyond, bindings = ("", ()) if last is None else ("AND key > ?", (last,))
            query = f"SELECT key, digest FROM seal WHERE tbl = ? {beyond} ORDER BY key LIMIT {_BATCH}"
            seals = {key: int(str(digest)) for key, digest in connection.execute(query, (table.number, *bindings))}
            end = list(seals)[-1] if len(seals) == _BATCH else None
            batch = list(_rows(connection, name, table, last, end))
        finally:
            connection.execute("COMMIT")
        yield batch, seals
        if end is None:
            return
        last = end


def _rows(
    connection: Connection, name: str, table: SealedTable, after: Key | None = None, upto: Key | None = None
) -> Iterator[tuple[str, Key, Any]]:
    """Return rows with their name for people, key and columns; None for columns that cannot be read."""
    key, columns = " || char(0) || ".join(table.key), f"({', '.join(table.key)})"
    marks = f"({', '.join('?' * len(table.key))})"
    bounds = [(sql, _parts(value)) for sql, value in ((">", after), ("<=", upto)) if value is not None]
    where = " AND ".join(f"{columns} {sql} {marks}" for sql, _ in bounds) or "1"
    given = tuple(part for _, parts in bounds for part in parts)
    query = f"SELECT {key}, {table.name or key}, * FROM {name} WHERE {where}"
    try:
        for found, shown, *row in connection.execute(query, given):
            yield _shown(shown), found, tuple(row)
    except UnicodeDecodeError:  # a text that is none any more: one by one, to say which
        for (found,) in list(connection.execute(f"SELECT {key} FROM {name} WHERE {where}", given)):
            yield _shown(found), found, _row(connection, name, found)


def _row(connection: Connection, name: str, key: Any) -> tuple[Any, ...] | None:
    """Return the columns of a row by its key; None where it is not there, or cannot be read."""
    where = " AND ".join(f"{column} = ?" for column in TABLES[name].key)
    try:
        return connection.execute(f"SELECT * FROM {name} WHERE {where}", _parts(key)).fetchone()
    except UnicodeDecodeError:
        return None


def _key_of(columns: tuple[Any, ...]) -> Key:
    """Return the key of a row as one value: no text of ours has a NUL in it, so the order is that of the columns."""
    return columns[0] if len(columns) == 1 else "\0".join(map(str, columns))


def _parts(key: Key) -> tuple[Key, ...]:
    return tuple(key.split("\0")) if isinstance(key, str) else (key,)


def _shown(key: Any) -> str:
    return str(key).replace("\0", "/")
