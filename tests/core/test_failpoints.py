"""Crash points do nothing, note that they were reached, or end the process at once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import spar
from spar.errors import ConfigError
from spar.failpoints import KILLED, arm, crashpoint

PROGRAM = """
import atexit, threading
from spar.failpoints import crashpoint

atexit.register(print, "in good order")
for _ in range(3):
    crashpoint("here")
    thread = threading.Thread(target=crashpoint, args=("there",))
    thread.start()
    thread.join()
print("through", flush=True)
"""


def run(**environ: str) -> tuple[int, str]:
    """Exit code and output of a process that passes "here" and, in a thread, "there" three times each."""
    root = str(Path(spar.__file__).parents[1])
    given = {key: value for key, value in os.environ.items() if not key.startswith("SPAR_")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**given, "PYTHONPATH": root, **environ},
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize("told", [{}, {"SPAR_CRASH": "here:4"}, {"SPAR_CRASH": "nowhere:1"}])
def test_crash_points_do_nothing_unless_they_are_told_to_and_reached(told: dict[str, str]) -> None:
    assert run(**told) == (0, "through\nin good order\n")


@pytest.mark.parametrize("where", ["here:1", "here:3", "there:2"])
def test_the_process_ends_at_the_nth_time_at_once(where: str) -> None:
    assert run(SPAR_CRASH=where) == (KILLED, "")


def test_what_was_reached_is_noted_up_to_the_last(tmp_path: Path) -> None:
    log = tmp_path / "log"

    assert run(SPAR_CRASH_LOG=str(log), SPAR_CRASH="there:2")[0] == KILLED
    assert log.read_text().split() == ["here", "there", "here", "there"]


@pytest.mark.parametrize("where", ["here", "here:", ":1", "here:0", "here:-1", "here:x"])
def test_a_crash_point_that_is_none_is_refused(where: str) -> None:
    with pytest.raises(ConfigError, match="expected label:n"):
        arm({"SPAR_CRASH": where})
    crashpoint("here")


def test_a_variable_that_means_nothing_breaks_no_program_that_imports_spar() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import spar.agent.agent"], env={**os.environ, "SPAR_CRASH": "foo"}, capture_output=True
    )
    assert (done.returncode, done.stderr) == (0, b"")
