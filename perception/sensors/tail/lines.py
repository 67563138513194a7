"""Bytes of a growing file, cut into lines, and lines joined to records, within bounds. Pure.

What is left out of a record is said in it and counted. A record knows the offsets at which it begins and ends, so that
who has handed it over knows where to go on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from spar.data.patterns import Pattern

#: What a file in an encoding with a mark may begin with.
_MARKS: Final = {"utf-8": b"\xef\xbb\xbf", "utf-16-le": b"\xff\xfe", "utf-16-be": b"\xfe\xff"}
_SEPARATORS: Final = {"utf-16-le": b"\n\0", "utf-16-be": b"\0\n"}


class Record(Struct, frozen=True):
    """One line, or several that belong together, from offset `begin` up to `end`; `left_out` counts bytes."""

    text: str
    begin: int
    end: int
    left_out: int = 0
    is_odd: bool = False  # it has bytes that are none of the encoding
    lines: int = 1


class Lines:
    """The lines of one file; a line that has no end yet waits.

    Args: encoding: its name as Python writes it; at: the offset at which it begins; longest: bytes kept of a line.
    """

    def __init__(self, encoding: str, at: int, longest: int) -> None:
        self._encoding, self._longest = encoding, longest
        self._separator = _SEPARATORS.get(encoding, b"\n")
        self._begin = self._end = at
        self._kept = bytearray()

    @property
    def has_rest(self) -> bool:
        """Return whether a line waits for its end."""
        return self._end > self._begin

    @property
    def position(self) -> int:
        """Return the offset at which reading goes on."""
        return self._end

    def feed(self, chunk: bytes) -> Iterator[Record]:
        """Yield the lines that have come to their end with these bytes."""
        width, at = len(self._separator), 0
        while (found := self._find(chunk, at)) >= 0:
            self._add(chunk[at:found])
            self._end += width
            at = found + width
            yield self._taken()
        self._add(chunk[at:])

    def flush(self) -> Iterator[Record]:
        """Yield what waits: there is no more to come."""
        if self.has_rest:
            yield self._taken()

    def _find(self, chunk: bytes, at: int) -> int:
        """Return where a separator stands, at the beginning of a character; -1 where none does."""
        width = len(self._separator)
        found = chunk.find(self._separator, at)
        while found >= 0 and width > 1 and (self._end + found - at) % width:
            found = chunk.find(self._separator, found + 1)
        return found

    def _add(self, part: bytes) -> None:
        self._end += len(part)
        self._kept += part[: max(self._longest - len(self._kept), 0)]

    def _taken(self) -> Record:
        begin, end, kept = self._begin, self._end, bytes(self._kept)
        self._begin, self._kept = end, bytearray()
        if begin == 0:
            kept = kept.removeprefix(_MARKS.get(self._encoding, b"\0\0\0\0never"))
        width = len(self._separator)
        size = end - begin - width if end - begin >= width else end - begin
        left_out = max(size - self._longest, 0)
        try:
            text, is_odd = kept.decode(self._encoding), False
        except UnicodeDecodeError as error:
            # A character that the bound has cut is nothing odd.
            is_cut = left_out > 0 and error.start >= len(kept) - 4
            text = kept[: error.start].decode(self._encoding) if is_cut else _visible(kept, self._encoding)
            is_odd = not is_cut
        text = text.removesuffix("\r")
        if left_out:
            text = f"{text} … {left_out} bytes of this line left out"
        return Record(text, begin, end, left_out, is_odd)


class Records:
    """The records of one file: each line is one, or with a pattern each that matches begins one.

    Args: begins: the pattern; longest: characters of a record; most: its lines.
    """

    def __init__(self, begins: Pattern | None, longest: int, most: int) -> None:
        self._begins, self._longest, self._most = begins, longest, most
        self._lines: list[Record] = []
        self._size = self._left_out = self._count = 0

    @property
    def has_rest(self) -> bool:
        """Return whether lines wait for more of their record."""
        return self._count > 0

    def feed(self, line: Record) -> Iterator[Record]:
        """Yield the record that this line ends, if it ends one."""
        if self._begins is None:
            yield line
            return
        if self._begins.search(line.text) is not None:
            yield from self.flush()
        if self._count and (self._size + len(line.text) > self._longest or len(self._lines) >= self._most):
            self._left_out += line.end - line.begin
            self._lines[-1:] = [self._lines[-1]]
        else:
            self._lines.append(line)
            self._size += len(line.text) + 1
        self._count += 1
        self._end = line.end

    def flush(self) -> Iterator[Record]:
        """Yield the record that waits: no more of it is to come."""
        if not self._count:
            return
        kept, count, left_out = self._lines, self._count, self._left_out
        text = "\n".join(each.text for each in kept)
        if count > len(kept):
            text += f"\n… {count - len(kept)} lines of this record left out"
        left_out += sum(each.left_out for each in kept)
        yield Record(text, kept[0].begin, self._end, left_out, any(each.is_odd for each in kept), count)
        self._lines, self._size, self._left_out, self._count = [], 0, 0, 0


def _visible(kept: bytes, encoding: str) -> str:
    """Return the text with what cannot be decoded as `\\xNN`."""
    return kept.decode(encoding, "backslashreplace")
