"""Room that is kept for the day on which the disk is full.

On a full disk SQLite cannot even delete: a deletion is written to the log first. So a file beside the database holds
some room that nothing else can take; it is given up when a write finds none, so that work can be closed and old rows
can go, and taken again once there is room. Used by the writer's thread alone, but for what it says of itself.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

SUFFIX = ".ballast"
SIZE = 64 << 20
#: At most this part of what is free: on a small disk the ballast must not be what fills it.
PART = 0.02
#: Less than that helps nobody.
LEAST = 64 << 10


class DiskReserve:
    """The ballast of the database at `path`, in `path + ".ballast"`.

    Args: size: bytes at most; 0 for none, and one that is there is then removed; free: how many bytes may still be
        written beside a path.
    """

    def __init__(self, path: str, size: int = SIZE, *, free: Callable[[str], int] | None = None) -> None:
        self._path, self._size, self._free = f"{path}{SUFFIX}", size, free or free_bytes
        self.held = _held(self._path)
        self.is_given_up = False

    def hold(self) -> bool:
        """Take the room, if there is plenty; returns whether there is no need to try again soon. Never raises.

        What was given up is taken again only when twice as much is free, so that it is not soon given up again.
        """
        if not self._size:
            self._remove()
            return True
        free = self._free(self._path)
        wanted = min(self._size, int((free + self.held) * PART)) // LEAST * LEAST
        if self.held >= wanted > 0 or (not wanted and not self.is_given_up):
            return True
        if not wanted or free < 2 * (wanted - self.held) + LEAST:
            return False
        try:
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(file, 0, wanted)
            finally:
                os.close(file)
        except OSError:  # what was taken of it is better given back than held half
            self._remove()
            return False
        self.held, self.is_given_up = _held(self._path), False
        return True

    def give_up(self) -> int:
        """Give the room back; returns how many bytes that freed, 0 when there were none. Never raises."""
        freed = self.held
        self.is_given_up = True
        self._remove()
        return freed

    def is_full(self, error: BaseException) -> bool:
        """Return whether an error means that there is no room on the disk."""
        import apsw

        if isinstance(error, apsw.FullError):
            return True
        if isinstance(error, OSError):
            return error.errno in (errno.ENOSPC, errno.EDQUOT)
        return isinstance(error, (apsw.IOError, apsw.CantOpenError)) and self._free(self._path) < LEAST

    def _remove(self) -> None:
        with suppress(OSError):
            Path(self._path).unlink()
        self.held = _held(self._path)


def free_bytes(path: str) -> int:
    """Bytes that may still be written on the disk of the file at `path`; 0 when nobody can tell."""
    try:
        found = os.statvfs(Path(path).parent)
    except OSError:
        return 0
    return found.f_bavail * found.f_frsize


def _held(path: str) -> int:
    try:
        return Path(path).stat().st_blocks * 512
    except OSError:
        return 0
