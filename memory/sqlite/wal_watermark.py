"""Safe length of the write-ahead log, in a small file beside it (the mark), so that a lost end is noticed.

A killed process also leaves a log that ends early, so the log alone does not show whether its end was lost. After each
flush for which somebody waited, the mark, a memory-mapped file, gets the number of the flush and the number of pages.

The mark is never flushed itself, so a power cut may leave any earlier state of it. No state promises too much:

- It is written after a flush, with the pages that are then safe, so an old state only promises fewer pages.
- The number of the flush is in the database too, written through the log at the first flush after each checkpoint.
  Emptying the log in good order moves that number into the file; if the log was lost, the number is missing.
- Pages are counted in one round: SQLite writes the log again from its start with new salts, which name the round. It
  flushes the head of a new round before it overwrites a page of the last (walRestartLog and syncHeader in its wal.c).

The mark does not say why pages are missing, and promises nothing about commits for which nobody waited.
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
    """Content of a mark: at flush number `flush`, `pages` pages of the round with these `salts` were safe."""

    flush: int
    pages: int
    salts: bytes

    def missing(self, flush: int, pages: int, salts: bytes) -> int:
        """Return the largest possible number of missing pages.

        Args: flush: the last number in the database; pages, salts: those of its log, up to the last commit.
        """
        if flush > self.flush:
            return 0
        if salts == self.salts:
            return max(self.pages - pages, 0)
        return self.pages if flush < self.flush else 0


def read(path: str) -> Promise | None:
    """Return the content of the mark of the database at `path`; None without one, or if it is incomplete."""
    try:
        with Path(f"{path}{SUFFIX}").open("rb") as file:
            content = file.read(_END)
    except OSError:
        return None
    body = content[: _BODY.size]
    return Promise(*_BODY.unpack(body)) if content[_BODY.size :] == _CHECK.pack(crc32(body)) else None


def remove(path: str) -> None:
    """Remove the mark of a database that is replaced. Raises: OSError."""
    Path(f"{path}{SUFFIX}").unlink(missing_ok=True)


class WalWatermark:
    """Mark of the database at `path`; `flush` is the last number that was written into it."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._map: mmap.mmap | None = None
        self._pages, self._salts = 0, b""
        last = read(path)
        self.flush = last.flush if last is not None else 0

    def promise(self, flush: int, pages: int) -> None:
        """Write that `pages` pages are safe since flush number `flush`. Never raises, so that no write fails by it."""
        if flush != self.flush or pages <= self._pages:  # else the round is the same, and its salts need not be read
            self._salts = wal.salts(self._path)
        if not self._salts or not (content := self._map or self._open()):
            return
        self.flush, self._pages = flush, pages
        body = _BODY.pack(flush, pages, self._salts)
        content[:_END] = body + _CHECK.pack(crc32(body))

    def close(self) -> None:
        """Close the mark. It is removed if the log is empty, since no page can then be missing."""
        content, self._map = self._map, None
        if content is not None:
            content.close()
        if not wal.salts(self._path):
            with suppress(OSError):
                remove(self._path)

    def _open(self) -> mmap.mmap | None:
        try:
            file = os.open(f"{self._path}{SUFFIX}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(file, 0, _SIZE)  # fails here on a full disk, and not at a later write
                self._map = mmap.mmap(file, _SIZE)
            finally:
                os.close(file)
        except OSError:
            return None
        return self._map
