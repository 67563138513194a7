"""Entry points, read once for each search path: tests make thousands of registries, and a process begins with one."""

from __future__ import annotations

import functools
import importlib.metadata
import sys
from typing import Any


def remember_entry_points() -> None:
    """Have the metadata of all distributions read once for each search path, also for processes that are forked."""
    read = importlib.metadata.entry_points

    @functools.lru_cache(maxsize=8)
    def remembered(path: tuple[str, ...]) -> importlib.metadata.EntryPoints:
        return read()

    def entry_points(**chosen: Any) -> importlib.metadata.EntryPoints:
        return remembered(tuple(sys.path)).select(**chosen)

    importlib.metadata.entry_points = entry_points
