"""The machine of a run: its interpreter and load, and what the least work costs on it.

The costs say how far apart two machines are: runs on both can be compared line by line by their ratios, and their
microseconds only after these.
"""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import spar
from benchmarks.journalled import folder
from benchmarks.rows import INSERT, database, rows_of
from benchmarks.table import number

ROUNDS, TURNS, COMMITS = 15, 100_000, 20
#: What is measured of a machine, by its key in a run: a title, and the unit.
FIGURES = {
    "loop_ns": ("a turn of a loop of Python", "ns of processor time"),
    "commit_cpu_us": ("a commit of one row, flushed (SQLite)", "µs of processor time"),
    "commit_us": ("the same", "µs on the wall"),
}


def figures() -> dict[str, float]:
    """Measure what the least work costs on this machine, as medians: one turn of a loop, one commit on the disk."""
    loop = statistics.median(_timed(_loop, TURNS)[0] for _ in range(ROUNDS))
    with folder() as place, database(f"{place}/machine.db", "FULL") as connection:
        (row, *_) = rows_of(1)

        def commit(times: int) -> None:
            for _ in range(times):
                connection.execute("BEGIN")
                connection.execute(INSERT, row)
                connection.execute("COMMIT")

        commits = [_timed(commit, COMMITS) for _ in range(ROUNDS)]
    cpu, wall = (statistics.median(times) for times in zip(*commits, strict=True))
    return {"loop_ns": loop * 1e9, "commit_cpu_us": cpu * 1e6, "commit_us": wall * 1e6}


def told(figures: dict[str, float], before: dict[str, float] | None = None) -> str:
    """Return the figures as a sentence, beside those of an earlier run if there are some."""
    parts = []
    for key, (title, unit) in FIGURES.items():
        earlier = f"{number(before[key])} → " if before and key in before else ""
        parts.append(f"{title} {earlier}{number(figures[key])} {unit}")
    return f"machine: {'; '.join(parts)}"


def _loop(turns: int) -> None:
    for _ in range(turns):
        pass


def _timed(work: Callable[[int], None], units: int) -> tuple[float, float]:
    """Return the seconds of one unit: of the processor, and on the wall."""
    cpu, wall = time.thread_time(), time.perf_counter()
    work(units)
    return (time.thread_time() - cpu) / units, (time.perf_counter() - wall) / units


def about(packages: Sequence[str], figures: dict[str, float], *, uvloop: bool, quick: bool) -> dict[str, Any]:
    """Return where it was measured, and with what: packages by version, and the tree whose `spar` ran."""
    versions = {}
    for package in packages:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = "not installed"
    load = ", ".join(f"{part:.1f}" for part in os.getloadavg())
    return {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "loop": "uvloop" if uvloop else "asyncio",
        "quick": quick,
        "commit": commit(),
        "tree": str(Path(spar.__file__).resolve().parents[1]),
        "cores": os.cpu_count(),
        "load": load,
        "machine": figures,
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "packages": versions,
    }


def commit() -> str:
    """Return the commit that was measured, with a plus where the files have changed since; "?" without git."""
    command = ["git", "describe", "--always", "--dirty=+", "--exclude=*"]
    try:
        done = subprocess.run(
            command, cwd=Path(__file__).parent, capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return "?"
    return done.stdout.strip()
