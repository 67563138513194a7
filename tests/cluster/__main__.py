"""Print the counts and figures of several processes on one database: `python -m tests.cluster [--short] [--seed N]`."""

from __future__ import annotations

import argparse
import sys
import time

from msgspec.structs import replace

from tests.cluster.table import LONG, SHORT, Line, table, written


def main() -> int:
    """Return 0 when nothing was lost, doubled, silent or stale; figures that are still owed are told."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description="several processes on one database")
    parser.add_argument("--short", action="store_true", help="a sample, within some minutes")
    parser.add_argument("--seed", type=int, default=1)
    for name, long in (("kills", "1000"), ("stops", "400"), ("unanswered", "1000"), ("seeds", "10000")):
        parser.add_argument(f"--{name}", type=int, help=f"how many instead, for instance {long}")
    given = parser.parse_args()
    began = time.monotonic()

    def told(line: Line) -> None:
        sys.stderr.write(f"{time.monotonic() - began:5.0f} s  {line.name}: {line.value}\n")

    others = {name: number for name in ("kills", "stops", "unanswered", "seeds") if (number := getattr(given, name))}
    lines = table(replace(SHORT if given.short else LONG, **others), given.seed, told)
    sys.stdout.write(f"{written(lines)}\n")
    return 1 if any(line.is_wrong for line in lines) else 0


if __name__ == "__main__":
    sys.exit(main())
