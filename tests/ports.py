"""Ports of 127.0.0.1 for servers that must be told theirs, and HTTP over Unix sockets."""

from __future__ import annotations

import http.client
import random
import socket
from pathlib import Path

from spar.net.control_socket import short_path

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


class SocketConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket, whose path may be long; closed behind the block."""

    def __init__(self, path: Path, timeout: float) -> None:
        super().__init__("spar", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        with short_path(self._path) as path:
            self.sock.connect(path)

    def __enter__(self) -> SocketConnection:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
