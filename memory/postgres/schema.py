"""Format of the database: its tables, the changes from each format to the next, and the refusal of other databases.

The rows of `spar_format` are the formats whose tables are there. The highest one is in force. Processes that work
together add what a new format needs as soon as one of them knows it, raise the format when all of them know it, and
take away what only the former one needs when none of them writes that any more.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from spar.errors import ConfigError

if TYPE_CHECKING:
    from memory.postgres.connection import PostgresConnection

_TABLE: Final = "spar_format"


class Change(NamedTuple):
    """Change to the next format, as statements.

    Args: add: only adds, so that a process that knows the former format alone works on, and may be executed again;
        remove: takes away what only the former format needs. All commits wait for it: it copies no rows.
    """

    add: str
    remove: str = ""


class Formats(NamedTuple):
    """Formats that a release reads and writes, from the lowest to the highest."""

    lowest: int
    highest: int

    def __str__(self) -> str:
        return str(self.highest) if self.lowest == self.highest else f"{self.lowest} to {self.highest}"


#: Changes to the formats 2, 3, …
CHANGES: tuple[Change, ...] = ()
#: Lowest format that this release writes beside others. A process that has the database alone changes any lower one.
LOWEST = 1


def known() -> Formats:
    """Return the formats that this release knows."""
    return Formats(LOWEST, 1 + len(CHANGES))


def check(connection: PostgresConnection, name: str, *, read_only: bool = False) -> bool:
    """Check that a database can be used. Return whether it has the tables; it is then of no later format.

    Raises: ConfigError naming the database, the format and what to do.
    """
    tables = connection.tables()
    if _TABLE not in tables:
        if tables:
            raise ConfigError(
                f"{name} holds tables of another program ({', '.join(sorted(tables)[:3])}); give the memory a database "
                "of its own: memory.url",
                path=("url",),
            )
        if read_only:
            raise ConfigError(f"{name} holds no memory yet; the first 'spar run' makes it", path=("url",))
        return False
    present, (lowest, highest) = max(present_formats(connection), default=0), known()
    if not 1 <= present <= highest:
        raise ConfigError(
            f"{name} has the format {present} of a later version, known here is {known()}; it is left unchanged: "
            "upgrade spar, or let memory.url name another database",
            path=("url",),
        )
    if read_only and present < lowest:
        raise ConfigError(
            f"{name} has the older format {present}, known here is {known()}; open it once for writing "
            "(spar run) before it is read",
            path=("url",),
        )
    return True


def present_formats(connection: PostgresConnection) -> list[int]:
    """Return the formats whose tables are there, in order; the last one is in force."""
    return [int(number) for (number,) in connection.execute(f"SELECT number FROM {_TABLE} ORDER BY number")]


def create(connection: PostgresConnection) -> None:
    """Create the tables; called in a transaction. Raises: psycopg.Error."""
    connection.execute(Path(__file__).with_name("schema.sql").read_text("utf-8"))
    connection.execute(f"INSERT INTO {_TABLE} (number) VALUES (1)")
    migrate(connection)


def migrate(connection: PostgresConnection) -> None:
    """Change a checked database to the highest format; called in a transaction by who has it alone."""
    if present_formats(connection) == [known().highest]:
        return
    if "node" in connection.tables():  # the leases of nodes that have lost their connections end before it changes
        connection.execute("DELETE FROM node")
    prepare(connection)
    remove_former(connection)
    for _ in CHANGES[present_formats(connection)[-1] - 1 :]:
        rise(connection)
        remove_former(connection)


def prepare(connection: PostgresConnection) -> None:
    """Add what all formats need that are known here; called in a transaction."""
    for change in CHANGES[present_formats(connection)[-1] - 1 :]:
        connection.execute(change.add)


def rise(connection: PostgresConnection) -> None:
    """Let the next format be in force; called in a transaction."""
    connection.execute(f"INSERT INTO {_TABLE} (number) SELECT max(number) + 1 FROM {_TABLE}")


def remove_former(connection: PostgresConnection) -> None:
    """Take away what only formats before that in force need; called in a transaction."""
    for former in present_formats(connection)[:-1]:
        connection.execute(f"{CHANGES[former - 1].remove}; DELETE FROM {_TABLE} WHERE number = {former}")
