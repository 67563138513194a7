"""The benchmark still runs, says what it found in one table and says whether a goal was reached. No time is judged."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)


def test_the_cycle_is_measured_and_told_in_one_table(tmp_path: Path) -> None:
    kept = tmp_path / "bench.json"
    done = bench("--quick", "--only", "cycle,accounting", "--json", str(kept))
    assert done.returncode == 0, done.stderr
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in done.stdout.splitlines() if "|" in line]
    head, lines = rows[0], rows[2:]
    assert head[:2] == ["row", "measure"]
    assert head[-1] == "reached"
    assert {row[0] for row in lines} == {"1", "2", "16"}
    judged = [dict(zip(head, row, strict=True)) for row in lines if row[head.index("against")] == "raw anyio"]
    assert len(judged) == 2
    assert all(row["ratio"].endswith("x") and row["reached"] in ("then", "first", "no") for row in judged)
    found = json.loads(kept.read_text(encoding="utf-8"))
    assert len(found["lines"]) == len(lines)
    assert found["about"]["packages"]["spar-agent"] != "not installed"


def test_a_peer_that_is_not_installed_has_a_line_that_says_so(tmp_path: Path) -> None:
    """Hides a peer behind a folder that cannot be imported from, as on a machine that lacks it."""
    (tmp_path / "py_trees.py").write_text("raise ImportError('hidden', name='py_trees')\n")
    script = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from benchmarks import peers; print(peers.installed()[1])"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert "'py_trees tick': 'not installed (py_trees)'" in done.stdout, done.stderr


def test_a_measure_that_is_not_known_is_refused_with_those_that_are() -> None:
    done = bench("--only", "cycles")
    assert done.returncode == 2
    assert "no measure named cycles; known: cycle, many, footprint, publish, accounting" in done.stderr
