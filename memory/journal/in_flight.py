"""File with the names of the current work of a process, which outlives the process.

Some work may crash each process that begins it, before the writer's thread has written to the database that it began.
Without this file that would happen again at each restart. A memory-mapped file keeps its content when the process dies,
without a system call for each write; after a power cut the content may be lost. The next process reads the names: one
of these pieces of work may have crashed the former process, so this counts as an attempt of each.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from spar.decoding import decode

SIZE = 1 << 18  # bytes of the file
MOST_NOTED = 100  # perceptions of one cycle whose names are noted


class InFlightFile:
    """File of the names at `path`; if that is None, nothing is noted.

    `epoch` is the number of this process. `left` are the names that the former process left, `left_by` is its epoch
    (0: none was left).
    """

    def __init__(self, path: str | None, epoch: int) -> None:
        self._epoch, self.left_by = epoch, 0
        self._lines: dict[str, bytes] = {}
        self._map: mmap.mmap | None = None
        self._end = 0
        self.left: frozenset[str] = frozenset()
        if path is None:
            return
        self.left_by, self.left = _read_left(path)
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._end = os.fstat(file).st_size
            os.posix_fallocate(file, 0, max(SIZE, self._end))  # fails here on a full disk, and not at a later write
            self._map = mmap.mmap(file, max(SIZE, self._end))
        finally:
            os.close(file)
        self._end = len(self._map[:].rstrip(b"\0"))

    def take(self, work: str, names: Iterable[str]) -> None:
        """Note that this work is in flight, with these names."""
        if self._map is None or not (line := _line(names)):
            return
        self._lines[work] = line
        if self._end + len(line) > len(self._map):
            self._rewrite()
        else:
            self._write(line)

    def drop(self, work: str) -> None:
        """Forget work that has ended, or whose attempt is counted in the database."""
        self._lines.pop(work, None)

    def forget(self) -> None:
        """Delete the names of the former process, once the attempts are counted in the database."""
        if self._map is not None:
            self._rewrite()

    def close(self) -> None:
        """Empty and close the file, since the process ends as it should."""
        content, self._map = self._map, None
        if content is not None:
            content[: self._end] = bytes(self._end)
            content.close()

    def _rewrite(self) -> None:
        """Write the file again from its start: this epoch, and the work that has not ended."""
        assert self._map is not None
        self._map[: self._end], self._end = bytes(self._end), 0
        self._write(b"%d\n" % self._epoch)
        for line in self._lines.values():
            if self._end + len(line) <= len(self._map):
                self._write(line)

    def _write(self, line: bytes) -> None:
        assert self._map is not None
        end = self._end + len(line)
        self._map[self._end : end] = line
        self._end = end


def _line(names: Iterable[str]) -> bytes:
    try:
        return msgspec.json.encode(list(names)) + b"\n"
    except UnicodeEncodeError:  # a lone surrogate
        return msgspec.json.encode([name.encode(errors="replace").decode() for name in names]) + b"\n"


def _read_left(path: str) -> tuple[int, frozenset[str]]:
    """Return the epoch of the former process and the names that it left."""
    try:
        first, *lines = Path(path).read_bytes().strip(b"\0").splitlines() or [b""]
    except OSError:
        return 0, frozenset()
    names: set[str] = set()
    for line in lines:
        try:
            names.update(decode(line, list[str]))
        except (msgspec.DecodeError, UnicodeDecodeError):  # cut off by the end of the process
            continue
    return int(first) if first.isdigit() else 0, frozenset(names)
