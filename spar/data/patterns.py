r"""Patterns that operators and tools bring, matched in time proportional to the text, whatever text it is.

Python's `re` tries one way after the other, holds the interpreter while it does, and knows no deadline: an unlucky
pattern and a few words from a stranger stop the process. RE2 (https://github.com/google/re2/wiki/Syntax) reads a text
once. What it cannot express (look-around, back-references, possessive and atomic groups) is refused when the pattern
is made. The rest means what it means in Python: `\d`, `\w` and `\s` know all scripts, `\Z` is the end of the text and
`$` also stands before its last line feed. Only word boundaries, and `\W` and `\S` within `[…]`, are those of ASCII.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

#: Python's classes in RE2's words; the same within `[…]` without the brackets.
_CLASSES = {"d": r"\p{Nd}", "w": r"\p{L}\p{N}_", "s": r"\s\v\x{1c}-\x{1f}\x{85}\p{Z}"}
_UNICODE = {"x": 2, "u": 4, "U": 8}  # escapes and their hexadecimal digits

#: Parts of a text that pass, as expressions for `re`: a date with its time, a time of day, a UUID.
MOMENT = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?"
TIME_OF_DAY = r"\b\d\d:\d\d:\d\d(?:[.,]\d+)?"
UUID = r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b"

_KNOWN = "known is the syntax of RE2, which has no look-around, no back-references and no possessive groups"


class Pattern:
    """A regular expression, made once and used from any thread.

    Args: text: the expression as it is written.
    Raises: ValueError saying why it cannot be used.
    """

    __slots__ = ("_engine", "_has_end", "_names", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        try:
            expression, self._has_end = _translated(text)
            self._engine = _compiled(expression)
        except ValueError as error:
            raise ValueError(f"{error}; {_KNOWN}") from None
        names = self._engine.groupindex.items()
        self._names = tuple((name.decode("utf-8", "surrogatepass"), number) for name, number in names)

    @property
    def groups(self) -> frozenset[str]:
        """The names of its groups."""
        return frozenset(name for name, _ in self._names)

    def search(self, text: str) -> dict[str, str] | None:
        """Return the text of each named group that took part in the first match, None if there is no match."""
        encoded = _encoded(text)
        match = self._engine.search(encoded)
        if match is None and self._has_end and encoded.endswith(b"\n"):
            match = self._engine.search(encoded[:-1])
        if match is None:
            return None
        found = ((name, match.group(number)) for name, number in self._names)
        return {name: value.decode("utf-8", "surrogatepass") for name, value in found if value is not None}


def glob(pattern: str) -> Callable[[str], bool]:
    """Return the test of a shell pattern over a whole text: `*` any characters, `?` one, `[ab]` and `[!ab]` classes.

    Upper and lower case are told apart; a `[` without its `]` stands for itself.
    """
    if not is_open(pattern):
        return pattern.__eq__
    begin = pattern[:-1]
    if pattern[-1] == "*" and not is_open(begin):
        return lambda text: text.startswith(begin)
    match = _compiled("(?s)" + "".join(_glob_parts(pattern))).fullmatch
    return lambda text: match(_encoded(text)) is not None


def any_of(*words: str) -> Callable[[str], bool]:
    """Return the test whether one of these words stands anywhere in a text, in upper or lower case."""

    @cache
    def search() -> Callable[[bytes], Any]:  # when a text comes: most who make a test have not met one yet
        import re2

        found: Callable[[bytes], Any] = _compiled("(?i)" + "|".join(map(re2.escape, words))).search
        return found

    return lambda text: search()(_encoded(text)) is not None


def is_open(pattern: str) -> bool:
    """Return whether a shell pattern fits more than the one text that it is."""
    return any(sign in pattern for sign in "*?[")


def _encoded(text: str) -> bytes:
    # A lone surrogate, which a stranger's JSON may hold, is one character like any other.
    return text.encode("utf-8", "surrogatepass")


def _compiled(expression: str) -> Any:
    import re2  # 3 MB, which who has no pattern does without

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(_encoded(expression), options)
    except re2.error as error:
        reason = error.args[0]
        raise ValueError(reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)) from None


# -- regular expressions


def _translated(text: str) -> tuple[str, bool]:
    """Return the expression in RE2's words, and whether a `$` is in it. Raises: ValueError."""
    parts: list[str] = []
    has_end = is_in_class = False
    at = 0
    while at < len(text):
        sign, end = text[at], at + 1
        if sign == "\\" and end < len(text):
            sign, end = _escape(text, at, is_in_class)
        elif is_in_class:
            is_in_class = sign != "]"
        elif sign == "[":
            is_in_class = True
            # A "]" right after the beginning is one of the class.
            end += 1 if text.startswith("^", end) else 0
            end += 1 if text.startswith("]", end) else 0
            sign = text[at:end]
        elif sign == "$":
            has_end = True
        parts.append(sign)
        at = end
    return "".join(parts), has_end


def _escape(text: str, at: int, is_in_class: bool) -> tuple[str, int]:
    """Return an escape in RE2's words, and where it ends. Raises: ValueError."""
    letter, end = text[at + 1], at + 2
    if letter in _UNICODE:
        digits = text[end : end + _UNICODE[letter]]
        if len(digits) < _UNICODE[letter] or not all(sign in "0123456789abcdefABCDEF" for sign in digits):
            return text[at:end], end
        return f"\\x{{{digits}}}", end + len(digits)
    if letter.lower() in _CLASSES and not is_in_class:
        return f"[{'^' if letter.isupper() else ''}{_CLASSES[letter.lower()]}]", end
    if letter in _CLASSES:
        return _CLASSES[letter], end
    if letter in "bB" and not is_in_class and any(_is_foreign(text[i : i + 1]) for i in (at - 1, end) if i >= 0):
        raise ValueError(f"\\{letter} stands beside a letter that is not ASCII, where no word boundary is known")
    return ("\\z" if letter == "Z" else text[at:end]), end


def _is_foreign(sign: str) -> bool:
    return sign > "\x7f" and sign.isalnum()


# -- shell patterns


def _glob_parts(pattern: str) -> Iterator[str]:
    at = 0
    while at < len(pattern):
        sign, at = pattern[at], at + 1
        if sign == "*":
            yield ".*"
        elif sign == "?":
            yield "."
        elif sign == "[" and (end := _class_end(pattern, at)):
            yield _glob_class(pattern[at:end])
            at = end + 1
        else:
            yield _one(sign)


def _class_end(pattern: str, at: int) -> int:
    """Return where the "]" of a class stands that begins here; 0 if it has none."""
    first = at + 1 if pattern.startswith("!", at) else at
    return max(pattern.find("]", first + 1), 0)


def _glob_class(inside: str) -> str:
    is_negated = inside.startswith("!")
    left = inside[1:] if is_negated else inside
    ranges: list[str] = []
    while left:
        if len(left) > 2 and left[1] == "-":
            first, last, left = left[0], left[2], left[3:]
        else:
            first = last = left[0]
            left = left[1:]
        if first <= last:
            ranges.append(f"{_one(first)}-{_one(last)}")
    if not ranges:
        ranges, is_negated = ["\\x{0}-\\x{10ffff}"], not is_negated
    return f"[{'^' if is_negated else ''}{''.join(ranges)}]"


def _one(sign: str) -> str:
    return f"\\x{{{ord(sign):x}}}"
