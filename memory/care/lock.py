"""Lock of a database file, in `path + ".lock"`: only one process at a time has it."""

from __future__ import annotations

import os

from spar.errors import ConfigError
from spar.fs.lock import FileLock, LockHeldError


class Lock(FileLock):
    """Lock of the data at `path`."""

    def __init__(self, path: str) -> None:
        super().__init__(lock_path(path))
        self._data = path

    def acquire(self) -> None:
        """Take the lock.

        Raises: ConfigError naming the holder's pid; OSError when the lock file cannot be opened.
        """
        try:
            super().acquire()
        except LockHeldError as error:
            who = "this process (pid {})" if error.pid == os.getpid() else "process {}"
            raise ConfigError(
                f"{self._data!r} is in use by {who.format(error.pid or 'unknown')}; stop it first, "
                "or open the memory read-only",
                path=("url",),
            ) from None


def lock_path(path: str) -> str:
    """Return the path of the lock file for the data at `path`."""
    return f"{path}.lock"
