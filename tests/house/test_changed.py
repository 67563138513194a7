from __future__ import annotations

from pathlib import Path

import pytest

from tests.changed import select_tests


@pytest.mark.parametrize(
    ("changed", "tests"),
    [
        (["spar/loop/core.py", "spar/loop/cycle.py"], ["tests/loop"]),
        (["acting/run/batch.py"], ["tests/acting/run"]),
        (["acting/executor.py", "acting/run/batch.py"], ["tests/acting"]),  # the folder holds the other one
        (["spar/types/cycle.py"], ["tests/core"]),
        (["tests/loop/test_loop.py", "tests/loop/no_test.py"], ["tests/loop/test_loop.py"]),
        (["README.md", "config.toml", "spar/loop/gone.py"], []),
    ],
)
def test_what_changed_is_tested_by_what_stands_in_its_place(
    changed: list[str], tests: list[str], tmp_path: Path
) -> None:
    for file in (*changed, "tests/loop/test_loop.py"):
        if "gone" not in file:
            (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / file).touch()
    for folder in ("loop", "acting/run", "core"):
        (tmp_path / "tests" / folder).mkdir(parents=True, exist_ok=True)

    assert select_tests(changed, tmp_path) == tests


def test_folders_that_are_run_elsewhere_are_left_out(tmp_path: Path) -> None:
    changed = ["spar/loop/cycle.py", "acting/run/batch.py", "tests/loop/test_loop.py"]
    for file in changed:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    (tmp_path / "tests/acting/run").mkdir(parents=True)

    assert select_tests(changed, tmp_path, without=["tests/loop", "tests/core"]) == ["tests/acting/run"]
