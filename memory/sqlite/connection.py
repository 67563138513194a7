"""Connection to SQLite, as the port of the statements wants it (`memory.engine.connection`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apsw

from memory.engine.hash_chain import integer
from memory.inserts import insert_all
from memory.sqlite import seals
from memory.sqlite.full_text import Fts5
from memory.sqlite.seals.keeping import names

_VACUUM_PAGES = 500
_FULL_TEXT = Fts5()
_STORAGE = (
    apsw.BusyError,
    apsw.LockedError,
    apsw.FullError,
    apsw.IOError,
    apsw.NoMemError,
    apsw.ReadOnlyError,
    apsw.CantOpenError,
    apsw.ProtocolError,
    apsw.PermissionsError,
    apsw.CorruptError,
    apsw.NotADBError,
    apsw.InterruptError,
    MemoryError,
    OSError,
)


class SqliteConnection(apsw.Connection):
    """Connection to a file, or to a database in memory."""

    full_text = _FULL_TEXT

    @property
    def newest_fact(self) -> tuple[int, bytes] | None:
        sealing = seals.of(self)
        return None if sealing is None else sealing.newest

    #: The links are made here: no other process writes meanwhile.
    link_facts = None

    def add_facts(self, into: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """Insert facts, and tell the seals which is the newest."""
        sealing = seals.of(self)
        if sealing is None:
            insert_all(self, into, rows)
        else:
            with sealing.unhooked:
                insert_all(self, into, rows)
            sealing.wrote_facts((rows[-1][0], rows[-1][-1]))

    def undone_in_part(self) -> None:
        """Let the seals read the touched rows again."""
        if (sealing := seals.of(self)) is not None:
            sealing.distrust()

    def tables(self) -> set[str]:
        """Return the names of the present tables."""
        return names(self)

    def bytes_used(self) -> int:
        """Return the bytes of the file without its free pages."""
        pages, free, size = (integer(self, f"PRAGMA {name}") for name in ("page_count", "freelist_count", "page_size"))
        return (pages - free) * size

    def give_back(self, most: int | None) -> bool:
        """Return free pages to the disk. Some are kept for later rows. Return whether more are left."""
        free, pages = (integer(self, f"PRAGMA {name}") for name in ("freelist_count", "page_count"))
        is_over = most is not None and pages * integer(self, "PRAGMA page_size") > most
        if free <= (0 if is_over else max(_VACUUM_PAGES, pages // 4)):
            return False
        self.execute(f"PRAGMA incremental_vacuum({_VACUUM_PAGES})").fetchall()  # reading it makes it run
        return integer(self, "PRAGMA freelist_count") < free

    def begin(self) -> None:
        """Begin a transaction that reads."""
        self.execute("BEGIN")

    def end(self) -> None:
        """End the transaction that reads."""
        if self.in_transaction:
            self.execute("COMMIT")

    def is_storage(self, error: BaseException) -> bool:
        """Return whether the disk or the file caused an error, so that the same work may succeed later."""
        return isinstance(error, _STORAGE)
