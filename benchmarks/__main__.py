"""Measure and print one table: `python -m benchmarks [--only cycle,many] [--quick] [--uvloop] [--json FILE]`."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import logging
import os
import platform
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks import table
from benchmarks.harness import QUICK, THOROUGH

MEASURES = (
    "cycle", "many", "footprint", "publish", "accounting",
    "durable", "flushed", "held_up", "startup",
    "calls", "chain", "growth", "makespan", "streamed", "loads",
    "model_call", "model_plan", "model_run",
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
    began, lines = time.monotonic(), []
    for name in given.only:
        print(f"{name} …", file=sys.stderr, flush=True)
        lines += loop_of(given.uvloop)(importlib.import_module(f"benchmarks.{name}").measure(effort))
    about = machine(given.uvloop)
    print(table.rendered(lines))
    took = time.monotonic() - began
    print(f"\n{about['python']} on {about['loop']}, {about['cores']} cores, load {about['load']}, {took:.0f} s")
    print(f"ratios are medians of up to {effort.rounds} rounds by wall time; (…) and cpu: processor time")
    if given.json:
        found = {"about": about, "lines": table.as_data(lines)}
        Path(given.json).write_text(json.dumps(found, indent=1, ensure_ascii=False), encoding="utf-8")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="What spar costs, beside limits and peers."
    )
    parser.add_argument("--only", type=names, default=MEASURES, help=f"comma separated: {', '.join(MEASURES)}")
    parser.add_argument("--quick", action="store_true", help="few short rounds: a minute, and rough")
    parser.add_argument("--uvloop", action="store_true", help="run everything on uvloop")
    parser.add_argument("--json", metavar="FILE", help="also write what was measured there")
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


def machine(uvloop: bool) -> dict[str, Any]:
    """Where it was measured, and with what."""
    found = {}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "not installed"
    load = ", ".join(f"{part:.1f}" for part in os.getloadavg())
    return {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "loop": "uvloop" if uvloop else "asyncio",
        "cores": os.cpu_count(),
        "load": load,
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "packages": found,
    }


if __name__ == "__main__":
    main()
