"""`spar init --profile`: what it writes is accepted by `spar config check`, and `spar run` runs it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.process


@pytest.mark.parametrize("profile", ["watch", "assistant", "bare"])
def test_a_profile_is_written_checked_and_run(profile: str, spar: Any, start: Callable[..., Any]) -> None:
    spar.config.unlink()
    written, again = spar("init", "--profile", profile), spar("init", "--profile", profile)
    checked = spar("config", "check")

    assert (written.code, again.code, checked.code) == (0, 73, 0), checked
    assert "next: spar config check, then: spar run" in written.out
    start().ready()
    if profile != "assistant":  # that one would ask a model
        assert spar("send", "note: buy milk").out == "Noted: buy milk\n"
