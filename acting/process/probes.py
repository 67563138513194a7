"""Probes of a sandbox: eleven actions that must fail in it (`HOSTILE`), and ordinary work that must succeed.

`main` runs inside the sandbox: an interpreter there gets the text of this module, so it imports nothing of this
project. It reports only the ordinary work; `detect` sees from outside, by the effects, which probes came through.

Without a sandbox every probe comes through but the last: the supervisor always ends processes that are left behind.
"""

from __future__ import annotations

import os
import socket
import sys
import time

TYPE_CHECKING = False  # an import of `typing` would slow down each examination
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
    """Context manager that suppresses the exception of a probe that was refused."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, *more: Any) -> bool:
        return kind is not None and issubclass(kind, Exception)


def main(here: str, there: str, victim: str, tcp: str, udp: str, abstract: str) -> None:
    """Run all probes in the workspace `here`; write `BENIGN` at the end if ordinary work succeeded.

    Args: there: a folder outside of the workspace; victim: a process id; tcp, udp: ports; abstract: a socket's name.
    """
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
        if os.fork() == 0:  # the child locks a file for as long as it lives
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
    if _output_of("cat", f"{here}/file") == b"text":
        print(BENIGN)  # noqa: T201


def _read(path: str) -> str:
    with open(path) as file:  # noqa: PTH123 - pathlib would take longer than all the rest
        return file.read()


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:  # noqa: PTH123
        file.write(text)


def _output_of(*words: str) -> bytes:
    """Run a program to its end and return the first bytes of its output."""
    ours, its = os.pipe()
    pid = os.posix_spawnp(words[0], words, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, its, 1)])
    os.close(its)
    os.waitpid(pid, 0)
    return os.read(ours, 100)


if __name__ == "__main__":
    main(*sys.argv[1:])
