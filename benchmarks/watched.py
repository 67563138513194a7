"""How long after an event it stands on the screen of `spar top`, and what share of a core that takes.

A real service whose loop decides something ten events a time, ten events a second; a real pseudo-terminal. Of an event,
measured is the time from the decision that it tells until it was read from the terminal; beside it the same event read
by a client of our own, which draws nothing. The share is that of the process of the command, and of that client.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import psutil

from benchmarks.chatted import Terminal, parts, running
from benchmarks.harness import Effort
from benchmarks.journalled import folder
from benchmarks.table import Line, number

#: Milliseconds and percent of a core that are owed; seconds for which it is watched, and before that.
OWED_DELAY, OWED_SHARE, WATCHED, BEFORE = 300.0, 3.0, 60.0, 5.0
#: Seven of the events of a cycle are watched.
CONFIG: Final = """
[agent]
loop_interval = 0.7
plan_when_idle = true

[plan]
use = "marks:plan"

[service]
port = 0

[log]
level = "error"
"""
MARKS: Final = """
import time
from spar import Action

async def plan(perceptions):
    return Action(goal=f"mark{time.time_ns()}")
"""
CLIENT: Final = """
import pathlib, sys
from spar.client.client import Client
from spar.top.facts import WANTED
from spar.operations import agent

choice = agent.EventsChoice(type=[",".join(kind.__name__ for kind in WANTED)])
for event in Client(pathlib.Path("state")).events(agent.events, choice, 60.0):
    print(event["data"].get("noticed", ""), flush=True)
"""
_MARK: Final = re.compile(rb"mark(\d{19})")


async def measure(effort: Effort) -> list[Line]:
    return await asyncio.to_thread(_measured, 5.0 if effort.is_quick else WATCHED)


def _measured(seconds: float) -> list[Line]:
    with folder() as place:
        Path(place, "config.toml").write_text(CONFIG)
        Path(place, "marks.py").write_text(MARKS)
        with running(place):
            with Terminal(place, "top") as terminal:
                own, share = _watched(terminal.process.pid, terminal.read, seconds)
            client = subprocess.Popen([sys.executable, "-c", CLIENT], cwd=place, stdout=subprocess.PIPE)
            assert client.stdout is not None
            limit, least = _watched(client.pid, client.stdout.readline, seconds)
            client.kill()
            client.communicate()
    middle, late = parts(own, 0.95)
    beside = " / ".join(number(value) for value in parts(limit, 0.95))
    return [
        Line(None, "event in spar top, ten a second", f"{number(middle)} / {number(late)} ms", "read by a client",
             f"{beside} ms", late, "ms", owed=OWED_DELAY, is_limit=True),
        Line(None, "processor of spar top, ten events a second", f"{number(share)} %", "a client that draws nothing",
             f"{number(least)} %", share, "%", owed=OWED_SHARE, is_limit=True),
    ]  # fmt: skip


def _watched(pid: int, read: Callable[[], bytes], seconds: float) -> tuple[list[float], float]:
    """Return the delay of each mark that a process shows for the first time, and its percent of a core."""
    shown, delays = set[bytes](), list[float]()
    began, process = time.monotonic(), psutil.Process(pid)
    used = from_at = 0.0
    while (now := time.monotonic()) < began + BEFORE + seconds:
        marks = set(_MARK.findall(read())) - shown
        shown |= marks
        if now < began + BEFORE:
            used, from_at = sum(process.cpu_times()[:2]), now
        else:
            delays += [time.time() - int(mark) / 1e9 for mark in marks]
    share = 100 * (sum(process.cpu_times()[:2]) - used) / (time.monotonic() - from_at)
    return delays, share
