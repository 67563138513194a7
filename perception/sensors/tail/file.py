"""One file that is followed, from an offset on. Blocking.

It stays open, so that it is read to its end also under another name, or under none. It is known again by its inode and
two prints: of its head, and of what stands before the offset. So neither another file with its inode nor other contents
in its place are taken for it, and a copy of it is found.
"""

from __future__ import annotations

import hashlib
import os
import stat
from typing import Any, Final

from msgspec import Struct, convert

from perception.sensors.tail.lines import Lines, Record, Records

#: Bytes of the head, and before the offset, that a file is known by.
HEAD: Final = 1024
_BEFORE: Final = 256
#: Bytes that were read and not handed over, of which the print before the offset can be made.
_MOST_RECENT: Final = 2 << 20
_CHUNK: Final = 64 * 1024


class Position(Struct, frozen=True):
    """How far a file was handed over, and what it is known by."""

    path: str
    offset: int
    head: str = ""
    head_size: int = 0
    before: str = ""
    changed_at: int = 0  # nanoseconds since 1970, when it was last seen to be written


def position_of(row: Any) -> Position | None:
    """Return the position that a row holds; None when it holds none."""
    try:
        return convert(row, Position)
    except (TypeError, ValueError):
        return None


class ReadingTerms(Struct, frozen=True):
    """The terms of reading: the encoding, bytes of a line, and how records are made."""

    encoding: str
    longest: int
    begins: Any
    most_lines: int

    def records(self) -> Records:
        return Records(self.begins, self.longest, self.most_lines)


class FollowedFile:
    """A file. `offset` is up to where its records were handed over. Raises: OSError when it cannot be opened."""

    def __init__(self, path: str, offset: int, reading: ReadingTerms) -> None:
        self.path, self.offset, self._reading = path, offset, reading
        # Not to wait for the writer of a pipe that took the file's place just now.
        self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        status = os.fstat(self._descriptor)
        if not stat.S_ISREG(status.st_mode):
            os.close(self._descriptor)
            raise OSError(f"{path!r} is no regular file")
        self.key = key_of(status)
        self.is_left = False  # its name leads elsewhere, or nowhere
        self.quiet_since = 0.0
        self._seen = (-1, -1)
        self._changed_at = status.st_mtime_ns
        self._head, self._head_size = "", 0
        self._recent, self._recent_at = bytearray(), 0
        self._begin_at(offset)
        self.last = self.position()

    def close(self) -> None:
        """Close it. Idempotent."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    @property
    def has_rest(self) -> bool:
        """Return whether something of it waits for more."""
        return self._lines.has_rest or self._records.has_rest

    def position(self) -> Position:
        """Return how far it was handed over, and what it is known by; kept as `last`."""
        size = min(self.offset, _BEFORE)
        begin, before = self.offset - size - self._recent_at, ""
        if begin >= 0:  # of what was read: the file itself may have been truncated meanwhile
            before = _print_of(self._recent[begin : begin + size])
        if begin > _CHUNK:
            del self._recent[:begin]
            self._recent_at += begin
        self.last = Position(self.path, self.offset, self._head, self._head_size, before, self._changed_at)
        return self.last

    def status(self) -> os.stat_result:
        return os.fstat(self._descriptor)

    def has_other_contents(self) -> bool:
        """Return whether it is shorter than what was read, or begins with something else."""
        status = self.status()
        seen = (status.st_mtime_ns, status.st_size)
        if seen == self._seen:
            return False
        self._seen = seen
        if status.st_size < self._lines.position:
            return True
        head = os.pread(self._descriptor, self._head_size, 0)
        return bool(self._head_size) and _print_of(head) != self._head

    def read(self, most: int) -> list[Record]:
        """Return the records that have come to their end, of at most so many bytes."""
        chunk = os.pread(self._descriptor, most, self._lines.position)
        if chunk:
            self._changed_at = self.status().st_mtime_ns
        self._recent += chunk
        self._learn()
        if (excess := len(self._recent) - _MOST_RECENT) > 0:
            del self._recent[:excess]
            self._recent_at += excess
        found = [record for line in self._lines.feed(chunk) for record in self._records.feed(line)]
        self.has_more = len(chunk) == most
        self.has_read = bool(chunk)
        return found

    def flush(self, *, lines_too: bool) -> list[Record]:
        """Return what waits for more; the last line only where `lines_too`, for its end may still come."""
        found: list[Record] = []
        if lines_too:
            found = [record for line in self._lines.flush() for record in self._records.feed(line)]
        return [*found, *self._records.flush()]

    def begin_again(self) -> None:
        """Read it from its beginning: it has other contents."""
        self.offset = 0
        self._head, self._head_size = "", 0
        self._begin_at(0)
        self.position()

    def _begin_at(self, offset: int) -> None:
        self._lines = Lines(self._reading.encoding, offset, self._reading.longest)
        self._records = self._reading.records()
        self.has_more = self.has_read = False
        self._recent_at = max(offset - _BEFORE, 0)
        self._recent = bytearray(os.pread(self._descriptor, offset - self._recent_at, self._recent_at))
        self._learn()

    def _learn(self) -> None:
        """Know more of the head once there is more, unless it is another one by now."""
        if self._descriptor < 0 or self._head_size >= HEAD:
            return
        head = os.pread(self._descriptor, HEAD, 0)
        if len(head) > self._head_size and (not self._head_size or _print_of(head[: self._head_size]) == self._head):
            self._head, self._head_size = _print_of(head), len(head)


def holds(path: str, position: Position) -> bool:
    """Return whether a file has the contents up to a position, be it that file or a copy."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size < position.offset:
            return False
        head = _print_of(os.pread(descriptor, position.head_size, 0))
        size = min(position.offset, _BEFORE)
        before = _print_of(os.pread(descriptor, size, position.offset - size))
        return head == position.head and position.before in ("", before)
    except OSError:
        return False
    finally:
        os.close(descriptor)


def key_of(status: os.stat_result) -> str:
    """Return the identity of a file."""
    return f"{status.st_dev}:{status.st_ino}"


def last_line_end(path: str, separator: bytes = b"\n", most: int = 64 * 1024) -> int:
    """Return the offset behind the last line that has an end; the size of the file if none is near its end."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        size = os.fstat(file.fileno()).st_size
        begin = max(size - most, 0)
        found = os.pread(file.fileno(), size - begin, begin).rfind(separator)
    return size if found < 0 and begin else begin + found + len(separator) if found >= 0 else 0


def _print_of(content: bytes | bytearray) -> str:
    return hashlib.blake2b(content, digest_size=12).hexdigest()
