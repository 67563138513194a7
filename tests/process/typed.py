"""A page as a newcomer reads it: its commands are typed in a folder, and what they print is what the page shows.

`…` in a page stands for text that differs from time to time.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.process.conftest import PATIENCE, until
from tests.process.template import Forked

ROOT = Path(__file__).parents[2]
#: Characters by which a command is more than words.
SHELL = set("|&;<>$`*")
#: Commands that change nothing: what they show may come a moment later, and is asked for again.
READS = ("cat ", "head ", "spar cycles ", "spar memory ", "spar status")


def commands_of(block: str) -> Iterator[tuple[str, str]]:
    """Yield each command of a block of a page, with what is shown below it."""
    for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
        command, _, shown = part.partition("\n")
        yield command, shown


def expected(shown: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, shown.split("…"))), re.S)


def _started(command: str) -> list[str]:
    return [sys.executable, "-m", *shlex.split(command)]


class Terminal:
    """A folder, and a shell in which `spar` is found."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "spar").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m spar "$@"\n')
        (folder / "spar").chmod(0o755)
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("SPAR_", "PYTHON"))}
        self.environ = {**kept, "PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "NO_COLOR": "1",
                        "SPAR_SERVICE__PORT": "0", "HOME": str(folder), "PYTHONUTF8": "1"}  # fmt: skip
        self.service: subprocess.Popen[bytes] | None = None

    def start(self, command: str = "spar run") -> None:
        """Start the service by its command, and wait until it answers. The one before, if any, has ended."""
        if self.service is not None:
            self.service.wait(PATIENCE)
        config = self.folder / "config.toml"  # that the machine is busy with other tests is no news
        config.write_text(re.sub(r"load_high = [0-9.]+", "load_high = 1000.0", config.read_text()))
        self.service = Forked(_started(command), cwd=self.folder, env=self.environ, stderr=subprocess.DEVNULL)
        until(lambda: self.says("spar status").startswith("spar "), "the service started")

    def says(self, command: str) -> str:
        is_shell = not command.startswith("spar ") or not SHELL.isdisjoint(command)
        words = ["/bin/sh", "-c", command] if is_shell else _started(command)
        with Forked(words, cwd=self.folder, env=self.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as done:
            try:
                return b"".join(done.communicate(timeout=PATIENCE)).decode()
            except BaseException:
                done.kill()
                raise

    def shows(self, command: str, shown: str) -> None:
        """Type a command; fail unless it prints what a page shows."""

        def is_shown() -> bool:
            said = self.says(command)
            assert expected(shown).fullmatch(said), (command, said)
            return True

        if command.startswith(READS):
            until(is_shown, command)
        else:
            is_shown()

    def close(self) -> None:
        if self.service is not None:
            self.service.kill()
            self.service.wait()
