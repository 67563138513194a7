"""Ports of 127.0.0.1 for servers that must be told theirs."""

from __future__ import annotations

import random
import socket

#: Below those that systems give to outgoing connections, one of which could take a port before its server does.
PORTS = range(16_384, 32_768)


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody listens on."""
    while True:
        port = random.SystemRandom().choice(PORTS)
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return port
