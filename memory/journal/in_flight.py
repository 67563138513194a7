"""The work in flight of a process, in a small file that outlives it.

A thing that kills whoever takes it in hand would do so for ever, if it did it before the journal's thread came to
write. What stands in a mapped file outlives the process without a call of the system; of a power cut it tells nothing.
At the next start it says whom to suspect.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from spar.types import Perception

SIZE = 1 << 18  # bytes of the file
NOTED = 100  # perceptions of one cycle that are noted one by one
_LONG = 200  # characters of a name


def trait(perception: Perception) -> str:
    """Return the mark by which a perception is recognised that comes again under another id."""
    return f"{perception.source}|{perception.key or perception.text}"[:_LONG]


class InFlightFile:
    """The file at `path`; where that is None nothing is noted.

    `left` is what the last process held, `left_by` which one it was: its `epoch`, as it was given it.
    """

    def __init__(self, path: str | None, epoch: int) -> None:
        self._epoch, self.left_by = epoch, 0
        self._lines: dict[str, bytes] = {}
        self._map: mmap.mmap | None = None
        self._end = 0
        self.left: frozenset[str] = frozenset()
        if path is None:
            return
        self.left_by, self.left = _left(path)
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._end = os.fstat(file).st_size
            os.posix_fallocate(file, 0, max(SIZE, self._end))  # a full disk says so here, not when it is written to
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
            self._begin_anew()
        else:
            self._write(line)

    def drop(self, work: str) -> None:
        """Note that this work has ended, or that its attempt is counted elsewhere."""
        self._lines.pop(work, None)

    def forget(self) -> None:
        """Note that the work of the last process has been counted."""
        if self._map is not None:
            self._begin_anew()

    def close(self) -> None:
        """Note that no work is in flight: the end is in good order."""
        held, self._map = self._map, None
        if held is not None:
            held[: self._end] = bytes(self._end)
            held.close()

    def _begin_anew(self) -> None:
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


def _left(path: str) -> tuple[int, frozenset[str]]:
    try:
        first, *lines = Path(path).read_bytes().strip(b"\0").splitlines() or [b""]
    except OSError:
        return 0, frozenset()
    names: set[str] = set()
    for line in lines:
        try:
            names.update(msgspec.json.decode(line, type=list[str]))
        except (msgspec.DecodeError, UnicodeDecodeError):  # cut off by the end of the process
            continue
    return int(first) if first.isdigit() else 0, frozenset(names)
