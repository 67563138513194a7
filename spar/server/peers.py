"""Identity of the peer on the Unix socket, read from the kernel, so that no client can claim another identity.

See SO_PEERCRED in unix(7): the user of the process at the time when it connected.
"""

from __future__ import annotations

import pwd
import socket
import struct

#: Name of a peer whose identity the kernel does not give.
UNKNOWN_PEER = "local"
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid


def peer(connection: socket.socket) -> tuple[str, int]:
    """Return the user's name and the process id of the other end of a Unix socket."""
    try:
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    except (OSError, AttributeError):
        return UNKNOWN_PEER, 0
    process, user, _ = _CREDENTIALS.unpack(credentials)
    return name_of(user), process


def name_of(user: int) -> str:
    """Return the name of a user by its number."""
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:  # a user without an entry, as in a container
        return f"user {user}"
