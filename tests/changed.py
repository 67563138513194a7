"""Print the tests of what has changed since the last commit: `python -m tests.changed [FOLDER...]`, for `make check`.

Folders that are named are run elsewhere: what stands in them is left out.

A changed test is its own; for a changed module these are the tests of its folder, which stand in the same place below
`tests` (`spar/loop/cycle.py` has `tests/loop`, `acting/run/run.py` has `tests/acting/run`).
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]


def changed() -> list[str]:
    """Return the files that differ from the last commit, and those that git does not know yet, from the top folder.

    Raises: subprocess.CalledProcessError where there is no git or no commit.
    """
    asked = (["diff", "--name-only", "HEAD"], ["ls-files", "--others", "--exclude-standard"])
    return [
        line for words in asked for line in subprocess.check_output(["git", *words], cwd=ROOT, text=True).splitlines()
    ]


def select_tests(files: Iterable[str], root: Path = ROOT, *, without: Iterable[str] = ()) -> list[str]:
    """Return the test files and folders that concern these files, each once, in order; none that stands in one of
    `without`."""
    found = {place for file in files if (place := _place(Path(file), root)) is not None}
    elsewhere = set(map(Path, without))
    covered = found | elsewhere
    return sorted(str(place) for place in found - elsewhere if covered.isdisjoint(place.parents))


def _place(file: Path, root: Path) -> Path | None:
    if file.suffix != ".py" or not (root / file).exists():
        return None
    if file.parts[0] == "tests":
        return file if file.name.startswith("test_") else None
    folder = Path("tests", *file.parent.parts[1 if file.parts[0] == "spar" else 0 :])
    while folder != Path("tests") and not (root / folder).is_dir():
        folder = folder.parent
    if folder == Path("tests"):
        return Path("tests/core") if file.parts[0] == "spar" else None
    return folder


if __name__ == "__main__":
    sys.stdout.write("\n".join(select_tests(changed(), without=sys.argv[1:])) + "\n")
