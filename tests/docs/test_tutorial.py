"""The first hour of docs/tutorial/first-hour.md, typed line by line against a real service."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TUTORIAL = ROOT / "docs" / "tutorial" / "first-hour.md"
#: Seconds that anything may take on a loaded machine.
PATIENCE = 60.0
#: The file that a block of a language is written to.
FILES = {"python": "mytools.py", "toml": "config.toml"}


def steps() -> Iterator[tuple[str, str]]:
    """Return the blocks of the page in order: files to write, and commands with what they print."""
    for language, text in re.findall(r"^```(\w+)\n(.*?)^```", TUTORIAL.read_text(), re.M | re.S):
        if language in FILES:
            yield FILES[language], text
        else:
            for part in text.split("$ ")[1:]:
                command, _, shown = part.partition("\n")
                yield f"$ {command}", shown


def expected(shown: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, shown.split("…"))), re.S)


class Terminal:
    """A folder, and a shell in which `spar` is found."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "spar").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m spar "$@"\n')
        (folder / "spar").chmod(0o755)
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("SPAR_", "PYTHON"))}
        self.environ = {**kept, "PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT),
                        "SPAR_SERVICE__PORT": "0", "HOME": str(folder), "PYTHONUTF8": "1"}  # fmt: skip
        self.service: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        config = self.folder / "config.toml"  # that the machine is busy with other tests is no news
        config.write_text(re.sub(r"load_high = [0-9.]+", "load_high = 1000.0", config.read_text()))
        self.service = subprocess.Popen(["spar", "run"], cwd=self.folder, env=self.environ, stderr=subprocess.DEVNULL)
        until = time.monotonic() + PATIENCE
        # Sensors are opened beside the agent: the folder is there a moment after the service answers.
        while not (self.says("spar status").startswith("spar ") and (self.folder / "inbox").is_dir()):
            assert time.monotonic() < until, "the service did not start"

    def says(self, command: str) -> str:
        done = subprocess.run(command, shell=True, cwd=self.folder, env=self.environ, capture_output=True, text=True,
                              timeout=PATIENCE)  # fmt: skip
        return done.stdout + done.stderr


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    made = Terminal(tmp_path)
    yield made
    if made.service is not None:
        made.service.kill()
        made.service.wait()


@pytest.mark.process
def test_what_the_first_hour_shows_is_what_a_newcomer_sees(terminal: Terminal) -> None:
    commands = 0
    for name, content in steps():
        if not name.startswith("$ "):
            (terminal.folder / name).write_text(content)
            continue
        command, commands = name.removeprefix("$ "), commands + 1
        if command == "spar run":
            terminal.start()
            continue
        until, said = time.monotonic() + PATIENCE, terminal.says(command)
        # What is on the tape a moment later is asked for again; nothing that changes anything is done twice.
        while not expected(content).fullmatch(said) and command.split()[1:2] in (["cycles"], ["memory"]):
            assert time.monotonic() < until, (command, said)
            said = terminal.says(command)
        assert expected(content).fullmatch(said), (command, said)

    assert commands > 12
    assert terminal.service is not None
    assert terminal.service.wait(PATIENCE) == 0
