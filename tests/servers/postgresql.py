"""Server of PostgreSQL in a folder of its own, from Debian's package: the tests start it and reach it by a socket."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg

_KEPT = Path(__file__).parents[2] / ".cache"
#: Bytes that a server may take.
_ROOM = 1 << 30
#: Settings of a server that no test kills: it need not survive a power cut.
QUICK = ("fsync=off", "full_page_writes=off", "synchronous_commit=off", "shared_buffers=32MB", "autovacuum=off")


def programs() -> Path | None:
    """Return the folder of the newest server that is installed; None if there is none."""
    folders = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    if (initdb := shutil.which("initdb")) is not None:
        folders.append(Path(initdb).resolve().parent)
    return max(folders, key=lambda folder: int(folder.parent.name) if folder.parent.name.isdigit() else 0, default=None)


def place() -> str:
    """Return the folder for servers: in memory if there is room, since each test leaves a hundred small files. Both are
    short, as the path of a socket has at most 107 characters."""
    shared = Path("/dev/shm")
    return str(shared) if shared.is_dir() and shutil.disk_usage(shared).free > _ROOM else "/tmp"


class PostgresServer:
    """Server on a socket in `folder`."""

    def __init__(self, folder: Path, bin: Path, user: str | None, settings: tuple[str, ...]) -> None:
        self.folder, self._bin, self._user = folder, bin, user
        self._settings = settings
        self._number = 0

    def start(self) -> None:
        options = " ".join(f"-c {setting}" for setting in self._settings)
        arguments = f"-k {self.folder} -c listen_addresses='' -c max_connections=60 {options}"
        self._run("pg_ctl", "-D", f"{self.folder}/data", "-l", f"{self.folder}/log", "-w", "-o", arguments, "start")

    def stop(self, how: str = "immediate") -> None:
        self._run("pg_ctl", "-D", f"{self.folder}/data", "-m", how, "-w", "stop")

    def database(self) -> str:
        """Return the URL of an empty schema: a new database would take seven megabytes."""
        self._number += 1
        name = f"memory_{self._number}"
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {name}".encode())
        return f"{self.url()}&options=-csearch_path%3D{name}"

    def drop(self, url: str) -> None:
        """Drop the schema of a URL of `database`."""
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(
                f"SET client_min_messages = error; DROP SCHEMA {url.rpartition('%3D')[2]} CASCADE".encode()
            )

    def url(self) -> str:
        return f"postgresql://spar@/postgres?host={self.folder}"

    def initialise(self) -> None:
        """Copy the files of a new server, which the first of this version and this user makes and keeps."""
        version = subprocess.run([self._bin / "initdb", "--version"], capture_output=True, text=True, check=True).stdout
        kept, data = _KEPT / f"postgresql-{version.split()[2]}-{self._user or os.getuid()}", self.folder / "data"
        if kept.exists():
            subprocess.run(["cp", "-a", kept, data], check=True)
            return
        self._run("initdb", "-D", f"{data}", "-U", "spar", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
        _KEPT.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="postgresql-", dir=_KEPT) as copy, suppress(OSError):
            subprocess.run(["cp", "-a", data, copy], check=True)
            Path(copy, "data").rename(kept)  # fails if another process was first

    def _run(self, program: str, *arguments: str) -> None:
        as_user: dict[str, Any] = {} if self._user is None else {"user": self._user, "extra_groups": []}
        # A server that is started keeps the streams: it must not have a pipe.
        done = subprocess.run([str(self._bin / program), *arguments], cwd="/", stdin=subprocess.DEVNULL, text=True,
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE if program == "initdb" else None,
                              check=False, **as_user)  # fmt: skip
        assert done.returncode == 0, f"{program}: {done.stderr}"


@contextmanager
def postgres_server(settings: tuple[str, ...] = QUICK) -> Iterator[PostgresServer]:
    """Start a server and stop it at the end. A server refuses to be root's, so it belongs to another user then."""
    bin = programs()
    assert bin is not None
    user = None
    folder = Path(tempfile.mkdtemp(prefix="pg-", dir=place()))
    if os.getuid() == 0:
        user = "postgres" if any(entry.pw_name == "postgres" for entry in pwd.getpwall()) else "nobody"
        os.chown(folder, pwd.getpwnam(user).pw_uid, -1)
    server = PostgresServer(folder, bin, user, settings)
    try:
        server.initialise()
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
