"""Tells systemd how the service is (sd_notify): ready, stopping, and a beat that only progress sends.

Plain datagrams to `$NOTIFY_SOCKET`; without it nothing happens. See sd_notify(3).
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping


class SystemdNotifier:
    """Speaks to the service manager, if there is one. Never raises: nobody may depend on being heard."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        address = environ.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        usec = environ.get("WATCHDOG_USEC", "")
        is_ours = environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        #: Seconds between two beats (half of what systemd allows), None when none are wanted.
        self.beat_every = int(usec) / 2e6 if usec.isdigit() and int(usec) and is_ours else None

    def send(self, *lines: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as channel:
                channel.sendto("\n".join(lines).encode(), self._address)
        except OSError:
            pass
