"""The tables whose rows are sealed, digests and totals; and the seals of rows that a transaction changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol
from weakref import WeakKeyDictionary, ref

import msgspec

from memory.engine import hash_chain
from memory.engine.connection import Connection
from memory.engine.own_keys import SEALS
from memory.inserts import insert_all
from spar.decoding import decode

if TYPE_CHECKING:
    from apsw import PreUpdate

    from memory.engine.connection import Connection


#: Key of the totals in the table `state`. This row has no seal: it is compared with the counted totals.
HEAD: Final = SEALS
#: Sums of seals are modulo this number.
MODULUS = 1 << 64
INTO = "INSERT INTO seal (tbl, key, digest)"
OR_REPLACE = "ON CONFLICT (tbl, key) DO UPDATE SET digest = excluded.digest"
_PUT_HEAD = "INSERT INTO state (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
#: Rows of one short read.
BATCH = 500
Key = int | str


class SealedTable(NamedTuple):
    """Table whose rows are sealed: its number, the columns of its key, the column that names a row for people."""

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


class Head(msgspec.Struct):
    """Totals of all seals: their number and sum by table, and number and link of the newest fact."""

    rows: dict[str, tuple[int, int]]
    fact: int = 0
    link: str = ""


def head(connection: Connection) -> Head | None:
    """Return the totals of the seals as they were written last; None if they cannot be read."""
    text = connection.execute("SELECT value FROM state WHERE key = ?", (HEAD,)).get
    try:
        return decode(str(text), Head) if text is not None else None
    except msgspec.DecodeError:
        return None


def counted(connection: Connection) -> Head:
    """Return the totals of the present seals, without the newest fact."""
    names = {table.number: name for name, table in TABLES.items()}
    rows: dict[str, tuple[int, int]] = {}
    for number, digest in connection.execute("SELECT tbl, digest FROM seal"):
        name = names.get(int(str(number)), str(number))
        count, total = rows.get(name, (0, 0))
        rows[name] = count + 1, (total + int(str(digest))) % MODULUS
    return Head(rows)


def newest_fact(connection: Connection, known: tuple[int, bytes] | None = None) -> tuple[int, str]:
    """Return number and link of the newest fact, which is read unless it is known; (0, "") if there is none."""
    seq, link = known or hash_chain.last(connection) or (0, b"")
    return seq, link.hex()


def put_head(connection: Connection, head: Head) -> None:
    connection.execute(_PUT_HEAD, (HEAD, msgspec.json.encode(head).decode()))


def digest_of(row: tuple[Any, ...]) -> int:
    """Return a digest over all columns of a row."""
    return int.from_bytes(blake2b(msgspec.msgpack.encode(row), digest_size=8).digest(), "big", signed=True)


def digests_of(rows: Iterable[tuple[Any, ...] | None]) -> list[int | None]:
    """Return the digests of rows; None for one that was deleted."""
    return [None if row is None else digest_of(row) for row in rows]


def names(connection: Connection) -> set[str]:
    """Return the names of the present tables."""
    return {str(name) for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}


def rows_of(
    connection: Connection, name: str, table: SealedTable, after: Key | None = None, upto: Key | None = None
) -> Iterator[tuple[str, Key, Any]]:
    """Return rows as their name for people, key and columns; the columns are None if they cannot be read."""
    key, columns = " || char(0) || ".join(table.key), f"({', '.join(table.key)})"
    marks = f"({', '.join('?' * len(table.key))})"
    bounds = [(sql, parts_of(value)) for sql, value in ((">", after), ("<=", upto)) if value is not None]
    where = " AND ".join(f"{columns} {sql} {marks}" for sql, _ in bounds) or "1"
    bindings = tuple(part for _, parts in bounds for part in parts)
    query = f"SELECT {key}, {table.name or key}, * FROM {name} WHERE {where}"
    try:
        for row_key, shown, *row in connection.execute(query, bindings):
            yield text_of(shown), row_key, tuple(row)
    except UnicodeDecodeError:  # a text is damaged: read the rows one by one to find it
        for (row_key,) in list(connection.execute(f"SELECT {key} FROM {name} WHERE {where}", bindings)):
            yield text_of(row_key), row_key, row_of(connection, name, row_key)


def row_of(connection: Connection, name: str, key: Any) -> tuple[Any, ...] | None:
    """Return the columns of a row by its key; None if there is no such row, or it cannot be read."""
    where = " AND ".join(f"{column} = ?" for column in TABLES[name].key)
    try:
        row: tuple[Any, ...] | None = connection.execute(
            f"SELECT * FROM {name} WHERE {where}", parts_of(key)
        ).fetchone()
    except UnicodeDecodeError:
        return None
    return row


def parts_of(key: Key) -> tuple[Key, ...]:
    """Return the columns of a key, which is one value. Stored texts contain no NUL, so its order is theirs."""
    return tuple(key.split("\0")) if isinstance(key, str) else (key,)


def text_of(key: Any) -> str:
    return str(key).replace("\0", "/")


#: Most seals that are kept in memory, so that they need not be read.
_MOST_KNOWN = 2_000
#: Tables whose rows usually change more than once.
_CHANGING: Final = frozenset({"state", "record", "item", "open_cycle", "doubt", "spent", "own_row", "session"})


class HookedConnection(Connection, Protocol):
    """Connection that calls a function for each row that a transaction touches."""

    def preupdate_hook(self, callable: Callable[[PreUpdate], None] | None, /, *, id: Any = ...) -> None: ...


class TouchedRow:
    """Row that a transaction has touched.

    `is_new` says that the transaction added it; `row` are its columns now, None if it was deleted; with `must_read`
    they must be read.
    """

    __slots__ = ("is_new", "must_read", "row")

    def __init__(self, *, is_new: bool, must_read: bool = False) -> None:
        self.is_new, self.must_read = is_new, must_read
        self.row: Any = None


class Unhooked:
    """Context in which the hook of a connection is off."""

    __slots__ = ("_connection", "_hook")

    def __init__(self, connection: HookedConnection, hook: Callable[[PreUpdate], None]) -> None:
        self._connection, self._hook = connection, hook
        self.__exit__()

    def __enter__(self) -> None:
        self._connection.preupdate_hook(None, id="seals")

    def __exit__(self, *error: object) -> None:
        self._connection.preupdate_hook(self._hook, id="seals")


class Seals:
    """Keeper of the seals of a connection that writes.

    Call `write` before each commit; after it `done`, or `forget` if the transaction was undone. The hook sees every row
    that changes, whatever code changes it. Code that writes very many rows reports them itself (`of`, `wrote`) with the
    hook off (`unhooked`), since each call of the hook costs as much as the digest.
    """

    def __init__(self, connection: HookedConnection) -> None:
        self._connection = connection
        self._touched: dict[tuple[str, Key], TouchedRow] = {}
        #: Digests of the added rows that were reported to `wrote`, by table and number.
        self._added: dict[str, dict[Key, int]] = {}
        self._has_facts = False
        self._head: Head | None = None
        self._next: Head | None = None
        #: Number and link of the newest fact, if this transaction or one before it has written it.
        self.newest: tuple[int, bytes] | None = None
        #: Seals of rows that change often, by table and key, so that they need not be read; and those of this
        #: transaction.
        self._known: dict[tuple[int, Key], int] = {}
        self._written: dict[tuple[int, Key], int] = {}
        #: Greatest number in each table whose numbers are never used again, once it was read.
        self.tops: dict[str, int] = {}
        #: Context in which no row is seen: its user reports the rows, or writes rows without seals.
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
            # Once for the last state of each row: many rows change several times in one transaction.
            touched = self._touched.items()
            digests = digests_of([row_of(self._connection, *at) if row.must_read else row.row for at, row in touched])
            for ((name, key), row), digest in zip(touched, digests, strict=True):
                count, total = rows.get(name, (0, 0))
                number = TABLES[name].number
                if row.is_new and digest is not None:
                    new.append((number, key, digest))
                    more, added = 1, digest
                    if name in _CHANGING:
                        self._written[number, key] = digest
                else:
                    more, added = (0, 0) if row.is_new else self._seal(number, key, digest, new)
                rows[name] = (count + more, (total + added) % MODULUS)
            for name, added_rows in self._added.items():
                count, total = rows.get(name, (0, 0))
                rows[name] = (count + len(added_rows), (total + sum(added_rows.values())) % MODULUS)
                number = TABLES[name].number
                new += [(number, key, digest) for key, digest in added_rows.items()]
            insert_all(self._connection, INTO, new, OR_REPLACE)
            fact, link = self._head.fact, self._head.link
            if self._has_facts:
                fact, link = newest_fact(self._connection, self.newest)
            self._next = Head(rows, fact, link)
            put_head(self._connection, self._next)
        self._touched, self._added, self._has_facts = {}, {}, False

    def done(self) -> None:
        """Note that the transaction was committed."""
        self._head, self._next = self._next or self._head, None
        if self._written:
            known = self._known
            for row, digest in self._written.items():
                known.pop(row, None)  # to move it to the end: rows that change often stay
                known[row] = digest
            while len(known) > _MOST_KNOWN:
                del known[next(iter(known))]
            self._written = {}

    def forget(self) -> None:
        """Note that the transaction was undone."""
        self._touched, self._added, self._has_facts, self._next, self.newest = {}, {}, False, None, None
        self._written, self.tops = {}, {}

    def distrust(self) -> None:
        """Note that a part of the transaction was undone: the touched rows must be read again."""
        self.newest, self.tops = None, {}
        for row in self._touched.values():
            row.must_read, row.is_new = True, False
        for name, digests in self._added.items():
            self._touched |= {(name, key): TouchedRow(is_new=False, must_read=True) for key in digests}
        self._added = {}

    def wrote_facts(self, newest: tuple[int, bytes]) -> None:
        """Note that facts were added; `newest` are number and link of the last one."""
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
        columns = len(table.key)  # in each table the columns of the key come first
        key: Key = row[0] if columns == 1 else "\0".join(map(str, row[:columns]))
        if key == HEAD and name == "state":
            return
        touched = self._touched.get((name, key))
        if touched is None:
            is_new = update.op == "INSERT" or (name in self._added and self._added[name].pop(key, None) is not None)
            touched = self._touched[name, key] = TouchedRow(is_new=is_new)
        touched.row = new

    def _seal(self, number: int, key: Key, digest: int | None, new: list[tuple[int, Key, int]]) -> tuple[int, int]:
        """Delete the seal of a row that existed before, or add its new one to `new`. Return the changes of number and
        sum of the seals."""
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
            new.append((number, key, digest))
        self._written[number, key] = digest
        return int(old is None), digest - (old or 0)


_OF: WeakKeyDictionary[Connection, ref[Seals]] = WeakKeyDictionary()


def of(connection: Connection) -> Seals | None:
    """Return the keeper of the seals of a connection; None if there is none, and its rows get no seals."""
    reference = _OF.get(connection)
    return None if reference is None else reference()
