"""Probes of a sandbox: eleven things that a program in it must not be able to do, and that it can work.

`main` runs inside: its text is handed to an interpreter there, so it imports nothing of ours. It claims nothing but
`benign`; whether a probe came through is seen from outside, by its effect (see `detect`).

Each of them comes through where nothing is in its way, but for the last, which the supervisor sees to.
"""

from __future__ import annotations

import os
import socket
import sys
import time

TYPE_CHECKING = False  # what is imported here is paid for by each examination
if TYPE_CHECKING:
    from typing import Any

HOSTILE = (
    "read a file outside",
    "write a file outside",
    "write through a symbolic link",
    "change the mode of a file outside",
    "read another process's environment",
    "signal another process",
    "connect to 127.0.0.1 by TCP",
    "send to 127.0.0.1 by UDP",
    "connect to a unix socket by its path",
    "connect to an abstract unix socket",
    "leave a process behind",
)
BENIGN = "benign-works"


class Refused:
    """Suppresses what a probe raises that does not come through."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, *more: Any) -> bool:
        return kind is not None and issubclass(kind, Exception)


def main(here: str, there: str, victim: str, tcp: str, udp: str, abstract: str) -> None:
    """Try everything in the workspace `here`; the last word on standard output is `BENIGN` when ordinary work is
    possible. Args: there: a folder outside."""
    refused = Refused()
    with refused:
        sys.stdout.write(_read(f"{there}/secret"))
    with refused:
        _write(f"{there}/written", "x")
    with refused:
        os.symlink(f"{there}/linked", f"{here}/link")  # noqa: PTH211
        _write(f"{here}/link", "x")
    with refused:
        os.chmod(f"{there}/secret", 0o644)  # noqa: PTH101
    for folder in (victim, *filter(str.isdigit, os.listdir("/proc"))):  # noqa: PTH208
        with refused:
            sys.stdout.write(_read(f"/proc/{folder}/environ"))
    with refused:
        os.kill(int(victim), 15)
    with refused:
        socket.create_connection(("127.0.0.1", int(tcp)), timeout=1).close()
    with refused, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        datagrams.sendto(b"x", ("127.0.0.1", int(udp)))
    for address in (f"{there}/socket", f"\0{abstract}"):
        with refused, socket.socket(socket.AF_UNIX) as client:
            client.connect(address)
    with refused:
        if os.fork() == 0:  # it holds the lock of a file for as long as it lives
            import fcntl

            os.setsid()
            with open(f"{here}/lock", "w") as lock:  # noqa: PTH123
                fcntl.flock(lock, fcntl.LOCK_EX)
                _write(f"{here}/locked", "")
                os.closerange(0, 3)
                time.sleep(60)
            os._exit(0)
        for _ in range(200):
            if os.access(f"{here}/locked", os.F_OK):
                break
            time.sleep(0.001)
    _write(f"{here}/file", "text")
    _write(f"/tmp/probe-{os.getpid()}", "x")
    _write("/dev/null", "x")
    if _said_by("cat", f"{here}/file") == b"text":
        print(BENIGN)  # noqa: T201


def _read(path: str) -> str:
    with open(path) as file:  # noqa: PTH123 - pathlib would take longer than all the rest
        return file.read()


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:  # noqa: PTH123
        file.write(text)


def _said_by(*words: str) -> bytes:
    """Return what a program writes first, once it has ended."""
    ours, its = os.pipe()
    pid = os.posix_spawnp(words[0], words, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, its, 1)])
    os.close(its)
    os.waitpid(pid, 0)
    return os.read(ours, 100)


if __name__ == "__main__":
    main(*sys.argv[1:])
