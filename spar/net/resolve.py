"""Resolution of a host name, once, with judgement of all its addresses."""

from __future__ import annotations

import socket
from typing import Final

from spar.errors import PermanentError
from spar.net.addresses import Guard
from spar.threads import Threads

CONNECT: Final = 5.0  # seconds for one address, so that a silent one leaves time for the next
_MOST_ADDRESSES: Final = 4


async def permitted(guard: Guard, threads: Threads, host: str, port: int) -> list[str]:
    """Return the first four addresses of a host; connect to exactly these, even if the name resolves differently later.

    Raises: PermanentError when one of its addresses, or the port, is not allowed; OSError and UnicodeError when the
        name cannot be resolved.
    """
    entries = await threads.run(socket.getaddrinfo, host, port, 0, socket.SOCK_STREAM)
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in entries))
    if reason := guard.against(host, port, addresses):
        raise PermanentError(reason)
    return addresses[:_MOST_ADDRESSES]
