"""Play many drawn histories of sessions: `python -m tests.decisions 100000` (`make histories`)."""

from __future__ import annotations

import sys

from tests.decisions.test_histories import HISTORIES, play


def main() -> None:
    """Play as many histories as the command line says, those of the gate first, and say how many passed."""
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 20 * HISTORIES
    for seed in range(number):
        try:
            play(seed)
        except BaseException:
            sys.stderr.write(f"history {seed} failed:\n")
            raise
    sys.stdout.write(f"{number:,} histories: all work was in one place until done, each message finished once\n")


if __name__ == "__main__":
    main()
