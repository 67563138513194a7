"""Warnings of text in a call that could deceive the eye of the person who decides on it."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any

from spar.data.text import BLANKS, is_hidden, quoted, visible
from spar.types import Call

#: Scripts that may occur together in one word, after "highly restrictive" of Unicode Technical Standard 39, section
#: 5.2.
_TOGETHER = (
    {"LATIN", "CJK", "HIRAGANA", "KATAKANA"},
    {"LATIN", "CJK", "BOPOMOFO"},
    {"LATIN", "CJK", "HANGUL"},
)
#: Letters in common use with every script.
_COMMON = "µªº"


def warnings(call: Call) -> list[str]:
    """Return a warning for each deception in a call's text: mixed scripts, long runs of blanks, hidden characters."""
    messages: dict[str, None] = {}  # an ordered set
    hidden = 0
    for text in _texts(call):
        for word in re.findall(r"\w+", text):
            if not word.isascii() and (mixture := _mixture(word)):
                messages[mixture] = None
        longest = max((len(run.group()) for run in BLANKS.finditer(text)), default=0)
        if longest:
            messages[f"a run of {longest} blanks pushes what follows it out of sight"] = None
        hidden += sum(character not in "\n\t" and is_hidden(character) for character in text)
    if hidden:
        messages[f"{hidden} characters that cannot be seen are shown as escapes"] = None
    return list(messages)


def _mixture(word: str) -> str:
    """Return the warning about a word with letters of scripts that do not belong together; "" for other words."""
    scripts: dict[str, str] = {}
    for letter in word:
        if unicodedata.category(letter) in ("Lu", "Ll", "Lt", "Lo") and letter not in _COMMON:
            scripts.setdefault(unicodedata.name(letter, "UNNAMED").partition(" ")[0], letter)
    if len(scripts) < 2 or any(scripts.keys() <= together for together in _TOGETHER):
        return ""
    letters = ", ".join(
        f"{visible(letter)} is {unicodedata.name(letter, 'unnamed').lower()}, U+{ord(letter):04X}"
        for letter in scripts.values()
        if not letter.isascii()
    )
    return f"{quoted(word)} mixes scripts ({letters}): it may not be the word that it looks like"


def _texts(call: Call) -> Iterator[str]:
    """Yield every text that a call passes to its tool, including keys."""
    yield call.tool
    yield call.reason
    waiting: list[Any] = [call.params]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, Mapping):
            waiting += [*map(str, item), *item.values()]
        elif isinstance(item, (list, tuple)):
            waiting += item
