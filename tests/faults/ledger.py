"""What the world outside knows: files that only grow, flushed to disk line by line, written by nobody but the world."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


class Ledger:
    """One file of JSON lines."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, **line: Any) -> None:
        """Append a line; it is on disk when this returns. A process that dies meanwhile leaves all of it or nothing."""
        file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            os.write(file, json.dumps(line).encode() + b"\n")
            os.fsync(file)
        finally:
            os.close(file)

    def read(self) -> list[dict[str, Any]]:
        try:
            return [json.loads(line) for line in self.path.read_bytes().splitlines()]
        except FileNotFoundError:
            return []
