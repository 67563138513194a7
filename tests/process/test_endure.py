"""A good session is answered beside a failing one, a provider that is down, an approval that waits, and restarts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.process.conftest import PATIENCE

pytestmark = pytest.mark.process


def test_a_good_session_is_answered_whatever_the_others_meet() -> None:
    command = [sys.executable, "-m", "tests.simulation.endure", "--minutes", "0.1", "--files", "300", "--ratio", "inf"]

    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=PATIENCE)

    # Each answer was checked when it came; how long they took is for `make endure` on a quiet machine.
    assert done.returncode == 0, done.stderr
    assert "agent running" in done.stdout
    assert "approvals pending 0" not in done.stdout
