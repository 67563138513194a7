"""Each choice is named wherever people choose: in the settings, on the command line, in the pages."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from spar import Agent
from spar.chat.command import chat
from spar.cli.commands.runs import send
from spar.types import QUEUE_MODES

ROOT = Path(__file__).parents[2]


def paragraph(page: str, word: str) -> str:
    """Return the paragraph of a page, or the table, that the word stands in first."""
    return next(text for text in (ROOT / page).read_text().split("\n\n") if word in text)


def option(command: object, name: str) -> str:
    parameters = {each.name: each for each in command.params}  # type: ignore[attr-defined]
    return f"{parameters[name].help} {getattr(parameters[name].type, 'choices', '')}"


TEXTS = {
    "config.toml": lambda: paragraph("config.toml", "queue_mode ="),
    "docs/explanation/runs.md": lambda: paragraph("docs/explanation/runs.md", "| `followup`"),
    "docs/assistant.md": lambda: paragraph("docs/assistant.md", "`--mode"),
    "docs/reference/settings.md": lambda: paragraph("docs/reference/settings.md", "- `queue_mode ="),
    "spar send --help": lambda: option(send, "mode"),
    "spar chat --help": lambda: option(chat, "mode"),
    "Agent.submit": lambda: inspect.getdoc(Agent.submit) or "",
}


@pytest.mark.parametrize("place", TEXTS)
def test_each_queue_mode_is_named_where_people_choose_one(place: str) -> None:
    text = TEXTS[place]()

    assert [mode for mode in QUEUE_MODES if mode not in text] == [], place
