"""Entry points, read once: tests make thousands of registries and processes, where a process makes one registry."""

from __future__ import annotations

import functools
import importlib.metadata
import sys
from typing import Any


def remember_entry_points() -> None:
    """Have the entry points of all distributions read once, unless a folder with further ones is searched, too.

    Processes that are forked remember what was read before.
    """
    read, folders = importlib.metadata.entry_points, frozenset(sys.path)
    remembered = functools.cache(read)

    def entry_points(**chosen: Any) -> importlib.metadata.EntryPoints:
        further = [folder for folder in sys.path if folder not in folders]
        if any(importlib.metadata.distributions(path=further)):
            return read(**chosen)
        return remembered().select(**chosen)

    importlib.metadata.entry_points = entry_points
