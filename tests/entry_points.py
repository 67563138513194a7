"""Entry points, read once for each search path: tests make thousands of registries, and a process begins with one."""

from __future__ import annotations

import functools
import importlib.metadata
import sys
from typing import Any


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
