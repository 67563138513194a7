"""A network with nobody in it: a test that should not reach anybody outside cannot, whatever the code under test does.

A network namespace of the kernel's (network_namespaces(7)) for the thread that asks and for all threads and processes
that it starts from then on; in it there is a loopback and no route anywhere. The thread comes back afterwards.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

#: The namespace of the thread that looks, not of the process.
OWN = "/proc/thread-self/ns/net"
_NEW_NETWORK = 0x40000000  # CLONE_NEWNET
_SET_FLAGS, _UP = 0x8914, 0x1  # SIOCSIFFLAGS, IFF_UP


@contextmanager
def no_route_outside() -> Iterator[None]:
    """Have this thread in a network of its own. Raises: OSError where the kernel does not let us."""
    if not has_route_outside():
        with suppress(OSError):  # it is up, where it is not ours to raise
            _loopback_up()
        yield
        return
    before = os.open(OWN, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _checked(_libc.unshare(_NEW_NETWORK), "unshare")
        try:
            _loopback_up()
            yield
        finally:
            _checked(_libc.setns(before, _NEW_NETWORK), "setns")
    finally:
        os.close(before)


def has_route_outside() -> bool:
    """Whether any packet could leave this machine: whether there is a route over anything but the loopback."""
    lines = Path("/proc/thread-self/net/route").read_text().splitlines()[1:]
    six = Path("/proc/thread-self/net/ipv6_route")
    lines += six.read_text().splitlines() if six.exists() else []
    return any("lo" not in (words := line.split()) and words for line in lines)


def _loopback_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
        fcntl.ioctl(handle, _SET_FLAGS, struct.pack("16sh14x", b"lo", _UP))


_libc = ctypes.CDLL(None, use_errno=True)


def _checked(code: int, what: str) -> None:
    if code:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
