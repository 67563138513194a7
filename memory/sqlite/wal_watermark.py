"""The safe length of the write-ahead log, in a small file beside it, so that a lost end is noticed.

A log that ends early is what a killed process leaves as well: nothing in it can tell one from the other. So after each
flush on which somebody waited a mapped file says which flush that was and how many pages the log held then.

It is never flushed itself: any of its earlier states may be what a power cut leaves. None of them promises too much:

- It is written after a flush, of what that made safe, so an old state merely says less.
- The number of the flush stands in the database too, written through the log at the first flush after each checkpoint.
  Whoever empties the log in good order has moved that number into the file; with a log that was lost it is missing.
- Pages are counted in one round through the log, which its salts name. SQLite flushes the head of the next round before
  it overwrites a page of the last (walRestartLog and syncHeader in its wal.c).

It cannot tell why pages are missing, and says nothing of what nobody waited for.
"""

from __future__ import annotations

import mmap
import os
from contextlib import suppress
from pathlib import Path
from struct import Struct as Layout
from zlib import crc32

from msgspec import Struct

from memory.sqlite import wal

#: Appended to the name of the database.
SUFFIX = ".mark"
_SIZE = 4096  # bytes of the file
_BODY, _CHECK = Layout("<QQ8s"), Layout("<I")
_END = _BODY.size + _CHECK.size


class Promise(Struct, frozen=True):
    """The content of a mark: with flush number `flush`, `pages` of the round `salts` of the log were safe."""

    flush: int
    pages: int
    salts: bytes

    def missing(self, flush: int, pages: int, salts: bytes) -> int:
        """Return how many of these pages are missing, at most.

        Args: flush: the last number that the database knows; pages, salts: what its log holds, up to the last commit.
        """
        if flush > self.flush:
            return 0
        if salts == self.salts:
            return max(self.pages - pages, 0)
        return self.pages if flush < self.flush else 0


def read(path: str) -> Promise | None:
    """Return the promise of the mark of the database at `path`; None without one, or when it was cut off while it was
    written."""
    try:
        with Path(f"{path}{SUFFIX}").open("rb") as file:
            content = file.read(_END)
    except OSError:
        return None
    body = content[: _BODY.size]
    return Promise(*_BODY.unpack(body)) if content[_BODY.size :] == _CHECK.pack(crc32(body)) else None


def remove(path: str) -> None:
    """Remove the mark of a database that becomes another one. Raises: OSError."""
    Path(f"{path}{SUFFIX}").unlink(missing_ok=True)


class WalWatermark:
    """The mark of the database at `path`; `flush` is the last number that it promised."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._map: mmap.mmap | None = None
        self._pages, self._salts = 0, b""
        last = read(path)
        self.flush = last.flush if last is not None else 0

    def promise(self, flush: int, pages: int) -> None:
        """Note that flush number `flush` has made so many pages safe. Never raises: it helps, and holds up nothing."""
        if flush != self.flush or pages <= self._pages:  # else the round is the same, which costs a look to find out
            self._salts = wal.salts(self._path)
        if not self._salts or not (held := self._map or self._open()):
            return
        self.flush, self._pages = flush, pages
        body = _BODY.pack(flush, pages, self._salts)
        held[:_END] = body + _CHECK.pack(crc32(body))

    def close(self) -> None:
        """Close the mark; it is removed where the log was emptied, because nothing can be missing then."""
        held, self._map = self._map, None
        if held is not None:
            held.close()
        if not wal.salts(self._path):
            with suppress(OSError):
                remove(self._path)

    def _open(self) -> mmap.mmap | None:
        try:
            file = os.open(f"{self._path}{SUFFIX}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(file, 0, _SIZE)  # a full disk says so here, not when it is written to
                self._map = mmap.mmap(file, _SIZE)
            finally:
                os.close(file)
        except OSError:
            return None
        return self._map
