"""Followed file, read from an offset on. Blocking.

It stays open, so that it is read to its end also when it is renamed or deleted. It is recognised by its inode and two
prints: of its head, and of the bytes before the offset. So another file with the same inode or other contents are not
mistaken for it, and a copy of it is recognised.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from perception.sensors.tail.lines import Lines, Record, Records

#: Bytes of the head, and of the part before the offset, in the prints.
HEAD: Final = 1024
_BEFORE: Final = 256
#: Bound of the read bytes in memory, from which the print before the offset is computed.
_MOST_RECENT: Final = 2 << 20
_CHUNK: Final = 64 * 1024


class Position(Struct, frozen=True):
    """Position up to which a file's records were pushed, and the prints that identify the file."""

    path: str
    offset: int
    head: str = ""
    head_size: int = 0
    before: str = ""
    changed_at: int = 0  # nanoseconds since 1970, time of the last known write


class FollowedFile:
    """Open file. `offset` is the end of the pushed records.

    Args: lines: makes the lines from an offset on; records: makes the records.

    Raises: OSError when it cannot be opened.
    """

    def __init__(self, path: str, offset: int, lines: Callable[[int], Lines], records: Callable[[], Records]) -> None:
        self.path, self.offset, self._make_lines, self._make_records = path, offset, lines, records
        # O_NONBLOCK, because a pipe may have replaced the file just now.
        self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        status = os.fstat(self._descriptor)
        if not stat.S_ISREG(status.st_mode):
            os.close(self._descriptor)
            raise OSError(f"{path!r} is no regular file")
        self.key = key_of(status)
        self.is_left = False  # its name now belongs to another file, or to none
        self.quiet_since = 0.0
        self._checked_state = (-1, -1)
        self._changed_at = status.st_mtime_ns
        self._head, self._head_size = "", 0
        self._recent, self._recent_at = bytearray(), 0
        self._begin_at(offset)
        self.last = self.position()

    def close(self) -> None:
        """Close the file; repeated calls do nothing."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def position(self) -> Position:
        """Return the current position, and store it as `last`."""
        size = min(self.offset, _BEFORE)
        begin, before = self.offset - size - self._recent_at, ""
        if begin >= 0:  # from memory, because the file may have been truncated meanwhile
            before = _print_of(self._recent[begin : begin + size])
        if begin > _CHUNK:
            del self._recent[:begin]
            self._recent_at += begin
        self.last = Position(self.path, self.offset, self._head, self._head_size, before, self._changed_at)
        return self.last

    def status(self) -> os.stat_result:
        return os.fstat(self._descriptor)

    def has_other_contents(self) -> bool:
        """Return whether the file is shorter than the part that was read, begins differently, or was empty and has been
        written: what it has now need not be all of it."""
        status = self.status()
        state = (status.st_mtime_ns, status.st_size)
        if state == self._checked_state:
            return False
        was_empty, self._checked_state = not self._checked_state[1], state
        if status.st_size < self._lines.position or was_empty:
            return True
        head = os.pread(self._descriptor, self._head_size, 0)
        return bool(self._head_size) and _print_of(head) != self._head

    def read(self, most: int) -> list[Record]:
        """Read at most `most` bytes and return the records that are complete."""
        chunk = os.pread(self._descriptor, most, self._lines.position)
        if chunk:
            self._changed_at = self.status().st_mtime_ns
        self._recent += chunk
        self._learn()
        if (excess := len(self._recent) - _MOST_RECENT) > 0:
            del self._recent[:excess]
            self._recent_at += excess
        records = [record for line in self._lines.feed(chunk) for record in self._records.feed(line)]
        self.has_more = len(chunk) == most
        self.has_read = bool(chunk)
        return records

    def flush(self, *, lines_too: bool) -> list[Record]:
        """Return the incomplete record; with the last incomplete line only where `lines_too`, because its end may
        still come."""
        records: list[Record] = []
        if lines_too:
            records = [record for line in self._lines.flush() for record in self._records.feed(line)]
        return [*records, *self._records.flush()]

    def begin_again(self) -> None:
        """Read the file from its beginning, because it has other contents."""
        self.offset = 0
        self._head, self._head_size = "", 0
        self._begin_at(0)
        self.position()

    def _begin_at(self, offset: int) -> None:
        self._lines, self._records = self._make_lines(offset), self._make_records()
        self.has_more = self.has_read = False
        self._recent_at = max(offset - _BEFORE, 0)
        self._recent = bytearray(os.pread(self._descriptor, offset - self._recent_at, self._recent_at))
        self._learn()

    def _learn(self) -> None:
        """Extend the print of the head when the file has grown, unless the head has changed."""
        if self._descriptor < 0 or self._head_size >= HEAD:
            return
        head = os.pread(self._descriptor, HEAD, 0)
        if len(head) > self._head_size and (not self._head_size or _print_of(head[: self._head_size]) == self._head):
            self._head, self._head_size = _print_of(head), len(head)


def holds(path: str, position: Position) -> bool:
    """Return whether a file has the contents up to a position; it may be the file itself or a copy."""
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
    """Return the offset behind the last complete line; the size of the file if there is none in its last `most`
    bytes."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        size = os.fstat(file.fileno()).st_size
        begin = max(size - most, 0)
        place = os.pread(file.fileno(), size - begin, begin).rfind(separator)
    return size if place < 0 and begin else begin + place + len(separator) if place >= 0 else 0


def _print_of(content: bytes | bytearray) -> str:
    return hashlib.blake2b(content, digest_size=12).hexdigest()
