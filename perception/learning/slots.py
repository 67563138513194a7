"""Slots of a text: hosts, services, files, durations, numbers and quoted words, and the marks `{slot}` of examples.

All patterns are matched in time linear in the text (RE2), in its first `LONGEST` characters.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Final

from perception.learning.features import LONGEST
from spar.data.patterns import Pattern

#: Bound of the marked examples that become patterns; more would hardly find anything new.
MOST_MARKED: Final = 500

#: Patterns of the built-in slots; the first match in the text counts.
_ENTITIES: Final = {
    "quoted": r"[\"“„«`](?P<quoted>[^\"“”„«»`]{1,200})[\"”“»`]",
    "file": r"(?:^|[\s\"'(=])(?P<file>(?:~|\.{1,2})?/[\w.@+-][\w./@+-]{0,200}|[\w-]{1,80}\.(?:log|conf|toml|ya?ml|json|"
    r"csv|txt|pdf|md|py|sh|sql|xml|ini|service|tar|gz|zip|docx?|xlsx?|png|jpe?g))\b",
    "host": r"\b(?P<host>(?:\d{1,3}\.){3}\d{1,3}|(?:[a-z0-9][a-z0-9-]{0,60}\.){1,8}(?:com|org|net|io|dev|local|"
    r"internal|lan|example|edu|gov)|[a-z]{2,20}-?\d{1,4}(?:-[a-z0-9]{1,20})?)\b",
    "service": r"(?i)\b(?P<service>[a-z][\w@-]{1,60}\.service)\b|\b(?:service|daemon|container|deployment|unit) "
    r"(?P<named>[a-z][\w@.-]{1,60})",
    "duration": r"(?i)\b(?P<duration>\d{1,9}(?:\.\d{1,6})? ?(?:ms|milliseconds?|s|secs?|seconds?|m|min|mins|minutes?|h|"
    r"hrs?|hours?|d|days?|weeks?|months?|years?))\b",
    "number": r"(?:^|[\s$€£(=])(?P<number>-?\d{1,15}(?:[.,]\d{1,9})?)(?:[\s%€.,;:!?)]|$)",
}  # fmt: skip


@cache
def _entities() -> dict[str, Pattern]:
    return {slot: Pattern(text) for slot, text in _ENTITIES.items()}


def entities(text: str) -> dict[str, str]:
    """Return the first match of each built-in slot in a text."""
    slots: dict[str, str] = {}
    for slot, pattern in _entities().items():
        if groups := pattern.search(text[:LONGEST]):
            slots[slot] = next(iter(groups.values()))
    return slots


class MarkedSlots:
    """Slots that examples of one label mark: "restart {service} on {host}". The value of a mark is one word, or words
    in quotes.

    Args: examples: texts; those without a mark are ignored.
    """

    def __init__(self, examples: Iterable[str]) -> None:
        marked = [text for text in examples if "{" in text]
        patterns = [_pattern(text) for text in marked[:MOST_MARKED]]
        self._patterns = [pattern for pattern in patterns if pattern is not None]

    def find(self, text: str) -> dict[str, str]:
        """Return the slots of the first marked example that fits a text."""
        for pattern in self._patterns:
            if slots := pattern.search(text[:LONGEST]):
                return {slot: value.strip("\"'“”.,!?") for slot, value in slots.items()}
        return {}


def unmarked(text: str) -> str:
    """Return an example without the braces of its marks, for training."""
    return text.replace("{", " ").replace("}", " ") if "{" in text else text


def _pattern(text: str) -> Pattern | None:
    """Return the pattern of a marked example; None when its braces are not marks."""
    parts, slots, remaining = ["(?i)"], set[str](), text
    while "{" in remaining:
        before, _, remaining = remaining.partition("{")
        slot, _, remaining = remaining.partition("}")
        if not slot.isascii() or not slot.isidentifier() or slot in slots:
            return None
        slots.add(slot)
        parts += [_plain(before), rf"(?P<{slot}>\"[^\"]{{1,200}}\"|'[^']{{1,200}}'|\S{{1,200}})"]
    return Pattern("".join([*parts, _plain(remaining)]))


def _plain(text: str) -> str:
    """Return the pattern of some words with any blanks between them."""
    words = r"\s+".join("".join(rf"\x{{{ord(c):x}}}" if not c.isalnum() else c for c in word) for word in text.split())
    return (r"\s+" if text[:1].isspace() else "") + words + (r"\s+" if words and text[-1:].isspace() else "")
