"""The seeded bugs are said in full, and one of them is put in and found; `python -m tests.faults seeded` does all."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.faults.lives import ROOT
from tests.faults.oracle import KINDS
from tests.faults.seeded import Bug, apply, bugs, look_for
from tests.faults.workloads import WORKLOADS

pytestmark = pytest.mark.process


def test_there_are_enough_of_them() -> None:
    assert len(bugs()) >= 10


@pytest.mark.parametrize("bug", bugs(), ids=lambda bug: bug.path.stem)
def test_it_applies_to_the_tree_and_names_what_there_is(bug: Bug, tmp_path: Path) -> None:
    for line in bug.path.read_text().splitlines():
        if line.startswith("--- a/"):
            target = tmp_path / line.removeprefix("--- a/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / line.removeprefix("--- a/"), target)
    done = apply(bug, tmp_path)

    assert done.returncode == 0, done.stderr
    assert set(bug.hunt) <= WORKLOADS.keys()
    assert set(bug.finds) <= set(KINDS)
    assert all((ROOT / path).exists() for path in bug.test)


def test_one_that_is_put_in_is_found() -> None:
    [bug] = bugs(["chain-begins-anew"])

    assert look_for(bug).is_caught


def test_a_patch_that_does_not_apply_is_not_caught(tmp_path: Path) -> None:
    path = tmp_path / "stale.patch"
    path.write_text("It is of another time.\n\ntest: tests/core/test_ids.py\n\n"
                    "--- a/spar/clock.py\n+++ b/spar/clock.py\n"
                    "@@ -1,1 +1,1 @@\n-what is not there\n+anything\n")  # fmt: skip

    assert not look_for(Bug.read(path)).is_caught


@pytest.mark.parametrize("head", ["", "Something.\n", "Something.\n\nhunt: rules\n", "Something.\n\nfinds: lost\n"])
def test_a_head_that_does_not_say_how_it_is_looked_for_is_refused(head: str, tmp_path: Path) -> None:
    path = tmp_path / "headless.patch"
    path.write_text(f"{head}\n--- a/x\n")

    with pytest.raises(ValueError, match="must say what is wrong"):
        Bug.read(path)
