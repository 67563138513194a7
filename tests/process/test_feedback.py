"""An owner says that a run went badly; the service is killed at once, and knows it afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.process.conftest import Service, Spar

pytestmark = pytest.mark.process

CONFIG = """
[agent]
loop_interval = "off"

[[tools]]
use = "note"

[[rules]]
name = "note it"
when = { kind = "message" }
answer = "noted"
[[rules.calls]]
tool = "note"
params = { text = "{content}" }

[log]
format = "json"
"""


def test_a_word_on_a_run_survives_a_kill_and_changes_what_is_remembered(
    spar: Spar, start: Callable[..., Service]
) -> None:
    spar.write(CONFIG)
    first = start().ready()
    run_id = spar("send", "--no-wait", "the disk is full").out.strip()
    assert spar("runs", "wait", run_id).code == 0
    [before] = remembered(spar)

    said = spar("runs", "feedback", run_id, "bad", "it was the other disk")
    first.kill()
    start().ready()

    assert (said.code, "bad" in said.out) == (0, True)
    [after] = remembered(spar)
    assert (before["success"], after["success"]) == (True, False)
    assert "it was the other disk" in after["cause"]
    assert spar("runs", "feedback", "none", "good").code != 0
    assert spar("runs", "feedback", run_id, "maybe").code == 64


def remembered(spar: Spar) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = spar("--json", "memory", "search", "disk").json
    return found
