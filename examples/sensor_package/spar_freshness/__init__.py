"""A sensor that tells when a file has not been written for too long: a backup, an export, a heartbeat."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from spar import Perception
from spar.protocols import Home, SensorContext


class FreshnessSensor:
    """Tells when `path` is older than `limit` seconds, or is not there, and when it is fresh again.

    Args:
        path: the file, beside the configuration if it is relative.
        limit: seconds that it may be old.
        every: seconds between two looks.
    """

    def __init__(self, path: str, home: Annotated[Home, None], *, limit: float = 86400.0, every: float = 60.0) -> None:
        self.every = every
        self._path, self._limit = Path(home.config, path), limit
        self._was_stale = False

    def open(self, context: SensorContext) -> None:
        self._was_stale = False

    def poll(self) -> Sequence[Perception]:
        try:
            age = time.time() - self._path.stat().st_mtime
        except FileNotFoundError:
            age = float("inf")
        is_stale, was_stale = age > self._limit, self._was_stale
        self._was_stale = is_stale
        if is_stale == was_stale:
            return []
        words = "has not been written in time" if is_stale else "is fresh again"
        kind = "file.stale" if is_stale else "file.fresh"
        return [Perception(f"{self._path.name} {words}", kind=kind, attributes={"path": str(self._path)})]

    def close(self) -> None:
        return None
