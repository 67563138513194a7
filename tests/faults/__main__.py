"""The proof by killing: `python -m tests.faults`.

`accept [--short] [--former COMMIT] [--seed N] [--json FILE]`, `seeded [NAME …]`, `hunt WORKLOAD …`.
"""

from __future__ import annotations

import argparse
import sys

from tests.faults.accept import accept, hunt
from tests.faults.oracle import KINDS
from tests.faults.seeded import seeded
from tests.faults.workloads import POISONED, SWEPT


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description="the proof by killing")
    commands = parser.add_subparsers(dest="command", required=True)
    acceptance = commands.add_parser("accept", help="kill agents everywhere and print what came of it")
    acceptance.add_argument("--short", action="store_true", help="a sample, within four minutes")
    acceptance.add_argument("--former", metavar="COMMIT", default="", help="of which each first life is")
    acceptance.add_argument("--seed", type=int, default=1)
    acceptance.add_argument("--memory", choices=("sqlite", "postgres"), default="sqlite",
                            help="where they keep it; on a server a process that stands by takes over")  # fmt: skip
    acceptance.add_argument("--json", metavar="FILE", help="also write all of it there")
    acceptance.add_argument("--at-once", type=int, default=2, help="lives at the same time")
    bugs = commands.add_parser("seeded", help="see that known bugs are found")
    bugs.add_argument("names", nargs="*", help="only these")
    hunting = commands.add_parser("hunt", help="sweep until something is found (exit 1 if so)")
    hunting.add_argument("workloads", nargs="+", choices=[*SWEPT, *POISONED])
    hunting.add_argument("--finds", nargs="*", default=list(KINDS), choices=KINDS, help="only this counts")
    hunting.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    if given.command == "seeded":
        return seeded(given.names)
    if given.command == "hunt":
        return hunt(given.workloads, frozenset(given.finds), given.seed)
    return accept(is_short=given.short, seed=given.seed, path=given.json, at_once=given.at_once,
                  former=given.former, is_on_server=given.memory == "postgres")  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
