"""A good session is answered beside a failing one, a provider that is down, an approval that waits, and restarts."""

from __future__ import annotations

import pytest

from tests.simulation.endure import endured

pytestmark = pytest.mark.process


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # httpcore keeps refused sockets open
def test_a_good_session_is_answered_whatever_the_others_meet() -> None:
    # Each answer was checked when it came; how long they took is for `make endure` on a quiet machine.
    _, _, agent = endured(0.05, 300)

    assert agent["state"] == "running"
    assert agent["approvals"]["pending"] > 0
