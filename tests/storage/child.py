"""A real process beside the test, which says lines and never outlives its block."""

from __future__ import annotations

import asyncio
import select
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.process.template import ROOT, Forked, clean_environ

#: Seconds that anything may take on a loaded machine before a test says that it never came.
PATIENCE = 30.0
PRELUDE = """
import asyncio, os, sys, time
import apsw
from memory import Memory
from spar.errors import NoRoomError
from tests.storage.rows import text_of

def say(*words):
    print(*words, flush=True)

path = sys.argv[1]
url = f"sqlite:///{path}"
"""


class Child:
    """A process that runs some Python."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process, self.pid = process, process.pid

    def line(self, within: float = PATIENCE) -> str:
        """The next line that it says, in good time."""
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], within)
        assert ready, f"within {within:g} s it said nothing"
        return self.process.stdout.readline().decode().strip()

    def rest(self) -> list[str]:
        """What it says until its end, line by line."""
        try:
            out, _ = self.process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            out, _ = self.process.communicate()
            out += b"and did not end\n"
        return out.decode().splitlines()


@contextmanager
def child(code: str, path: Path, *, before: Sequence[str] = ()) -> Iterator[Child]:
    """Run code, in which `path`, `url` and `say` are known, until the end of the block at the latest.

    `before` is put before the command, as `unshare` is.
    """
    script = f"{PRELUDE}\n{textwrap.dedent(code)}"
    process = Forked(
        [*before, sys.executable, "-c", script, str(path)],
        env={**clean_environ(), "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,  # or a line that was read already would be waited for
    )
    try:
        yield Child(process)
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE)


async def until(condition: Callable[[], object], what: str, within: float = PATIENCE) -> None:
    """Let the loop go on until the condition holds."""
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, f"within {within:g} s not seen: {what}"
        await asyncio.sleep(0.01)
