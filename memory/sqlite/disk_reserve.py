"""Reserve of disk space for a full disk.

On a full disk SQLite cannot even delete: a deletion is written to the log first. So a file beside the database occupies
some space. It is removed when a write finds no space, so that open work can end and old rows can be deleted, and
created again once there is space. Only the writer's thread calls its methods; any thread may read its attributes.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

SUFFIX = ".ballast"
SIZE = 64 << 20
#: Largest part of the free space: on a small disk the reserve itself must not fill the disk.
PART = 0.02
#: Smallest useful reserve, in bytes.
LEAST = 64 << 10


class DiskReserve:
    """Reserve of the database at `path`, in the file `path + ".ballast"`.

    Args: size: most bytes; with 0 there is no reserve, and an existing one is removed; free: returns how many bytes may
        still be written beside a path.

    `held` is its present size in bytes; `is_given_up` says that it was removed because the disk was full.
    """

    def __init__(self, path: str, size: int = SIZE, *, free: Callable[[str], int] | None = None) -> None:
        self._path, self._size, self._free = f"{path}{SUFFIX}", size, free or free_bytes
        self.held = _bytes_of(self._path)
        self.is_given_up = False

    def hold(self) -> bool:
        """Create the reserve if there is enough space. Return False if the caller should try again soon. Never raises.

        It is created only when twice its size is free, so that it need not soon be given up again.
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
        except OSError:  # an incomplete reserve is removed
            self._remove()
            return False
        self.held, self.is_given_up = _bytes_of(self._path), False
        return True

    def give_up(self) -> int:
        """Remove the reserve. Return the number of freed bytes. Never raises."""
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
        self.held = _bytes_of(self._path)


def free_bytes(path: str) -> int:
    """Return the bytes that may still be written on the disk of the file at `path`; 0 if that is unknown."""
    try:
        disk = os.statvfs(Path(path).parent)
    except OSError:
        return 0
    return disk.f_bavail * disk.f_frsize


def _bytes_of(path: str) -> int:
    try:
        return Path(path).stat().st_blocks * 512
    except OSError:
        return 0
