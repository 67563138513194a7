"""Probes of a sandbox: eleven things that a program in it must not be able to do, and that it can work.

`main` runs inside: its text is handed to an interpreter there, so it imports nothing of ours. It claims nothing but
`benign`; whether a probe came through is seen from outside, by its effect (see `detect`).

Each of them comes through where nothing is in its way, but for the last, which the supervisor sees to.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

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


def main(workspace: str, outside: str, victim: str, tcp: str, udp: str, abstract: str) -> None:
    """Try everything; the last word on standard output is `BENIGN` when ordinary work is possible."""
    here, there = Path(workspace), Path(outside)
    refused = contextlib.suppress(Exception)
    with refused:
        print((there / "secret").read_text())  # noqa: T201
    with refused:
        (there / "written").write_text("x")
    with refused:
        (here / "link").symlink_to(there / "linked")
        (here / "link").write_text("x")
    with refused:
        (there / "secret").chmod(0o644)
    for folder in (victim, *filter(str.isdigit, os.listdir("/proc"))):  # noqa: PTH208
        with refused:
            sys.stdout.write(Path(f"/proc/{folder}/environ").read_text())
    with refused:
        os.kill(int(victim), signal.SIGTERM)
    with refused:
        socket.create_connection(("127.0.0.1", int(tcp)), timeout=1).close()
    with refused, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        datagrams.sendto(b"x", ("127.0.0.1", int(udp)))
    for address in (str(there / "socket"), f"\0{abstract}"):
        with refused, socket.socket(socket.AF_UNIX) as client:
            client.connect(address)
    with refused:
        if os.fork() == 0:  # it holds the lock of a file for as long as it lives
            import fcntl

            os.setsid()
            with (here / "lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                (here / "locked").touch()
                os.closerange(0, 3)
                time.sleep(60)
            os._exit(0)
        for _ in range(200):
            if (here / "locked").exists():
                break
            time.sleep(0.001)
    (here / "file").write_text("text")
    Path("/tmp", f"probe-{os.getpid()}").write_text("x")
    Path("/dev/null").write_text("x")
    said = subprocess.run(["cat", here / "file"], capture_output=True, text=True, check=True).stdout
    if said == "text":
        print(BENIGN)  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
