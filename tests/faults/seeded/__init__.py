"""Bugs that were put in on purpose, each of which must be found: a suite that stays green on them proves nothing.

Each is a patch whose head says what is wrong, how it is looked for and, of a hunt, what must be found:

    Calls that must not be repeated are made again after a crash.

    hunt: graph
    finds: doubled

`hunt` names workloads that are swept until something is found, `test` what pytest is given. A patch is applied to a
copy of the tree, never to the tree.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from tests.faults.lives import ROOT, environ

FOLDER = Path(__file__).parent
_COPIED = ("acting", "memory", "perception", "planning", "reflection", "spar", "tests")
_FILES = ("pyproject.toml", "config.toml")
_TESTS_FAILED, _WITHIN = 1, 300.0


class Bug(Struct, frozen=True):
    """`what` is wrong; how it is looked for, and which kinds of finding count."""

    path: Path
    what: str
    hunt: tuple[str, ...] = ()
    finds: tuple[str, ...] = ()
    test: tuple[str, ...] = ()

    @classmethod
    def read(cls, path: Path) -> Bug:
        """Raises: ValueError for a head that does not say what it must."""
        head = path.read_text().partition("\n--- ")[0]
        told = dict(re.findall(r"^(hunt|finds|test): (.+)$", head, re.M))
        bug = cls(
            path,
            head.partition("\n")[0],
            tuple(told.get("hunt", "").replace(", ", ",").split(",")) if "hunt" in told else (),
            tuple(told.get("finds", "").split()),
            tuple(told.get("test", "").split()),
        )
        if not bug.what or bool(bug.hunt) == bool(bug.test) or bool(bug.hunt) != bool(bug.finds):
            raise ValueError(f"{path.name}: its head must say what is wrong, and either `hunt` and `finds` or `test`")
        return bug

    @property
    def command(self) -> list[str]:
        if self.test:
            return [sys.executable, "-m", "pytest", "-q", "-x", *self.test]
        return [sys.executable, "-m", "tests.faults", "hunt", *self.hunt, "--finds", *self.finds]


class Caught(Struct, frozen=True):
    """Whether a bug was found, and the last words of who looked for it."""

    bug: Bug
    is_caught: bool
    said: str
    seconds: float


def bugs(names: Sequence[str] = ()) -> list[Bug]:
    """Those with these names, or all. Raises: LookupError for a name that is none."""
    found = {path.stem: Bug.read(path) for path in sorted(FOLDER.glob("*.patch"))}
    if unknown := [name for name in names if name not in found]:
        raise LookupError(f"no seeded bug {unknown[0]!r}; known: {', '.join(found)}")
    return [found[name] for name in names or found]


def look_for(bug: Bug) -> Caught:
    """Put it into a copy of the tree, with what is compiled of it, and look whether it is found there."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="spar-seeded-") as name:
        copy = Path(name)
        for each in _COPIED:
            shutil.copytree(ROOT / each, copy / each, ignore=shutil.ignore_patterns(".*"))
        for each in _FILES:
            shutil.copy(ROOT / each, copy / each)
        done = apply(bug, copy)
        if done.returncode == 0:
            try:
                done = subprocess.run(
                    bug.command,
                    cwd=copy,
                    env=environ(copy),
                    capture_output=True,
                    text=True,
                    check=False,
                    timeout=_WITHIN,
                )
            except subprocess.TimeoutExpired:
                return Caught(bug, False, f"not found within {_WITHIN:g} s", time.monotonic() - began)
            return Caught(bug, done.returncode == _TESTS_FAILED, done.stdout[-600:], time.monotonic() - began)
    return Caught(bug, False, f"it does not apply: {done.stderr[-300:]}", time.monotonic() - began)


def apply(bug: Bug, tree: Path) -> subprocess.CompletedProcess[str]:
    """Put it into a tree that is no repository; what git said of it."""
    command = ["git", "apply", "-C1", str(bug.path)]
    return subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)


def seeded(names: Sequence[str]) -> int:
    """Look for them one by one and say what came of it. Returns: 0 when all were found."""
    caught = []
    for bug in bugs(names):
        found = look_for(bug)
        caught.append(found)
        verdict = "caught" if found.is_caught else "NOT CAUGHT"
        sys.stdout.write(f"{verdict}  {found.seconds:5.1f} s  {bug.path.stem}: {bug.what}\n")
        if not found.is_caught:
            sys.stdout.write(f"{found.said}\n")
        sys.stdout.flush()
    sys.stdout.write(f"seeded caught {sum(each.is_caught for each in caught)}/{len(caught)}\n")
    return 0 if all(each.is_caught for each in caught) else 1
