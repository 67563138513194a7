"""KEEP: what the agent remembers, in one SQLite file.

    from memory import Memory

    async with Memory.open("sqlite:///memory.db") as memory:
        await memory.store(Experience("disk full on web-1", action="rotate logs", success=True))
        await memory.recall("disk full")

`store` is the public face; `writer` the one thread that writes; `recall` and `retention` decide, purely, what
comes first and what goes. Importing this package opens nothing and loads no database driver.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memory.store import Memory

__all__ = ["Memory"]


def __getattr__(name: str) -> Any:
    if name == "Memory":
        from memory.store import Memory

        return Memory
    raise AttributeError(f"module 'memory' has no attribute {name!r}")
