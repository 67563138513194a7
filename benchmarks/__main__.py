"""Measure and print one table: `python -m benchmarks [--only cycle,many] [--quick] [--uvloop] [--json [FILE]]`."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import logging
import os
import platform
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Coroutine, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks import duties, history, table
from benchmarks.harness import QUICK, THOROUGH, Effort
from benchmarks.table import Line

MEASURES = (
    "cycle", "many", "footprint", "publish", "accounting",
    "durable", "flushed", "held_up", "startup",
    "calls", "chain", "growth", "makespan", "streamed", "loads",
    "model_call", "model_plan", "model_run", "firsts", "sessions", "prompts", "chatted", "traced",
)  # fmt: skip
PACKAGES = (
    "spar-agent", "aiosqlite", "anyio", "apache-hamilton", "apsw", "blinker", "dbos", "langgraph",
    "langgraph-checkpoint-sqlite", "openai-agents", "prometheus-client", "py-trees", "pydantic-ai-slim", "pyee",
    "uvloop",
)  # fmt: skip


def main() -> None:
    given = arguments()
    logging.disable(logging.CRITICAL)
    effort = QUICK if given.quick else THOROUGH
    began = time.monotonic()
    lines, broken = measured(given.only, lambda name: _measure(name, effort), loop_of(given.uvloop))
    about = machine(given.uvloop, quick=given.quick)
    print(table.rendered(lines))
    print(f"\n{table.missed(lines)}")
    print(f"\n{duties.beside(line.against for line in lines)}")
    took = time.monotonic() - began
    print(f"\n{about['python']} on {about['loop']}, {about['cores']} cores, load {about['load']}, {took:.0f} s")
    print(
        f"ratios: medians of up to {effort.rounds} rounds of wall time; (…) and cpu: processor time; by: what is judged"
    )
    if given.json:
        history.append(given.json, {"about": about, "lines": table.as_data(lines)})
    if broken:
        sys.exit(f"not measured, for the reasons above the table: {', '.join(broken)}")
    if rows := table.without_limit(lines):
        sys.exit(f"no limit is measured beside: {', '.join(rows)}")


def measured(
    chosen: Sequence[str], measure: Callable[[str], Coroutine[Any, Any, Sequence[Line]]], run: Callable[..., Any]
) -> tuple[list[Line], list[str]]:
    """Return the lines of all measures, and the names of those that broke: what the others found is not lost with them.

    Args: measure: begins one by its name; run: runs a coroutine to its end.
    """
    lines, broken = list[Line](), list[str]()
    for name in chosen:
        print(f"{name} …", file=sys.stderr, flush=True)
        try:
            lines += run(measure(name))
        except Exception:
            traceback.print_exc()
            broken.append(name)
    return lines, broken


def _measure(name: str, effort: Effort) -> Coroutine[Any, Any, Sequence[Line]]:
    begun: Coroutine[Any, Any, Sequence[Line]] = importlib.import_module(f"benchmarks.{name}").measure(effort)
    return begun


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="What spar costs, beside limits and peers."
    )
    parser.add_argument("--only", type=names, default=MEASURES, help=f"comma separated: {', '.join(MEASURES)}")
    parser.add_argument("--quick", action="store_true", help="few short rounds: a minute, and rough")
    parser.add_argument("--uvloop", action="store_true", help="run everything on uvloop")
    parser.add_argument(
        "--json", metavar="FILE", type=Path, nargs="?", const=history.FILE, help="add what was measured as a line there"
    )
    return parser.parse_args()


def names(text: str) -> tuple[str, ...]:
    chosen = tuple(text.split(","))
    if unknown := [name for name in chosen if name not in MEASURES]:
        raise argparse.ArgumentTypeError(f"no measure named {', '.join(unknown)}; known: {', '.join(MEASURES)}")
    return chosen


def loop_of(uvloop: bool) -> Any:
    """What runs a coroutine to its end."""
    if not uvloop:
        return asyncio.run
    import uvloop as module

    return module.run


def machine(uvloop: bool, *, quick: bool) -> dict[str, Any]:
    """Where it was measured, and with what."""
    versions = {}
    for package in PACKAGES:
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
        "cores": os.cpu_count(),
        "load": load,
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


if __name__ == "__main__":
    main()
