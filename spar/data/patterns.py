r"""Patterns of operators and tools, matched in time proportional to the length of the text.

Python's `re` tries one alternative after the other, holds the interpreter meanwhile, and knows no deadline: an unlucky
pattern and a few words from a stranger stop the process. RE2 (https://github.com/google/re2/wiki/Syntax) reads a text
once. A pattern that RE2 cannot express (look-around, back-references, possessive and atomic groups) is refused when it
is made. All other syntax means the same as in Python: `\d`, `\w` and `\s` know all scripts, `\Z` is the end of the text
and `$` also matches before a final line feed. Only word boundaries, and `\W` and `\S` within `[…]`, know ASCII only.

Shell patterns need no engine: what stands between their stars is searched in order. Those with `?` and `[…]` become
expressions for `re` that never go back to an earlier star.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable
from functools import cache
from itertools import filterfalse
from typing import Any

#: Python's classes in RE2's syntax; within `[…]` they stand without the brackets.
_CLASSES = {"d": r"\p{Nd}", "w": r"\p{L}\p{N}_", "s": r"\s\v\x{1c}-\x{1f}\x{85}\p{Z}"}
_UNICODE = {"x": 2, "u": 4, "U": 8}  # escapes and their hexadecimal digits

#: Expressions for `re` of a date with its time, a time of day, a UUID: parts of a text that differ each time.
MOMENT = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?"
TIME_OF_DAY = r"\b\d\d:\d\d:\d\d(?:[.,]\d+)?"
UUID = r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b"

_KNOWN = "known is the syntax of RE2, which has no look-around, no back-references and no possessive groups"


class Pattern:
    """Regular expression, compiled once and used from any thread.

    Args: text: the expression as it is written.
    Raises: ValueError saying why it cannot be used.
    """

    __slots__ = ("_engine", "_has_end", "_names", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        try:
            expression, self._has_end = _translate(text)
            self._engine = _compile(expression)
        except ValueError as error:
            raise ValueError(f"{error}; {_KNOWN}") from None
        names = self._engine.groupindex.items()
        self._names = tuple((name.decode("utf-8", "surrogatepass"), number) for name, number in names)

    @property
    def groups(self) -> frozenset[str]:
        """Return the names of its groups."""
        return frozenset(name for name, _ in self._names)

    def search(self, text: str) -> dict[str, str] | None:
        """Return the text of each named group that took part in the first match, None if there is no match."""
        encoded = _encode(text)
        match = self._engine.search(encoded)
        if match is None and self._has_end and encoded.endswith(b"\n"):
            match = self._engine.search(encoded[:-1])
        if match is None:
            return None
        groups = ((name, match.group(number)) for name, number in self._names)
        return {name: value.decode("utf-8", "surrogatepass") for name, value in groups if value is not None}


def glob(pattern: str) -> Callable[[str], bool]:
    """Return a function that matches a whole text with a shell pattern: `*` any characters, `?` one, `[ab]` and `[!ab]`
    classes.

    Upper and lower case differ; a `[` without its `]` stands for itself.
    """
    if not is_open(pattern):
        return pattern.__eq__
    if "?" in pattern or "[" in pattern:
        match = re.compile(fnmatch.translate(pattern)).match
        return lambda text: match(text) is not None
    first, *between, last = pattern.split("*")

    def fits(text: str) -> bool:
        if not (text.startswith(first) and text.endswith(last)):
            return False
        end = len(first)
        for part in between:
            if (begin := text.find(part, end)) < 0:
                return False
            end = begin + len(part)
        return end + len(last) <= len(text)

    return fits


class Glob:
    """One or several shell patterns; a word fits when it fits any of them. Case matters.

    Attributes: fits: returns whether a word fits.
    """

    __slots__ = ("fits", "patterns")

    def __init__(self, *patterns: str) -> None:
        self.patterns = patterns
        # Most are plain words, and looking one up is much cheaper than matching it.
        words = frozenset(filterfalse(is_open, patterns))
        tests = tuple(map(glob, filter(is_open, patterns)))
        self.fits: Callable[[str], bool] = (
            glob(patterns[0]) if len(patterns) == 1 else lambda word: word in words or any(test(word) for test in tests)
        )


def any_of(*words: str) -> Callable[[str], bool]:
    """Return a function that tells whether one of these words occurs in a text, in upper or lower case."""

    @cache
    def search() -> Callable[[bytes], Any]:  # compiled for the first text: many functions never get one
        import re2

        search_bytes: Callable[[bytes], Any] = _compile("(?i)" + "|".join(map(re2.escape, words))).search
        return search_bytes

    return lambda text: search()(_encode(text)) is not None


def is_open(pattern: str) -> bool:
    """Return whether a shell pattern matches other texts than itself."""
    return any(character in pattern for character in "*?[")


def _encode(text: str) -> bytes:
    # JSON of strangers may contain a lone surrogate, which counts as one character.
    return text.encode("utf-8", "surrogatepass")


def _compile(expression: str) -> Any:
    import re2  # 3 MB that a service without patterns saves

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(_encode(expression), options)
    except re2.error as error:
        reason = error.args[0]
        raise ValueError(reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)) from None


# -- regular expressions


def _translate(text: str) -> tuple[str, bool]:
    """Return the expression in RE2's syntax, and whether it contains a `$`. Raises: ValueError."""
    parts: list[str] = []
    has_end = is_in_class = False
    at = 0
    while at < len(text):
        part, end = text[at], at + 1
        if part == "\\" and end < len(text):
            part, end = _escape(text, at, is_in_class)
        elif is_in_class:
            is_in_class = part != "]"
        elif part == "[":
            is_in_class = True
            # A "]" right after the beginning belongs to the class.
            end += 1 if text.startswith("^", end) else 0
            end += 1 if text.startswith("]", end) else 0
            part = text[at:end]
        elif part == "$":
            has_end = True
        parts.append(part)
        at = end
    return "".join(parts), has_end


def _escape(text: str, at: int, is_in_class: bool) -> tuple[str, int]:
    """Return an escape in RE2's syntax, and where it ends. Raises: ValueError."""
    letter, end = text[at + 1], at + 2
    if letter in _UNICODE:
        digits = text[end : end + _UNICODE[letter]]
        if len(digits) < _UNICODE[letter] or not all(digit in "0123456789abcdefABCDEF" for digit in digits):
            return text[at:end], end
        return f"\\x{{{digits}}}", end + len(digits)
    if letter.lower() in _CLASSES and not is_in_class:
        return f"[{'^' if letter.isupper() else ''}{_CLASSES[letter.lower()]}]", end
    if letter in _CLASSES:
        return _CLASSES[letter], end
    if letter in "bB" and not is_in_class and any(_is_foreign(text[i : i + 1]) for i in (at - 1, end) if i >= 0):
        raise ValueError(f"\\{letter} stands beside a letter that is not ASCII, where no word boundary is known")
    return ("\\z" if letter == "Z" else text[at:end]), end


def _is_foreign(character: str) -> bool:
    return character > "\x7f" and character.isalnum()
