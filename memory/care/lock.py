"""One process at a time: an advisory lock on a file beside the data.

`flock` is released by the kernel when its holder dies, so there is no stale lock to clean up; the file stays, and
says who holds it. It does not protect against programs that do not ask.
"""

from __future__ import annotations

import fcntl
import os

from spar.errors import ConfigError


class Lock:
    """The lock of the data at `path`, kept in `path + ".lock"`."""

    def __init__(self, path: str) -> None:
        self._path, self._file = path, -1

    def acquire(self) -> None:
        """Take the lock or say who has it; never waits.

        Raises: ConfigError naming the holder's pid; OSError when the lock file cannot be opened.
        """
        file = os.open(f"{self._path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(file, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(file)
            who = f"this process (pid {holder})" if holder == str(os.getpid()) else f"process {holder}"
            raise ConfigError(
                f"{self._path!r} is in use by {who}; stop it first, or open the memory read-only", path=("url",)
            ) from None
        except BaseException:
            os.close(file)
            raise
        os.ftruncate(file, 0)
        os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
        self._file = file

    def release(self) -> None:
        """Give the lock back; does nothing when it is not held."""
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)


def holder(path: str) -> int | None:
    """Return the process that holds the lock of the data at `path`: 0 if unknown, None if nobody. Takes it from
    nobody."""
    try:
        file = os.open(f"{path}.lock", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        text = os.pread(file, 32, 0).decode("ascii", "replace").strip()
        return int(text) if text.isdecimal() else 0
    else:
        return None
    finally:
        os.close(file)
