"""What `spar status` says of tools, whatever their snapshots are."""

from __future__ import annotations

from typing import Any

import pytest

from spar.cli.blocks import harmless
from spar.cli.commands.status import tool_state

SANDBOX = {"asked": "auto", "level": 2, "refused": 11, "probes": 11, "why": "there is\nno more"}
SERVER = {"server": "git", "state": "connected", "error": "", "tools": ["git__log"], "off": {}}


@pytest.mark.parametrize(
    ("snapshot", "told"),
    [
        ({"sandbox": SANDBOX}, "sandbox level 2, 11 of 11 probes refused"),
        ({"sandbox": {**SANDBOX, "level": 0}}, "sandbox level 0, 11 of 11 probes refused; there is no more"),
        ({"sandbox": {**SANDBOX, "asked": 0}}, "sandbox level 0, as configured"),
        (
            {"sandbox": {**SANDBOX, "level": 1, "asked": 2}},
            "off: sandbox level 2 is asked for, this machine offers level 1; there is no more",
        ),
        ({"sandbox": {"asked": "auto", "level": None}}, ""),
        (SERVER, "connected, 1 tools"),
        ({**SERVER, "off": {"git__push": "it\x1b changed"}}, "connected, 1 tools, git__push is off: it\\x1b changed"),
        ({**SERVER, "state": "down", "error": "no route"}, "down: no route"),
        ({"sandbox": 3, "state": "odd", "tools": 4}, ""),
        ("a stranger's", ""),
        (None, ""),
    ],
)
def test_a_tool_is_told_in_a_line_or_not_at_all(snapshot: Any, told: str) -> None:
    assert harmless(tool_state(snapshot)) == told
