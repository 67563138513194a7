"""Two trees are measured in turns by the same benchmarks, and told line by line."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import beside, history
from benchmarks.__main__ import chosen
from benchmarks.table import amount, as_data

ROOT = Path(__file__).parents[2]
#: Benchmarks of a small tree: they measure what its `spar.py` says, and note each run in a file beside the trees.
BENCHMARKS = """
import json, pathlib, sys, spar
tree = pathlib.Path(spar.__file__).parent
notes = pathlib.Path({notes!r})
earlier = notes.read_text().splitlines() if notes.exists() else []
notes.write_text("".join(f"{{line}}\\n" for line in [*earlier, f"{{spar.COST}} {{sys.argv[1:-2]}}"]))
if spar.COST == 0:
    sys.exit("it broke")
line = {{"row": 2, "measure": "cycle", "against": "raw", "by": "cpu", "unit": "x", "is_limit": True}}
run = {{"about": {{"tree": str(tree)}}, "lines": [{{**line, "judged": spar.COST * (1 + len(earlier) // 2)}}]}}
pathlib.Path(sys.argv[-1]).write_text(json.dumps(run))
"""


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "commit.gpgsign=false", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree of two commits and a change that is not committed: its cycle costs 2, 0 (it breaks) and 3."""
    root = tmp_path / "tree"
    (root / "benchmarks").mkdir(parents=True)
    (root / "benchmarks" / "__init__.py").touch()
    git(root, "init", "--quiet")
    for cost in (2, 0):
        (root / "spar.py").write_text(f"COST = {cost}\n")
        (root / "benchmarks" / "__main__.py").write_text("raise SystemExit('the commit has benchmarks of its own')\n")
        git(root, "add", ".")
        git(root, "commit", "--quiet", "-m", f"cost {cost}")
    (root / "spar.py").write_text("COST = 3\n")
    (root / "benchmarks" / "__main__.py").write_text(BENCHMARKS.format(notes=str(tmp_path / "notes")))
    return root


def test_the_trees_are_measured_in_turns_by_the_benchmarks_of_today(tree: Path, tmp_path: Path) -> None:
    commit = beside.commit_of(tree, "HEAD~1")

    text = beside.measure(tree, commit, ["--only", "2", "--quick"], 3)

    notes = (tmp_path / "notes").read_text().splitlines()
    assert notes == [f"{cost} ['--only', '2', '--quick']" for cost in (2, 3, 2, 3, 2, 3)]
    head, _, line = ([cell.strip() for cell in row.strip("|").split("|")] for row in text.splitlines())
    assert head == ["row", "measure", "against", "by", commit[:12], "this tree", "ratio", "range"]
    # turn by turn 2, 4, 6 and 3, 6, 9: the machine grows slower, and the ratio stays
    assert line == ["2", "cycle", "raw", "cpu", "4.00x", "6.00x", "1.50x", "1.50x–1.50x"]
    assert list((tree / "benchmarks" / "results").iterdir()) == []


def test_a_commit_that_cannot_be_measured_is_told_with_its_reason(tree: Path) -> None:
    with pytest.raises(RuntimeError, match=r"nothing could be measured in .*\n.*it broke"):
        beside.measure(tree, beside.commit_of(tree, "HEAD"), [], 1)

    assert list((tree / "benchmarks" / "results").iterdir()) == []


@pytest.mark.parametrize("name", ["no-such-commit", "--all", ""])
def test_an_unknown_commit_is_refused(tree: Path, name: str) -> None:
    with pytest.raises(ValueError, match="no commit named"):
        beside.commit_of(tree, name)


def test_an_unknown_commit_ends_the_command_before_anything_is_measured() -> None:
    command = [sys.executable, "-m", "benchmarks", "--beside", "no-such-commit", "--only", "2"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 1
    assert "no commit named 'no-such-commit'" in done.stderr
    assert done.stdout == ""


def test_a_line_that_one_tree_lacks_is_told_as_not_measured() -> None:
    def run(**lines: float) -> history.Run:
        return {"about": {}, "lines": as_data([amount(6, name, value, "ms") for name, value in lines.items()])}

    rows: list[Any] = beside.compared([run(a=1, b=2)] * 2, [run(a=3, c=4)] * 2, "abc").splitlines()[2:]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]

    assert [[row[1], *row[4:]] for row in cells] == [
        ["a", "1 ms", "3 ms", "3.00x", "3.00x–3.00x"],
        ["b", "2 ms", "not measured", "–", ""],
        ["c", "not measured", "4 ms", "–", ""],
    ]


# -- which rows


def test_rows_are_chosen_by_their_number_and_measures_by_their_name() -> None:
    only = chosen("2,9,flushed")
    lines = [amount(row, "m", 1.0, "ms") for row in (1, 2, 4, 5, 9, None)]

    assert only.measures == ["cycle", "flushed", "calls"]
    assert [line.row for line in only.of(lines)] == [2, 4, 5, 9, None]


@pytest.mark.parametrize(
    ("text", "message"),
    [("77", "no row 77; known: 1, 2, 3"), ("cycle,9,cycles", "no measure named cycles; known: cycle, many")],
)
def test_an_unknown_row_or_measure_is_refused_with_those_that_are_known(text: str, message: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=message):
        chosen(text)
