"""Print the counts and figures of several processes on one database: `python -m tests.cluster [--short] [--seed N]`."""

from __future__ import annotations

import argparse
import sys
import time

from tests.cluster.table import LONG, SHORT, Line, table, written


def main() -> int:
    """Return 0 when nothing was lost, doubled, silent or stale; figures that are still owed are told."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description="several processes on one database")
    parser.add_argument("--short", action="store_true", help="a sample, within some minutes")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    began = time.monotonic()

    def told(line: Line) -> None:
        sys.stderr.write(f"{time.monotonic() - began:5.0f} s  {line.name}: {line.value}\n")

    lines = table(SHORT if given.short else LONG, given.seed, told)
    sys.stdout.write(f"{written(lines)}\n")
    return 1 if any(line.is_wrong for line in lines) else 0


if __name__ == "__main__":
    sys.exit(main())
