"""Commands in messages: which text is one, and what it says; pure.

A command is the first line of a message, as a whole: a slash, a word, perhaps an argument. Anything else is text.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from spar.types import Perception

#: Under this attribute stands what a message was taken as that is a command. Nobody but the agent sets it.
COMMAND: Final = "command"
#: Characters of a command's name, and of a line that may be one.
_LONGEST_WORD: Final = 32
_LONGEST_LINE: Final = 1_000


class Command(Struct, frozen=True):
    """Command in a message: `/name argument`; `rest` are the lines that follow it."""

    name: str
    argument: str = ""
    rest: str = ""


def command_of(text: str) -> Command | None:
    """Return the command that a message is; None for one that is text."""
    line, _, rest = text.partition("\n")
    line = line.strip()
    if not line.startswith("/") or len(line) > _LONGEST_LINE:
        return None
    word, _, argument = line[1:].partition(" ")
    if not word or len(word) > _LONGEST_WORD or not (word[0].isalpha() and word.replace("_", "a").isalnum()):
        return None
    return Command(word.lower(), argument.strip(), rest.strip())


def is_command(message: Perception) -> bool:
    """Return whether a message was taken as a command."""
    return COMMAND in message.attributes
