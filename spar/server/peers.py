"""Who is at the other end of the Unix socket: the kernel says, so that nobody can say it of themselves.

See SO_PEERCRED in unix(7): the user of the process that connected, as it was then.
"""

from __future__ import annotations

import pwd
import socket
import struct

#: Who asks where the kernel does not say it.
UNKNOWN_PEER = "local"
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid


def peer(connection: socket.socket) -> tuple[str, int]:
    """The user's name and the process at the other end."""
    try:
        told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    except (OSError, AttributeError):
        return UNKNOWN_PEER, 0
    process, user, _ = _CREDENTIALS.unpack(told)
    try:
        return pwd.getpwuid(user).pw_name, process
    except KeyError:  # a user without an entry, as in a container
        return f"user {user}", process
