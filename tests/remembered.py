"""What a process does once and tests do thousands of times: entry points and settings are read, tables are made."""

from __future__ import annotations

import functools
import importlib.metadata
import pickle
import sys
import threading
import tomllib
from typing import Any

from memory.sqlite import schema
from memory.sqlite.connection import SqliteConnection


class _Points:
    """Entry points of a search path, of which each group is looked for once."""

    def __init__(self, points: Any) -> None:
        self.groups = points.groups
        self.select = functools.cache(points.select)


def remember_entry_points() -> None:
    """Have the metadata of all distributions read once for each search path, also for processes that are forked."""
    read = importlib.metadata.entry_points

    @functools.lru_cache(maxsize=8)
    def remembered(path: tuple[str, ...]) -> _Points:
        return _Points(read())

    def entry_points(**chosen: Any) -> Any:
        points = remembered(tuple(sys.path))
        return points.select(**chosen) if chosen else points

    importlib.metadata.entry_points = entry_points


def remember_toml() -> None:
    """Have each text of TOML read once, and copied then: that takes four fifths of loading the shipped settings."""
    loads = tomllib.loads

    @functools.lru_cache(maxsize=64)
    def remembered(text: str) -> bytes:
        return pickle.dumps(loads(text))

    tomllib.loads = lambda text, **given: loads(text, **given) if given else pickle.loads(remembered(text))


def remember_tables() -> None:
    """Have the tables of a new file copied from one in memory: making them takes half of the time of an opening."""
    migrate, lock = schema.migrate, threading.Lock()

    @functools.cache
    def made() -> SqliteConnection:
        connection = SqliteConnection(":memory:")
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        migrate(connection)
        return connection

    def remembered(connection: Any, *, steps: Any = schema.STEPS) -> int:
        if steps is not schema.STEPS or schema.version(connection):
            return migrate(connection, steps=steps)
        with lock, connection.backup("main", made(), "main") as copy:
            copy.step()
        return len(steps)

    schema.migrate = remembered
