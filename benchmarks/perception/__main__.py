"""Measure and print one table: `python -m benchmarks.perception [throughput …] --data FOLDER [--json FILE]`."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
from pathlib import Path

from benchmarks.perception.quality import MissingDataError, Quality, as_data, rendered

#: Modules of this folder with `measure(data: Path) -> list[Quality]`, in the order of the table.
MEASURES = ("grouping", "anomalies", "drawn", "distinct", "heard", "intents", "throughput", "flood", "incident")


def main(arguments: list[str] | None = None) -> None:
    given = parsed(arguments)
    lines: list[Quality] = []
    for name in given.measures or given.only:
        began = time.monotonic()
        print(f"{name} …", file=sys.stderr, end=" ", flush=True)
        try:
            lines += importlib.import_module(f"benchmarks.perception.{name}").measure(given.data)
        except MissingDataError as error:
            lines.append(Quality(name, remark=f"not measured: {error}"))
        print(f"{time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    print(rendered(lines))
    if given.json:
        given.json.write_text(json.dumps(as_data(lines), indent=1) + "\n")


def parsed(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.perception", description="How well spar perceives.")
    parser.add_argument("measures", nargs="*", metavar="MEASURE", help=f"some of {','.join(MEASURES)}; none: all")
    parser.add_argument(
        "--data",
        type=Path,
        required=True,
        help="the folder that holds loghub/, NAB/, oos-eval/, task-specific-datasets/ (public clones)",
    )
    parser.add_argument("--only", type=_names, default=MEASURES, help=f"some of {','.join(MEASURES)}")
    parser.add_argument("--json", type=Path, help="write the lines to this file too")
    given = parser.parse_args(arguments)
    if unknown := [name for name in given.measures if name not in MEASURES]:
        parser.error(f"no measure named {unknown[0]!r}; known: {', '.join(MEASURES)}")
    return given


def _names(text: str) -> list[str]:
    names = text.split(",")
    if unknown := [name for name in names if name not in MEASURES]:
        raise argparse.ArgumentTypeError(f"no measure named {unknown[0]!r}; known: {', '.join(MEASURES)}")
    return names


if __name__ == "__main__":
    main()
