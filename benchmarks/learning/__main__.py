"""Measure and print one table: `python -m benchmarks.learning --data FOLDER [--only alerts,lake] [--write]`.

With `--json FILE` all figures are kept there, and those of measures that are not asked for this time are taken from it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.learning import memories
from benchmarks.learning.gain import Gain, rendered
from benchmarks.learning.measures import MEASURES, Measure, Seen
from benchmarks.learning.page import PAGE, curves_of, written
from benchmarks.perception.quality import MissingDataError

#: In the order of the table.
ALL: dict[str, Measure] = {
    "recall": memories.words,
    "vectors": memories.vectors,
    "large": memories.large,
    **MEASURES,
    "month": memories.month,
}


def main(arguments: list[str] | None = None) -> None:
    given = parsed(arguments)
    kept: dict[str, Any] = json.loads(given.json.read_text()) if given.json and given.json.exists() else {}
    for name in given.only:
        began, seen = time.monotonic(), Seen()
        print(f"{name} ", file=sys.stderr, end="", flush=True)
        try:
            lines = ALL[name](given.data, seen)
        except MissingDataError as error:
            lines = [Gain(name, remark=f"not measured: {error}")]
        kept[name] = {"lines": [vars(line) for line in lines], "curves": curves_of(seen)}
        if given.json:
            given.json.write_text(json.dumps(kept) + "\n")
        print(f" {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    every = [kept[name] for name in ALL if name in kept]
    lines = [Gain(**line) for each in every for line in each["lines"]]
    print(rendered(lines))
    if given.write:
        written(lines, {title: curves for each in every for title, curves in each["curves"].items()}, given.write)


def parsed(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning", description="What learning brings.")
    parser.add_argument(
        "--data",
        type=Path,
        required=True,
        help="the folder that holds LoCoMo/, REALTALK/, BFCL/, oos-eval/ (public)",
    )
    parser.add_argument("--only", type=_names, default=list(ALL), help=f"some of {','.join(ALL)}")
    parser.add_argument("--json", type=Path, help="the file that keeps the figures")
    parser.add_argument("--write", type=Path, nargs="?", const=PAGE, help="write table and plot into docs/learning.md")
    return parser.parse_args(arguments)


def _names(text: str) -> list[str]:
    names = text.split(",")
    if unknown := [name for name in names if name not in ALL]:
        raise argparse.ArgumentTypeError(f"no measure named {unknown[0]!r}; known: {', '.join(ALL)}")
    return names


if __name__ == "__main__":
    main()
