"""Files that tests write, also where an event loop runs: they are small."""

from __future__ import annotations

from pathlib import Path


def write(content: str | bytes, *where: str | Path) -> Path:
    """Write a file; returns its path."""
    path = Path(*where)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def remove(path: Path) -> None:
    """Delete a file."""
    path.unlink()
