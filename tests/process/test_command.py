"""A running service whose rule acts on the output of a program: killed with -9 while one hangs, and gone on."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.process

MARK = f"96.{os.getpid()}"
CONFIG = """
[agent]
loop_interval = "off"

[[sensors]]
use = "command"
name = "readings"
options = { argv = ["./read.sh"], every = 0.1, output = "json", tell = "changed", variables = { DB_PASSWORD = { env = "DB_PASSWORD" } } }

[[sensors]]
use = "command"
name = "stubborn"
options = { argv = ["./stubborn.sh"], every = 0.1, timeout = 25 }

[[sensors]]
use = "command"
name = "broken"
max_failures = 2
options = { argv = ["ls", "no-such-file"], every = 0.05 }

[perception.dedup]
enabled = false

[[rules]]
name = "act on a reading"
when = { source = "readings", attributes = { severity = "high" } }
calls = [{ tool = "act", params = { text = "{content}" } }]

[[tools]]
use = "mine:act"
"""  # noqa: E501
MINE = """
from spar import tool

@tool(effect="read", safe_with_untrusted=True)
def act(text: str) -> str:
    "Act."
    with open("acted", "a") as file:
        file.write(f"{text}\\n")
    return text
"""
READ = """#!/bin/sh
while read -r line; do echo "$line"; done < readings
echo "{\\"text\\": \\"with $DB_PASSWORD\\", \\"severity\\": \\"high\\"}"
"""
STUBBORN = f"""#!/bin/sh
trap '' TERM INT HUP
setsid sh -c 'trap "" TERM INT HUP; while :; do sleep {MARK}; done' &
while :; do sleep {MARK}; done
"""


def alive() -> int:
    """Return how many processes of the stubborn program there are."""
    count = 0
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            count += MARK.encode() in file.read_bytes()
        except OSError:
            pass  # it ended meanwhile
    return count


async def test_a_rule_acts_on_what_a_program_says_and_goes_on_after_a_kill(
    spar: Any, start: Callable[..., Any]
) -> None:
    spar.write(CONFIG)
    (spar.folder / "mine.py").write_text(MINE)
    for name, text in (("read.sh", READ), ("stubborn.sh", STUBBORN)):
        (spar.folder / name).write_text(text)
        (spar.folder / name).chmod(0o755)
    readings, acted = spar.workspace / "readings", spar.folder / "acted"
    spar.workspace.mkdir()
    readings.write_text('{"text": "calm", "severity": "low"}\n{"text": "disk is full", "severity": "high"}\n')
    environ = {"DB_PASSWORD": "hunter2-canary"}

    def has_acted(*texts: str) -> bool:
        return set(texts) <= set(acted.read_text().splitlines())

    def state_of(service: Any, name: str) -> Any:
        return service.agent["modules"]["sense"]["sensors"][name]

    first = start(environ=environ).ready()
    spar.until(lambda: has_acted("disk is full", "with ***"), "the action")
    spar.until(lambda: state_of(first, "broken")["state"] == "quarantined", "the quarantine")
    error = state_of(first, "broken")["last_error"]
    assert "'ls' ended with exit code 2" in error
    assert "no-such-file" in error
    assert state_of(first, "readings")["failures"] == 0
    spar.until(lambda: alive() >= 2, "the stubborn program")
    first.kill()
    spar.until(lambda: alive() == 0, "the end of what it had started")

    with readings.open("a") as file:
        file.write('{"text": "memory is full", "severity": "high"}\n')
    second = start(environ=environ).ready()
    spar.until(lambda: has_acted("memory is full"), "the action after the kill")
    spar.until(lambda: alive() >= 2, "the stubborn program again")
    assert second.stop() == 0
    assert alive() == 0

    told = acted.read_text().splitlines()
    assert "calm" not in told
    assert told.count("memory is full") == 1
    assert told.count("disk is full") <= 2  # twice if its cycle was cut off
