"""The first hour of docs/tutorial/first-hour.md, typed line by line against a real service."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process.conftest import PATIENCE, until
from tests.process.typed import ROOT, Terminal, commands_of

TUTORIAL = ROOT / "docs" / "tutorial" / "first-hour.md"
#: The file that a block of a language is written to.
FILES = {"python": "mytools.py", "toml": "config.toml"}


def steps() -> Iterator[tuple[str, str]]:
    """Return the blocks of the page in order: files to write, and commands with what they print."""
    for language, text in re.findall(r"^```(\w+)\n(.*?)^```", TUTORIAL.read_text(), re.M | re.S):
        if language in FILES:
            yield FILES[language], text
        else:
            yield from ((f"$ {command}", shown) for command, shown in commands_of(text))


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    made = Terminal(tmp_path)
    yield made
    made.close()


@pytest.mark.process
def test_what_the_first_hour_shows_is_what_a_newcomer_sees(terminal: Terminal) -> None:
    commands = 0
    for name, content in steps():
        if not name.startswith("$ "):
            (terminal.folder / name).write_text(content)
            continue
        command, commands = name.removeprefix("$ "), commands + 1
        if command != "spar run":
            terminal.shows(command, content)
            continue
        terminal.start()
        # Sensors are opened beside the agent: the folder is there a moment after the service answers.
        until((terminal.folder / "inbox").is_dir, "the inbox is watched")

    assert commands > 12
    assert terminal.service is not None
    assert terminal.service.wait(PATIENCE) == 0
