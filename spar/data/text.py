"""Text and values drawn so that nothing in them hides, moves, reorders or imitates other text, and nothing is left out.

Characters that are invisible, move the cursor or change the writing direction are shown as an escape (`\\u{202e}`), and
a backslash as two, so that no text can imitate an escape. A long run of blanks is shown as its number. Pure functions.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from itertools import groupby
from typing import Any, Final

#: Blanks in a row that are drawn as they are; a longer run would push text out of sight and is shown as a count.
LONGEST_BLANK = 40
#: Levels that are indented; deeper ones are not indented further.
_DEEPEST_INDENT = 12

#: Unicode categories without a visible sign: controls, formats (zero-width, bidi, tags), surrogates, private use,
#: unassigned, line and paragraph separators. Zs are the blanks, of which only U+0020 looks like a common blank.
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
#: Control characters that would move the cursor or change the title of a terminal's window, and characters that change
#: the writing direction, end lines or hide text: marks, embeddings, isolates, separators, tags. Joiners and variation
#: selectors stay: words of many languages and pictures need them.
_CONTROLS = {number: f"\\x{number:02x}" for number in (*range(32), *range(127, 160)) if chr(number) not in "\n\t"} | {
    number: f"\\u{{{number:x}}}"
    for number in (
        0xAD, 0x61C, 0x180E, 0x200B, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2060, 0x2070), 0xFEFF,
        *range(0xFFF9, 0xFFFC), *range(0xE0000, 0xE0080),
    )
}  # fmt: skip
BLANKS = re.compile(r"\s{%d,}" % (LONGEST_BLANK + 1))  # noqa: UP031 - a brace is part of it


#: C0 and C1 controls, line separators, and the marks that reorder text on the screen; tab and newline are harmless.
_ACTING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


# -- text


def disarmed(text: str) -> str:
    """Return the text with each character escaped (`\\x1b`) that would act on a terminal, a log or a reader's eye.

    The result contains no lone surrogate, so it can be written anywhere. Lines stay lines, because a model or a log
    reads it; texts that people approve are escaped wholly (`visible`).
    """
    return _ACTING.sub(lambda match: ascii(match.group())[1:-1], text.replace("\r\n", "\n"))


def visible(text: str) -> str:
    """Return the text on one line with everything that cannot be seen escaped; never shortened."""
    return "".join(_pieces(text))


def quoted(text: str) -> str:
    """Return the visible text between quotation marks; quotation marks inside it are escaped."""
    return f'"{"".join(map(_escape_quote, _pieces(text)))}"'


def _escape_quote(piece: str) -> str:
    return '\\"' if piece == '"' else piece


def _pieces(text: str) -> Iterator[str]:
    """Yield the drawing of each character, and of each long run of blanks."""
    end = 0
    for run in BLANKS.finditer(text):
        yield from map(_draw, text[end : run.start()])
        lengths = [(blank, sum(1 for _ in same)) for blank, same in groupby(run.group())]
        yield "".join(_escape(blank, number) for blank, number in lengths)
        end = run.end()
    yield from map(_draw, text[end:])


def _draw(character: str) -> str:
    return _escape(character) if character == "\\" or is_hidden(character) else character


def _escape(character: str, number: int = 1) -> str:
    if number > 1:
        return f"\\u{{{ord(character):x}×{number}}}"
    return _NAMED.get(character) or f"\\u{{{ord(character):x}}}"


def cut(text: str, room: int) -> str:
    """Return at most `room` characters of a text, and the number of the others."""
    return text if len(text) <= room else f"{text[:room]}… ({len(text) - room} characters more)"


def bounded(text: str, longest: int) -> tuple[str, int]:
    """Return the first `longest` characters of a text with a note on the others, and the number of the others."""
    left_out = max(len(text) - longest, 0)
    return f"{text[:longest]} … {left_out} more characters left out" if left_out else text, left_out


def decoded(raw: bytes) -> tuple[str, bool]:
    """Return bytes as text without loss, and whether they are UTF-8; other bytes become `\\xNN`."""
    try:
        return raw.decode("utf-8"), True
    except UnicodeDecodeError:
        return raw.decode("utf-8", "backslashreplace"), False


def unknown(noun: str, name: str, known: Iterable[str]) -> str:
    """Return the sentence about a name that is not known, with those that are, and the one that is most like it."""
    from difflib import get_close_matches

    names = list(known)
    near = get_close_matches(name, names, 1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"no {noun} {name!r:.100}; known: {', '.join(names) or 'none'}{hint}"


def one_line(text: str, limit: int | None = None) -> str:
    """Return a text with each run of blanks as one blank, cut to `limit` characters if a limit is given."""
    line = " ".join(text.split())
    return line if limit is None or len(line) <= limit else f"{line[: limit - 1]}…"


def safe_line(text: object, limit: int = 500) -> str:
    """Return any text as one line of at most `limit` characters that databases, logs and terminals accept: no control
    characters, no lone surrogates."""
    plain = str(text)[: 8 * limit]
    if not plain.isprintable():  # a lone surrogate is not printable
        plain = plain.encode("utf-8", "replace").decode("utf-8")
        plain = "".join(character if character.isprintable() else " " for character in plain)
    is_line = "  " not in plain and plain[:1] != " " and plain[-1:] != " "
    line = plain if is_line else " ".join(plain.split())  # as `one_line` does: each cycle makes several such lines
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def printable(text: str) -> str:
    """Return a text for a terminal: controls except line feeds and tabs are escaped, also characters that hide or turn
    text."""
    return text if text.isascii() and text.isprintable() else text.translate(_CONTROLS)


def escaped(text: str) -> str:
    """Return a text for one line of a log: characters that cannot be printed are escaped as Python does."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def is_hidden(character: str) -> bool:
    """Return whether a character is invisible, is a blank other than U+0020, or changes how others are drawn."""
    if " " <= character <= "~":
        return False
    return unicodedata.category(character) in _HIDDEN or character in _INVISIBLE


