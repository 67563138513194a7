"""Measure and print one table: `python -m benchmarks [--only cycle,9] [--quick] [--uvloop] [--json [FILE]]`.

`--beside COMMIT` measures in turns with another commit instead (`benchmarks.beside`).
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import logging
import sys
import time
import traceback
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import beside, duties, history, machine, table
from benchmarks.harness import QUICK, THOROUGH, Effort
from benchmarks.table import Line

#: The measures, each with the rows of the goals that it measures.
MEASURES: dict[str, tuple[int, ...]] = {
    "cycle": (1, 2), "many": (7,), "footprint": (8,), "publish": (14, 15), "accounting": (16,),
    "durable": (3,), "flushed": (4, 5), "held_up": (6,), "startup": (),
    "calls": (9,), "chain": (10,), "growth": (), "makespan": (11, 12), "streamed": (13,), "loads": (), "kept": (),
    "model_call": (), "model_plan": (), "model_run": (), "firsts": (), "sessions": (), "prompts": (), "chatted": (),
    "watched": (), "console": (), "traced": (40,),
}  # fmt: skip
PACKAGES = (
    "spar-agent", "aiosqlite", "anyio", "apache-hamilton", "apsw", "blinker", "dbos", "langgraph",
    "langgraph-checkpoint-sqlite", "openai-agents", "prometheus-client", "py-trees", "pydantic-ai-slim", "pyee",
    "uvloop",
)  # fmt: skip
ROOT = Path(__file__).parents[1]


def main() -> None:
    given = arguments()
    if given.beside:
        sys.exit(_beside(given))
    logging.disable(logging.CRITICAL)
    effort = QUICK if given.quick else THOROUGH
    began = time.monotonic()
    figures = machine.figures()
    print(f"{machine.told(figures)}\n", flush=True)
    lines, broken = measured(given.only.measures, lambda name: _measure(name, effort), loop_of(given.uvloop))
    lines = given.only.of(lines)
    about = machine.about(PACKAGES, figures, uvloop=given.uvloop, quick=given.quick)
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


def _beside(given: argparse.Namespace) -> str | None:
    """Print this tree beside another commit. Returns: the reason why it could not be measured."""
    options = [f"--{name}" for name in ("quick", "uvloop") if getattr(given, name)]
    try:
        commit = beside.commit_of(ROOT, given.beside)
        print(f"{machine.told(machine.figures())}\n", flush=True)
        print(beside.measure(ROOT, commit, ["--only", given.only.text, *options], given.turns))
    except (ValueError, RuntimeError) as error:
        return str(error)
    print(f"\nmedians of {given.turns} turns; ratio: of this tree to the commit within a turn; by: what is judged")
    return None


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
    parser.add_argument(
        "--only", type=chosen, default=",".join(MEASURES), help=f"comma separated, or numbers of rows: {known()}"
    )
    parser.add_argument("--quick", action="store_true", help="few short rounds: a minute, and rough")
    parser.add_argument("--uvloop", action="store_true", help="run everything on uvloop")
    parser.add_argument(
        "--json", metavar="FILE", type=Path, nargs="?", const=history.FILE, help="add what was measured as a line there"
    )
    parser.add_argument("--beside", metavar="COMMIT", help="measure in turns with another commit, and print both")
    parser.add_argument("--turns", metavar="N", type=turns, default=5, help="turns of --beside (5)")
    given = parser.parse_args()
    if given.beside and given.json:
        parser.error("--json keeps a run of this tree; --beside prints two trees and keeps nothing")
    return given


@dataclass(frozen=True)
class Chosen:
    """Measures to run. `rows` are the numbers of the rows wanted of measures that were not chosen by name."""

    text: str
    named: frozenset[str]
    rows: frozenset[int]

    @property
    def measures(self) -> list[str]:
        return [name for name, rows in MEASURES.items() if name in self.named or self.rows.intersection(rows)]

    def of(self, lines: Iterable[Line]) -> list[Line]:
        """Return the lines that were chosen."""
        unwanted = {row for name in self.measures if name not in self.named for row in MEASURES[name]} - self.rows
        return [line for line in lines if line.row not in unwanted]


def chosen(text: str) -> Chosen:
    """Return what a list of measures and rows chooses. Raises: argparse.ArgumentTypeError."""
    words = text.split(",")
    rows = {word: int(word) for word in words if word.isdecimal()}
    numbers = {row for rows_of in MEASURES.values() for row in rows_of}
    if unknown := [word for word, row in rows.items() if row not in numbers]:
        known_rows = ", ".join(map(str, sorted(numbers)))
        raise argparse.ArgumentTypeError(f"no row {', '.join(unknown)}; known: {known_rows}")
    if unknown := [word for word in words if word not in rows and word not in MEASURES]:
        raise argparse.ArgumentTypeError(f"no measure named {', '.join(unknown)}; known: {known()}")
    return Chosen(text, frozenset(words) - frozenset(rows), frozenset(rows.values()))


def known() -> str:
    return ", ".join(MEASURES)


def turns(text: str) -> int:
    """Return a number of turns. Raises: argparse.ArgumentTypeError."""
    if not text.isdecimal() or not 1 <= int(text) <= 1_000:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of turns from 1 to 1000")
    return int(text)


def loop_of(uvloop: bool) -> Any:
    """What runs a coroutine to its end."""
    if not uvloop:
        return asyncio.run
    import uvloop as module

    return module.run


if __name__ == "__main__":
    main()
