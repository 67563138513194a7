"""Format of the database: its tables, and the refusal of a database of another program or of a later format."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from spar.errors import ConfigError

if TYPE_CHECKING:
    from memory.postgres.connection import PostgresConnection

#: The format that this release writes.
FORMAT: Final = 1
_TABLE: Final = "spar_format"


def check(connection: PostgresConnection, name: str, *, read_only: bool = False) -> bool:
    """Check that a database can be used. Return whether it has the tables; it is then of this format.

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
    present = connection.execute(f"SELECT max(number) FROM {_TABLE}").get
    if present != FORMAT:
        raise ConfigError(
            f"{name} has the format {present} of a later version, known here is {FORMAT}; it is left unchanged: "
            "upgrade spar, or let memory.url name another database",
            path=("url",),
        )
    return True


def create(connection: PostgresConnection) -> None:
    """Create the tables; called in a transaction. Raises: psycopg.Error."""
    connection.execute(Path(__file__).with_name("schema.sql").read_text("utf-8"))
    connection.execute(f"INSERT INTO {_TABLE} (number) VALUES (?)", (FORMAT,))
