"""Lines of a growing file, split from its bytes and joined to records, within bounds; pure.

Omitted text is mentioned in the record and counted. A record has the offsets of its beginning and end, so that the
caller knows where to go on after it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from spar.data.patterns import Pattern

#: Byte order marks at the beginning of a file, by encoding.
_MARKS: Final = {"utf-8": b"\xef\xbb\xbf", "utf-16-le": b"\xff\xfe", "utf-16-be": b"\xfe\xff"}
_SEPARATORS: Final = {"utf-16-le": b"\n\0", "utf-16-be": b"\0\n"}


class Record(Struct, frozen=True):
    """One line, or several that belong together, from offset `begin` to `end`; `left_out` counts bytes."""

    text: str
    begin: int
    end: int
    left_out: int = 0
    is_odd: bool = False  # it has bytes that cannot be decoded
    lines: int = 1


class Lines:
    """Lines of one file; an incomplete line waits for its end.

    Args: encoding: its name in Python's form; longest: bytes of a line that are stored; at: the offset of the first
    byte.
    """

    def __init__(self, encoding: str, longest: int, at: int) -> None:
        self._encoding, self._longest = encoding, longest
        self._separator = _SEPARATORS.get(encoding, b"\n")
        self._begin = self._end = at
        self._line = bytearray()

    @property
    def position(self) -> int:
        """Return the offset at which reading goes on."""
        return self._end

    def feed(self, chunk: bytes) -> Iterator[Record]:
        """Yield the lines that these bytes complete."""
        width, at = len(self._separator), 0
        while (end := self._find(chunk, at)) >= 0:
            self._add(chunk[at:end])
            self._end += width
            at = end + width
            yield self._take_line()
        self._add(chunk[at:])

    def flush(self) -> Iterator[Record]:
        """Yield the incomplete line, because no more bytes will come."""
        if self._end > self._begin:
            yield self._take_line()

    def _find(self, chunk: bytes, at: int) -> int:
        """Return the position of the next separator that begins at a whole character; -1 if there is none."""
        width = len(self._separator)
        place = chunk.find(self._separator, at)
        while place >= 0 and width > 1 and (self._end + place - at) % width:
            place = chunk.find(self._separator, place + 1)
        return place

    def _add(self, part: bytes) -> None:
        self._end += len(part)
        self._line += part[: max(self._longest - len(self._line), 0)]

    def _take_line(self) -> Record:
        begin, end, line = self._begin, self._end, bytes(self._line)
        self._begin, self._line = end, bytearray()
        if begin == 0:
            line = line.removeprefix(_MARKS.get(self._encoding, b"\0\0\0\0never"))
        width = len(self._separator)
        size = end - begin - (width if end - begin >= width else 0)
        left_out = max(size - self._longest, 0)
        try:
            text, is_odd = line.decode(self._encoding), False
        except UnicodeDecodeError as error:
            # A character that the bound cut in two is not an error of the encoding.
            is_cut = left_out > 0 and error.start >= len(line) - 4
            is_odd = not is_cut  # bytes that cannot be decoded are shown as `\\xNN`
            part = line[: error.start] if is_cut else line
            text = part.decode(self._encoding, "backslashreplace")
        text = text.removesuffix("\r")
        if left_out:
            text = f"{text} … {left_out} bytes of this line left out"
        return Record(text, begin, end, left_out, is_odd)


class Records:
    """Records of one file: each line is a record, or with a pattern each matching line begins one.

    Args: begins: the pattern; longest: characters of a record; most: lines of a record.
    """

    def __init__(self, begins: Pattern | None, longest: int, most: int) -> None:
        self._begins, self._longest, self._most = begins, longest, most
        self._lines: list[Record] = []
        self._size = self._left_out = self._count = 0

    def feed(self, line: Record) -> Iterator[Record]:
        """Yield the record that ends before or with this line, if one does."""
        if self._begins is None:
            yield line
            return
        if self._begins.search(line.text) is not None:
            yield from self.flush()
        if self._count and (self._size + len(line.text) > self._longest or len(self._lines) >= self._most):
            self._left_out += line.end - line.begin
        else:
            self._lines.append(line)
            self._size += len(line.text) + 1
        self._count += 1
        self._end = line.end

    def flush(self) -> Iterator[Record]:
        """Yield the incomplete record, because no more lines of it will come."""
        if not self._count:
            return
        lines, count, left_out = self._lines, self._count, self._left_out
        text = "\n".join(line.text for line in lines)
        if count > len(lines):
            text += f"\n… {count - len(lines)} lines of this record left out"
        left_out += sum(line.left_out for line in lines)
        yield Record(text, lines[0].begin, self._end, left_out, any(line.is_odd for line in lines), count)
        self._lines, self._size, self._left_out, self._count = [], 0, 0, 0
