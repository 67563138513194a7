"""The first hour of docs/tutorial/first-hour.md, typed line by line against a real service."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from memory import Memory
from spar import Agent
from spar.config.load import from_mapping
from spar.operations.sessions import DEFAULTS
from spar.testing import VirtualClock
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


# -- promises of the section on sessions: the settings, the commands, the hook, and what the command line shows


PAGE = (Path(__file__).parents[2] / "docs" / "assistant.md").read_text()
SECTION = PAGE[PAGE.index("## Sessions") : PAGE.index("## Compaction")]


def block(language: str) -> str:
    found = re.search(rf"^```{language}\n(.*?)^```", SECTION, re.S | re.M)
    assert found is not None
    return found[1]


def test_the_settings_of_the_page_are_settings() -> None:
    settings = from_mapping(tomllib.loads(block("toml"))).sessions
    assert (settings.idle, settings.reset_at, settings.timezone) == (43_200.0, "04:00", "local")
    assert "keep_fact_days`, 7)" in SECTION
    assert Memory("sqlite://:memory:")._limits.keep_fact_days == 7


async def test_the_commands_and_the_hook_of_the_page_do_what_it_says(clock: VirtualClock) -> None:
    names: dict[str, Agent] = {}
    exec(compile(block("python"), "assistant.md", "exec"), names)
    agent = names["agent"]
    table = re.findall(r"^\| (`/.*?) \|", SECTION, re.M)
    commands = [each for row in table for each in re.findall(r"`(/[^`]+)`", row)]
    assert commands == [
        "/new", "/reset", "/stop", "/status", "/feedback good", "/feedback bad", "/model", "/model large",
        "/model default",
    ]  # fmt: skip
    async with agent:
        for text in (*commands, "/help"):
            receipt = await agent.submit(text, session="alice")
            reply = (await agent.wait(receipt.run_id, 60)).reply
            assert reply is not None
            if text.startswith("/model"):
                assert reply == "/model is refused: ask Ada for another model"
            if text == "/help":
                assert reply == "Ask me anything."


@pytest.mark.parametrize("name", ["thinking", "title"])
def test_what_the_page_sets_can_be_set(name: str) -> None:
    assert f"{name}=" in SECTION
    assert name in ("title", *DEFAULTS)
