"""Parts of a repair: a sensor that sees whether a process lives, and a tool that starts it again, once you say so."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from spar import Perception, tool
from spar.protocols import Home, SensorContext

#: Processes that outlive the call that started them.
STARTED: list[subprocess.Popen[bytes]] = []


def process_of(pid_file: Path) -> int | None:
    """Return the process that a file names, None when it does not live."""
    try:
        number = int(pid_file.read_text())
        os.kill(number, 0)
        state = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, ValueError):
        return None
    return None if state == "Z" else number  # dead, and nobody has asked for its end yet


class ProcessSensor:
    """Tells when the process of a pid file is down, and when it is up again. `every` in seconds."""

    def __init__(self, pid_file: str, home: Annotated[Home, None], *, every: float = 5.0) -> None:
        self.every = every
        self._pid_file = Path(home.config, pid_file)
        self._was_up: bool | None = None

    def open(self, context: SensorContext) -> None:
        self._was_up = None

    def poll(self) -> Sequence[Perception]:
        is_up, was_up = process_of(self._pid_file) is not None, self._was_up
        self._was_up = is_up
        if is_up == was_up or (was_up is None and is_up):  # nothing new, or well from the beginning
            return []
        name = self._pid_file.stem
        about = {"name": name, "pid_file": str(self._pid_file)}
        words = f"{name} is {'up again' if is_up else 'down'}"
        return [Perception(words, kind="process.up" if is_up else "process.down", attributes=about)]

    def close(self) -> None:
        return None


@tool(effect="once", approval="ask")
async def restart(name: str, pid_file: str) -> str:
    """Start a process again, and look whether it lives a moment later."""
    program = Path(pid_file).with_name(f"{name}.py")
    command = [sys.executable, str(program)]
    begun = await asyncio.to_thread(subprocess.Popen, command, cwd=program.parent, start_new_session=True)
    STARTED.append(begun)
    for _ in range(100):
        await asyncio.sleep(0.1)
        if (number := process_of(Path(pid_file))) is not None:
            return f"{name} runs as process {number}"
    raise RuntimeError(f"{name} was started and does not live")
