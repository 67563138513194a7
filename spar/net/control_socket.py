"""The Unix socket in the state directory: its name, a short path to it, connections to it, the names of its peers, and
the sockets of the services of this machine."""

from __future__ import annotations

import contextlib
import functools
import http.client
import os
import pwd
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

SOCKET_NAME = "control.sock"
#: The kernel's list of Unix sockets, and the flag of those that listen (net/unix/af_unix.c).
_SOCKETS, _LISTENS = Path("/proc/net/unix"), 0x10000


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


def own_sockets() -> list[Path]:
    """Return the control sockets on which processes of this user listen, as far as the kernel tells their paths.

    It does not tell the path of a socket that was made by way of a descriptor, since its path is long.
    """
    try:
        lines = _SOCKETS.read_text("utf-8", "surrogateescape").splitlines()
    except OSError:  # another kernel
        return []
    rows = (words for line in lines if len(words := line.split(maxsplit=7)) == 8)
    paths = {Path(words[7]) for words in rows if words[7].endswith(f"/{SOCKET_NAME}") and int(words[3], 16) & _LISTENS}
    return sorted(path for path in paths if path.is_absolute() and _is_own(path))


def _is_own(path: Path) -> bool:
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISSOCK(status.st_mode) and status.st_uid == os.geteuid()
