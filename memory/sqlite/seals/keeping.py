"""Seals of the rows that a transaction changes, written in that transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol
from weakref import WeakKeyDictionary, ref

from memory.engine.connection import Connection
from memory.inserts import insert_all
from memory.sqlite.seals.table import (
    HEAD,
    INTO,
    MODULUS,
    OR_REPLACE,
    TABLES,
    Head,
    Key,
    counted,
    digest_of,
    digests_of,
    head,
    newest_fact,
    put_head,
    row_of,
)

if TYPE_CHECKING:
    from apsw import PreUpdate

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