# -- values


def value_lines(value: Any, level: int = 0) -> list[str]:
    """Return any JSON-able value, drawn like JSON; each line of a text of several lines has a line of its own.

    Nothing is left out, however deep or long the value is.
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
            first, *other_lines = _leaf(item)
            leaf = [head + first, *other_lines]
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
    """End of an object or list, as opposed to a text inside it."""

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
        line.append(_escape_quote(piece))
    return [*lines, "".join(line) + '"']


def _plain(item: Any) -> str:
    try:
        return json.dumps(item)
    except (TypeError, ValueError):
        return visible(repr(item))


# -- texts as people tell them apart: they differ in more than case, spaces and signs like 🙂 (source of the rules:
# OpenClaw's message deduplication)

#: Least characters of a comparable text; shorter ones are too common to count as repetitions of one another.
_SHORTEST = 10
#: Most characters of a comparable text that is searched for inside others.
_LONGEST_COMPARED = 20_000
#: Least share of the longer text that a shorter text inside it must have to count as a repetition.
_SHARE = 0.5


def repeats(old: str, new: str) -> bool:
    """Return whether a comparable text says nothing that another one did not say; the work is bounded."""
    if min(len(old), len(new)) < _SHORTEST:
        return False
    if old == new:
        return True
    if new.startswith(old):  # "Done." and then "Done. Actually it failed." are two things
        return not any(character.isalnum() for character in new[len(old) :])
    if old in new:
        return len(old) >= _SHARE * len(new)
    return new in old and len(new) >= _SHARE * len(old)


def comparable(text: str) -> str:
    """Return a text without its form: case, spaces, signs like 🙂.

    A very long text is replaced by its digest: it equals an identical text only, and a comparison costs nothing.
    """
    words = " ".join(text.translate(_DRESS).casefold().split())
    if len(words) <= _LONGEST_COMPARED:
        return words
    return f"\0{blake2b(words.encode('utf-8', 'surrogatepass'), digest_size=16).hexdigest()}"


class _Dress(dict[int, str | None]):
    """Translation table that removes signs without meaning; each character is looked up once in a process."""

    def __missing__(self, code: int) -> str | None:
        replacement = self[code] = None if unicodedata.category(chr(code)) in ("So", "Sk", "Cf", "Mn") else chr(code)
        return replacement


_DRESS: Final = _Dress()
