"""Identity of the peer on the Unix socket: the kernel tells it, so that nobody can claim another.

See SO_PEERCRED in unix(7): the user of the process that connected, as it was then.
"""

from __future__ import annotations

import pwd
import socket
import struct

from starlette.requests import Request

from spar.records.session import Origin

#: Name of a peer where the kernel tells none.
UNKNOWN_PEER = "local"
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid


def peer(connection: socket.socket) -> tuple[str, int]:
    """Return the user's name and the process at the other end."""
    try:
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    except (OSError, AttributeError):
        return UNKNOWN_PEER, 0
    process, user, _ = _CREDENTIALS.unpack(credentials)
    return name_of(user), process


def peer_of(request: Request) -> str:
    """Return the name of the peer of a request, as the server has found it out: nothing that a request says of it."""
    return request.client.host if request.client is not None else UNKNOWN_PEER


def origin_of(request: Request) -> Origin:
    """Return the origin of what a request says: the token is its sender, where it has one."""
    return Origin("http", sender=peer_of(request)) if "token" in request.scope else Origin("http")


def name_of(user: int) -> str:
    """Return a user's name."""
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:  # a user without an entry, as in a container
        return f"user {user}"
