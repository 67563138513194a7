"""Locks that one process at a time holds, on a file beside the protected data.

The kernel releases `flock` when its holder dies, so there is no stale lock to clean up; the file stays, and contains
the process id of the holder. Programs that do not ask for the lock are not kept out.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

#: Name of the lock of a service, in its state directory.
STATE_LOCK = "spar.lock"
#: Seconds for which a lock may be held without counting as held: longer than `holder` holds it for its test.
PATIENCE = 0.2


class LockHeldError(Exception):
    """Error of a lock that another holder has; `pid` is its process id, 0 if unknown."""

    def __init__(self, path: Path, pid: int) -> None:
        self.pid = pid
        super().__init__(f"{path} is locked by {f'process {pid}' if pid else 'another process'}")


class FileLock:
    """Exclusive lock, held from `acquire` to `release` or to the end of the process."""

    def __init__(self, path: str | Path) -> None:
        self._path, self._file = Path(path), -1

    def acquire(self) -> None:
        """Take the lock. Blocks for at most PATIENCE seconds.

        Raises: LockHeldError; OSError for a file that cannot be opened.
        """
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if not _is_locked(file):
                raise LockHeldError(self._path, _pid(file))
            os.ftruncate(file, 0)
            os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
        except BaseException:
            os.close(file)
            raise
        self._file = file

    def release(self) -> None:
        """Release the lock; nothing happens when it is not held."""
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)


def holder(path: str | Path) -> int | None:
    """Return the process that holds the lock of this file: 0 if unknown, None without a holder. The holder keeps it.

    Raises: OSError for an existing file that cannot be opened.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _pid(file)
    else:
        return None
    finally:
        os.close(file)


def _is_locked(file: int) -> bool:
    """Lock an open file; return whether this succeeded within PATIENCE."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                return False
            time.sleep(0.02)
        else:
            return True


def _pid(file: int) -> int:
    text = os.pread(file, 32, 0).decode("ascii", "replace").strip()
    return int(text) if text.isdecimal() else 0
