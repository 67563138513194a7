"""The Unix socket in the state directory: its name, a short path to it, connections to it, the names of its peers."""

from __future__ import annotations

import contextlib
import functools
import http.client
import os
import pwd
import socket
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


class SocketConnection(http.client.HTTPConnection):
    """HTTP connection over a Unix socket.

    Args: within: seconds for the connection; timeout: seconds for each part of an answer.
    """

    def __init__(self, path: Path, within: float, timeout: float) -> None:
        super().__init__("spar")
        self._path, self._within, self._patience = path, within, timeout

    def connect(self) -> None:
        """Connect. Raises: OSError."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self._within)
        try:
            with short_path(self._path) as reachable:
                self.sock.connect(reachable)
        except OSError:
            self.close()
            raise
        self.sock.settimeout(self._patience)
