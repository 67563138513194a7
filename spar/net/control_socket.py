"""The Unix socket in the state directory: its name, a short path to it, and the names of its peers."""

from __future__ import annotations

import contextlib
import functools
import os
import pwd
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


@functools.cache  # the machine may ask a directory server, which takes long
def name_of(user: int) -> str:
    """Return the name of a user by its number."""
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:  # a user without an entry, as in a container
        return f"user {user}"
