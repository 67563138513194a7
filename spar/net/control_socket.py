"""The Unix socket in the state directory: its name, and a short path to it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

SOCKET_NAME = "control.sock"


@contextlib.contextmanager
def short_path(path: Path) -> Iterator[str]:
    """Yield a path to a socket within the kernel's limit of 108 bytes: a long one through the folder's descriptor."""
    if len(os.fsencode(path)) < 100:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
