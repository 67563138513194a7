"""Text and values drawn so that nothing in them hides, moves, reorders or imitates, and nothing is left out.

Text that is invisible, moves the cursor or turns the direction of writing is shown as an escape (`\\u{202e}`), and a
backslash as two, so that no escape can be imitated. A long run of blanks is shown as its number. Pure functions.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

#: So many blanks in a row push text out of sight; longer runs are shown as a count.
LONGEST_BLANK = 40
#: Deeper levels are not indented further.
_DEEPEST_INDENT = 12

#: Categories that print nothing of their own: controls, formats (zero-width, bidi, tags), surrogates, private use,
#: unassigned, line and paragraph separators. Zs is the blanks, of which only U+0020 is what it looks like.
_HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"}
#: Letters, marks and symbols that are drawn as nothing: Default_Ignorable_Code_Point of Unicode's
#: DerivedCoreProperties.txt outside the categories above, and the empty braille pattern.
_INVISIBLE = frozenset(
    chr(number)
    for first, last in (
        (0x034F, 0x034F), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F), (0x2800, 0x2800), (0x3164, 0x3164),
        (0xFE00, 0xFE0F), (0xFFA0, 0xFFA0), (0xE0100, 0xE01EF),
    )
    for number in range(first, last + 1)
)  # fmt: skip
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\"}
#: Control characters, which would move the cursor or retitle the window of a terminal, and what turns the direction of
#: writing, ends lines or hides text: marks, embeddings, isolates, separators, tags. Joiners and variants stay: words of
#: many languages and pictures are written with them.
_CONTROLS = {number: f"\\x{number:02x}" for number in (*range(32), *range(127, 160)) if chr(number) not in "\n\t"} | {
    number: f"\\u{{{number:x}}}"
    for number in (
        0xAD, 0x61C, 0x180E, 0x200B, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2060, 0x2070), 0xFEFF,
        *range(0xFFF9, 0xFFFC), *range(0xE0000, 0xE0080),
    )
}  # fmt: skip
BLANKS = re.compile(r"\s{%d,}" % (LONGEST_BLANK + 1))  # noqa: UP031 - a brace is part of it


#: C0 and C1 controls, line separators, and the marks that reorder what a reader sees; tab and newline are harmless.
_ACTING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


# -- text


def disarmed(text: str) -> str:
    """Return the text with each character written out (`\\x1b`) that would act on a terminal, a log or a reader's eye.

    What comes out holds no lone surrogate, so it can be written anywhere. Lines stay lines, for a model or a log reads
    it; what people approve is escaped whole (`visible`).
    """
    return _ACTING.sub(lambda found: ascii(found.group())[1:-1], text.replace("\r\n", "\n"))


def visible(text: str) -> str:
    """Return the text on one line with everything that cannot be seen escaped; never shortened."""
    return "".join(_pieces(text))


def quoted(text: str) -> str:
    """Return the visible text between quotation marks, those inside it escaped."""
    return f'"{"".join(map(_unquoted, _pieces(text)))}"'


def _unquoted(piece: str) -> str:
    return '\\"' if piece == '"' else piece


def _pieces(text: str) -> Iterator[str]:
    """Yield what is drawn for each character, and for each long run of blanks."""
    end = 0
    for run in BLANKS.finditer(text):
        yield from map(_shown, text[end : run.start()])
        lengths = [(blank, sum(1 for _ in same)) for blank, same in groupby(run.group())]
        yield "".join(_escape(blank, number) for blank, number in lengths)
        end = run.end()
    yield from map(_shown, text[end:])


def _shown(character: str) -> str:
    return _escape(character) if character == "\\" or is_hidden(character) else character


def _escape(character: str, number: int = 1) -> str:
    if number > 1:
        return f"\\u{{{ord(character):x}×{number}}}"
    return _NAMED.get(character) or f"\\u{{{ord(character):x}}}"


def cut(text: str, room: int) -> str:
    """Return at most `room` characters of a text, and how many more there are."""
    return text if len(text) <= room else f"{text[:room]}… ({len(text) - room} characters more)"


def one_line(text: str, limit: int | None = None) -> str:
    """Return a text with each run of blanks as one, cut to `limit` characters where one is given."""
    line = " ".join(text.split())
    return line if limit is None or len(line) <= limit else f"{line[: limit - 1]}…"


def safe_line(text: object, limit: int = 500) -> str:
    """Return any text as one line of at most `limit` characters that a database, a log and a terminal take: no control
    characters, no lone surrogates."""
    plain = str(text)[: 8 * limit]
    if not plain.isprintable():  # as half of a sign is not
        plain = plain.encode("utf-8", "replace").decode("utf-8")
        plain = "".join(sign if sign.isprintable() else " " for sign in plain)
    line = " ".join(plain.split())  # as `one_line` does: each cycle is told in several such lines
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def printable(text: str) -> str:
    """Return a text for a terminal: all controls but line feeds and tabs are escaped, and what hides or turns text."""
    return text if text.isascii() and text.isprintable() else text.translate(_CONTROLS)


def escaped(text: str) -> str:
    """Return a text for one line of a log: everything that cannot be printed is escaped as Python does."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def is_hidden(character: str) -> bool:
    """Return whether a character is drawn as nothing, as a blank that it is not, or changes how others are drawn."""
    if " " <= character <= "~":
        return False
    return unicodedata.category(character) in _HIDDEN or character in _INVISIBLE


# -- values


def value_lines(value: Any, level: int = 0) -> list[str]:
    """Return any JSON-able value, drawn like JSON; a text of several lines has each on a line of its own.

    Nothing is left out, however deep or long it is.
    """
    lines: list[str] = []
    waiting: list[tuple[str, Any, str, int]] = [("", value, "", level)]
    while waiting:
        head, item, tail, level = waiting.pop()
        pad = "  " * min(level, _DEEPEST_INDENT)
        if isinstance(item, Mapping) and item:
            lines.append(f"{pad}{head}{{")
            members = [(f"{quoted(str(key))}: ", member) for key, member in item.items()]
            closing = "}"
        elif isinstance(item, (list, tuple)) and item:
            lines.append(f"{pad}{head}[")
            members, closing = [("", member) for member in item], "]"
        else:
            first, *rest = _leaf(item)
            leaf = [head + first, *rest]
            lines += [pad + line for line in (*leaf[:-1], leaf[-1] + tail)]
            continue
        waiting.append(("", _Closing(closing), tail, level))
        waiting += [
            (name, member, "," if number else "", level + 1) for number, (name, member) in enumerate(reversed(members))
        ]
    return lines


def value_line(value: Any) -> str:
    """Return any JSON-able value on one line; nothing is left out."""
    return " ".join(line.strip() for line in value_lines(value))


class _Closing(str):
    """The end of an object or list, no text of theirs."""

    __slots__ = ()


def _leaf(item: Any) -> list[str]:
    if isinstance(item, _Closing):
        return [str(item)]
    if not isinstance(item, str):
        return [_plain(item)]
    lines, line = [], ['"']
    for piece in _pieces(item):
        if line[-1] == _NAMED["\n"]:
            lines.append("".join(line))
            line = ["  "]
        line.append(_unquoted(piece))
    return [*lines, "".join(line) + '"']


def _plain(item: Any) -> str:
    try:
        return json.dumps(item)
    except (TypeError, ValueError):
        return visible(repr(item))
