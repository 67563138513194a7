"""Notifier of systemd: sends that the service is ready, stopping, or makes progress.

It sends datagrams to `$NOTIFY_SOCKET`, and nothing without that variable. See sd_notify(3).
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping


class SystemdNotifier:
    """Sender of states to the service manager, if there is one. It never raises: the service works without it."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        address = environ.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        usec = environ.get("WATCHDOG_USEC", "")
        is_ours = environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        #: Seconds between two beats (half of systemd's limit), None if systemd expects none.
        self.beat_every = int(usec) / 2e6 if usec.isdigit() and int(usec) and is_ours else None

    def send(self, *lines: str) -> None:
        """Send one datagram with these lines, such as `READY=1`."""
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as channel:
                channel.sendto("\n".join(lines).encode(), self._address)
        except OSError:
            pass
