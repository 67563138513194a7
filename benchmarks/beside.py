"""Lines of the benchmark in turns with another commit: `python -m benchmarks --beside COMMIT` (`make bench`).

The other commit is brought into a folder beside the results, hence onto the same disk, with today's benchmarks in it:
both trees do the same work. The same interpreter measures the other commit, this tree, the other commit, this tree, and
so on, a process each. What is told of a line is the median on each side, and how many times the other commit's value
this tree's is: the median over the turns of the ratio within a turn, so that a machine that grows slower meanwhile
does not count. The versions of the libraries and the entry points are those of the interpreter's environment.
"""

from __future__ import annotations

import io
import os
import shutil
import statistics
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import history
from benchmarks.table import columns, shown

HEAD = ("row", "measure", "against", "by", "COMMIT", "this tree", "ratio", "range")


def commit_of(root: Path, name: str) -> str:
    """Return the commit of a name. Raises: ValueError."""
    command = ["git", "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError(f"no commit named {name!r} in {root}; `git log --oneline` lists them")
    return done.stdout.strip()


def bring(root: Path, commit: str, folder: Path) -> None:
    """Write the files of a commit into a folder, with today's benchmarks in the place of its own."""
    done = subprocess.run(["git", "archive", "--format=tar", commit], cwd=root, capture_output=True, check=True)
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")
    shutil.rmtree(folder / "benchmarks", ignore_errors=True)
    unwanted = shutil.ignore_patterns(".venv", "results", "__pycache__")
    shutil.copytree(root / "benchmarks", folder / "benchmarks", ignore=unwanted)


def turns(root: Path, other: Path, arguments: Sequence[str], number: int) -> tuple[list[history.Run], ...]:
    """Measure the other tree and this one in turns. Returns: the runs of each. Raises: RuntimeError."""
    runs: tuple[list[history.Run], ...] = ([], [])
    for turn in range(number):
        for tree, own in zip((other, root), runs, strict=True):
            print(f"turn {turn + 1} of {number}: {'this tree' if tree == root else 'the other commit'} …",
                  file=sys.stderr, flush=True)  # fmt: skip
            own.append(_measured(tree, arguments))
    return runs


def _measured(tree: Path, arguments: Sequence[str]) -> history.Run:
    results = tree / "benchmarks" / "results"
    results.mkdir(parents=True, exist_ok=True)
    file = results / f"beside-{os.getpid()}.jsonl"
    command = [sys.executable, "-m", "benchmarks", *arguments, "--json", str(file)]
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    try:
        done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
        runs = history.read(file) if file.exists() else []
    finally:
        file.unlink(missing_ok=True)
    if not runs or not runs[-1]["lines"]:
        raise RuntimeError(f"nothing could be measured in {tree} (exit {done.returncode}):\n{done.stderr[-2_000:]}")
    if (measured := runs[-1]["about"]["tree"]) != str(tree.resolve()):
        raise RuntimeError(f"{tree} should be measured, but the interpreter imports spar from {measured}")
    return runs[-1]


def compared(others: Sequence[history.Run], own: Sequence[history.Run], commit: str) -> str:
    """Return a table of the lines beside a limit and of the amounts, this tree's beside the other commit's."""
    values = [[{history.key_of(line): line for line in run["lines"]} for run in runs] for runs in (others, own)]
    lines: dict[Any, Any] = {key: line for runs in values for run in runs for key, line in run.items()}
    rows = [tuple(commit[:12] if cell == "COMMIT" else cell for cell in HEAD)]
    for key, line in lines.items():
        if line["unit"] == "x" and not line["is_limit"]:
            continue  # a peer is the same on both sides: the line beside the limit says it with less noise
        before, now = ([run.get(key, {}).get("judged") for run in runs] for runs in values)
        ratios = [new / old for old, new in zip(before, now, strict=True) if old and new is not None]
        rows.append((
            "" if line["row"] is None else str(line["row"]), line["measure"], line["against"], line["by"],
            _median(before, line["unit"]), _median(now, line["unit"]),
            shown(statistics.median(ratios)) if ratios else "–",
            f"{shown(min(ratios))}–{shown(max(ratios))}" if ratios else "",
        ))  # fmt: skip
    return columns(rows)


def _median(values: Sequence[float | None], unit: str) -> str:
    seen = [value for value in values if value is not None]
    return shown(statistics.median(seen), unit) if seen else "not measured"


def measure(root: Path, commit: str, arguments: Sequence[str], number: int) -> str:
    """Return the table of this tree beside a commit. Raises: RuntimeError."""
    folder = root / "benchmarks" / "results" / f"tree-{commit[:12]}-{os.getpid()}"
    try:
        bring(root, commit, folder)
        others, own = turns(root, folder, arguments, number)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return compared(others, own, commit)
