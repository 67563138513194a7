"""One service for one state directory.

The kernel holds the lock and lets go of it when the process ends, however it ends; the file only says who holds it.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

LOCK_NAME = "spar.lock"
#: Seconds for which a lock may be held before it counts: long enough for somebody who only asks (`is_held`).
PATIENCE = 0.2


class AlreadyRunningError(Exception):
    """Another process uses the state directory; `pid` is its process id, 0 if unknown."""

    def __init__(self, folder: Path, pid: int) -> None:
        self.pid = pid
        who = f"process {pid}" if pid else "another process"
        super().__init__(
            f"{folder}: {who} already runs on this data; use `spar status` and `spar stop`, "
            "or give this one a state_dir of its own"
        )


class LockFile:
    """An exclusive lock on a folder, held from `acquire` to `release` or to the end of the process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Raises: AlreadyRunningError; OSError when the folder cannot be written."""
        descriptor = os.open(self._folder / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if not _locked(descriptor):
            text = os.read(descriptor, 32).decode("ascii", "replace").strip()
            os.close(descriptor)
            raise AlreadyRunningError(self._folder, int(text) if text.isdigit() else 0)
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        self._descriptor = descriptor

    def is_held(self) -> bool:
        """Return whether somebody holds the lock now; ask without taking it from anyone."""
        try:
            descriptor = os.open(self._folder / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _locked(descriptor: int) -> bool:
    until = time.monotonic() + PATIENCE
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                return False
            time.sleep(0.02)
        else:
            return True
