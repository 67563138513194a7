"""A file of runs, a line of JSON each, and the newest beside the one before: `python -m benchmarks.history [FILE]`.

A line of the newest run stands beside the same line of the last earlier run that has it and was made in the same way
(thoroughly or quickly, on the same event loop, by the same Python). What is compared is what the goals bound; a ratio
of processor time says more than microseconds, because the machine may have been slower that day.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.table import columns, shown

FILE = Path(__file__).parent / "results" / "history.jsonl"
#: By so much two runs on a shared machine differ without a cause.
NOISE = 0.1
#: What two runs must have in common.
SAME = ("python", "loop", "quick")

Run = dict[str, Any]


def append(path: Path, run: Run) -> None:
    """Add a run at the end of the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(run, ensure_ascii=False) + "\n")


def read(path: Path) -> list[Run]:
    """Return the runs, the oldest first. Raises: ValueError for a line that is none, with its number."""
    runs = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            run = json.loads(line)
            run["about"], run["lines"]
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path}:{number} is no run of the benchmark: {error}") from None
        runs.append(run)
    return runs


def compared(runs: Sequence[Run]) -> str:
    """Return a table of the newest run, each line beside the last run before that has it."""
    *earlier, newest = runs
    alike = _alike(earlier, newest)
    before: dict[tuple[Any, ...], tuple[str, Any]] = {}
    for run in alike:
        before |= {key_of(line): (run["about"]["at"], line) for line in run["lines"]}
    rows = [("row", "measure", "against", "before", "now", "change", "reached", "run of")]
    for line in newest["lines"]:
        at, old = before.get(key_of(line), ("", None))
        now, then = line["judged"], old and old["judged"]
        rows.append(
            (
                "" if line["row"] is None else str(line["row"]),
                line["measure"],
                line["against"],
                "–" if old is None else shown(then, line["unit"]),
                shown(now, line["unit"]),
                change(then, now),
                line["reached"]
                if old is None or old["reached"] == line["reached"]
                else f"{old['reached']} → {line['reached']}",
                at,
            )
        )
    return columns(rows)


def _alike(earlier: Sequence[Run], newest: Run) -> list[Run]:
    """Return the runs that were made in the same way as the newest."""
    return [run for run in earlier if all(run["about"].get(key) == newest["about"].get(key) for key in SAME)]


def machines(runs: Sequence[Run]) -> str:
    """Return what the least work cost in the newest run beside the last one of its kind; "" when that is not known."""
    *earlier, newest = runs
    known = [run["about"]["machine"] for run in _alike(earlier, newest) if "machine" in run["about"]]
    figures = newest["about"].get("machine")
    return machine.told(figures, known[-1] if known else None) if figures else ""


def key_of(line: dict[str, Any]) -> tuple[Any, ...]:
    return line["row"], line["measure"], line["against"]


def change(before: float | None, now: float | None) -> str:
    """Return by what the number changed, in per cent; with an exclamation mark where that is more than noise."""
    if not before or now is None:
        return ""
    part = now / before - 1
    return f"{part:+.0%}" + ("!" if abs(part) > NOISE else "")


def main() -> int:
    """Print the newest run beside the one before. Returns: 0, or 1 when the file holds fewer than two runs."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.history", description="The last run beside the one before."
    )
    parser.add_argument("file", nargs="?", type=Path, default=FILE, help=f"what --json wrote (usually {FILE.name})")
    given = parser.parse_args()
    try:
        runs = read(given.file)
    except (OSError, ValueError) as error:
        print(f"{error}; `make bench ARGS=--json` writes such a file", file=sys.stderr)
        return 1
    if len(runs) < 2:
        print(f"{given.file} holds {len(runs)} run: `make bench ARGS=--json` adds one", file=sys.stderr)
        return 1
    if machines(runs):
        print(f"{machines(runs)}\n")
    print(compared(runs))
    about = runs[-1]["about"]
    print(f"\nrun of {about['at']} at {about['commit']}, {about['python']} on {about['loop']}, load {about['load']}")
    print(f"! changed by more than {NOISE:.0%}; before: the last run of the same kind that has the line")
    return 0


if __name__ == "__main__":
    sys.exit(main())
