"""The long forms: `python -m tests.storage [power|sweeps|syscalls|damage …]`, all of them when none is named.

Prints a line for each class of fault and, with `--json PATH`, writes the figures. Ends with 1 if a promise was broken.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tests.storage import damage, power, sweeps, syscalls
from tests.storage.tally import HEAD, Tally

LONG: dict[str, Callable[[], Iterable[Tally]]] = {
    "power": power.long,
    "sweeps": sweeps.long,
    "syscalls": syscalls.long,
    "damage": damage.long,
}


def say(line: object) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def accept(parts: Iterable[str] = LONG) -> dict[str, dict[str, Any]]:
    """Run long forms, print their lines, and return their figures by the class of fault."""
    figures: dict[str, dict[str, Any]] = {}
    say(HEAD)
    for part in parts:
        began = time.monotonic()
        for tally in LONG[part]():
            say(tally)
            figures[tally.name] = tally.as_dict()
        say(f"# {part}: {time.monotonic() - began:.0f} s")
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.storage", description="storage faults, the long forms")
    parser.add_argument("parts", nargs="*", choices=[[], *LONG], help="which of them; all when none is named")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    given = parser.parse_args()
    figures = accept(given.parts or LONG)
    if given.json:
        given.json.write_text(json.dumps(figures, indent=1))
    return int(any(each["survived"] < each["tried"] for each in figures.values() if each["is_owed"]))


if __name__ == "__main__":
    sys.exit(main())
