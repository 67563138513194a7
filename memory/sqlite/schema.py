"""Format of the file: its version, the migrations of older versions, and the refusal of newer ones.

All tables are in `formats/`, one file for each format that adds some. The version is SQLite's `user_version`;
`application_id` says that the file is a memory of spar. Step n of `STEPS` leads from version n to n + 1, step 0 from an
empty file. All steps that a file needs run in one transaction: a migration that fails or is cut off leaves the file as
it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from memory.engine.hash_chain import integer
from memory.sqlite import seals
from spar.errors import ConfigError
from spar.failpoints import crashpoint

if TYPE_CHECKING:
    from memory.engine.connection import Connection

APPLICATION_ID = 0x73706172  # "spar"
Step = Callable[["Connection"], object]
#: Add the sessions whose transcripts were stored before the table of sessions existed.
_LIST_SESSIONS = (
    "INSERT INTO session (agent, key, ordinal, began_at, used_at, is_set, body) SELECT agent, session, 1, min(at), "
    "max(at), 0, json_object('created_at', strftime('%Y-%m-%dT%H:%M:%fZ', min(at), 'unixepoch')) FROM transcript "
    "GROUP BY agent, session"
)


def tables(number: int) -> str:
    """Return the statements that create the tables of format `number`."""
    return Path(__file__).with_name("formats").joinpath(f"{number}.sql").read_text("utf-8")


def _add(number: int) -> Step:
    return lambda connection: connection.execute(tables(number))


def _add_and_seal(connection: Connection) -> None:
    connection.execute(tables(5))
    seals.seal_all(connection)


def _add_sessions(connection: Connection) -> None:
    connection.execute(tables(6))
    connection.execute(_LIST_SESSIONS)
    seals.seal_new(connection, "session")


def _add_counting(connection: Connection) -> None:
    connection.execute(tables(8))
    seals.seal_again(connection, "experience", columns=9)
    seals.seal_new(connection, "experience_source")


STEPS: tuple[Step, ...] = (*map(_add, range(1, 5)), _add_and_seal, _add_sessions, _add(7), _add_counting)


def version(connection: Connection) -> int:
    """Return the version of a file; 0 for an empty one. Reads only."""
    return integer(connection, "PRAGMA user_version")


def is_older(connection: Connection) -> bool:
    """Return whether a checked file has an older version. Reads only."""
    return version(connection) < len(STEPS)


def check(connection: Connection, name: str, *, steps: Sequence[Step] = STEPS, read_only: bool = False) -> None:
    """Check that a file is a memory of spar, of a version that can be used. Reads only.

    Raises: ConfigError naming the file, the version and what to do.
    """
    present, known = version(connection), len(steps)
    owner = integer(connection, "PRAGMA application_id")
    tables = integer(connection, "SELECT count(*) FROM sqlite_schema")
    if tables and owner != APPLICATION_ID:
        raise ConfigError(f"{name!r} is a database of another program; let memory.url name another file", path=("url",))
    if present > known:
        raise ConfigError(
            f"{name!r} was written by a newer version (format {present}, known here up to {known}); "
            "it is left unchanged: upgrade spar, or let memory.url name another file",
            path=("url",),
        )
    if read_only and present < known:
        state = f"has the older format {present}" if tables else "holds no memory yet"
        raise ConfigError(f"{name!r} {state}; open it once for writing (spar run) before it is read", path=("url",))


def migrate(connection: Connection, *, steps: Sequence[Step] = STEPS) -> int:
    """Migrate a checked file to the present version. Return the number of steps.

    Raises: the error of the failing step, after all steps were undone.
    """
    if version(connection) == len(steps):
        return 0
    connection.execute("BEGIN IMMEDIATE")
    try:
        before = version(connection)
        for step in steps[before:]:
            step(connection)
            crashpoint("migrate.step")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {len(steps)}; COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return len(steps) - before
