"""Commands in messages: recognized and parsed. Pure.

A command is the first line of a message: a slash, a word, perhaps an argument. Any other text is no command.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from spar.facts.messages import COMMAND
from spar.types import Perception

#: The most characters of a command's name, and of a line that may be a command.
_LONGEST_WORD: Final = 32
_LONGEST_LINE: Final = 1_000


class Command(Struct, frozen=True):
    """Command in a message: `/name argument`. `rest` is the text after its line."""

    name: str
    argument: str = ""
    rest: str = ""


def command_of(text: str) -> Command | None:
    """Return the command in a text; None if it is no command."""
    line, _, rest = text.partition("\n")
    line = line.strip()
    if not line.startswith("/") or len(line) > _LONGEST_LINE:
        return None
    word, _, argument = line[1:].partition(" ")
    if not word or len(word) > _LONGEST_WORD or not (word[0].isalpha() and word.replace("_", "a").isalnum()):
        return None
    return Command(word.lower(), argument.strip(), rest.strip())


def is_command(message: Perception) -> bool:
    """Return whether a message is marked as a command."""
    return COMMAND in message.attributes
