"""Splitter of a text, while it is being written, into blocks that are sent as single messages. Pure.

    cutter = BlockCutter(800, 1_200)
    for piece in pieces:
        for block in cutter.feed(piece):
            send(block.shown)
    for block in cutter.flush():
        send(block.shown)

A block ends at the first end of a paragraph beyond its least size. If there is none up to its greatest size, it ends at
the last end of a line, else of a sentence, else of a word, else at its greatest size. It never ends inside a code fence
(three or more backticks or tildes): it ends before the fence. A fence that is longer than a block is closed at the end
of a line and opened again, with its language, in the next block. The cuts depend on the text alone, not on its pieces.
Source of the rules: OpenClaw's block streaming.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from msgspec import Struct

#: The sign of a call's status. Other statuses are shown by name.
SIGNS: Final = {
    "ok": "✓", "failed": "✗", "timeout": "✗", "denied": "✗", "skipped": "–", "cancelled": "–"
}  # fmt: skip
#: The smallest allowed greatest size: enough for a fence that is closed and opened again.
SMALLEST: Final = 100
#: A line that may open or close a fence: its marker, and the text after it.
_FENCE: Final = re.compile(r" {0,3}(`{3,10}|~{3,10}(?!~))(.*)")
#: The end of a sentence, with its closing quotes and brackets and the space after it.
_SENTENCE: Final = re.compile(r"[.!?…][\"'”’»)\]]*\s+|[。！？]")
#: Signs behind which a text is cut into pieces, the best first.
_ENDS: Final = ("\n\n", "\n", ". ", " ")
_SPACE: Final = re.compile(r"\s+")
#: Characters that join their neighbours: the zero-width joiner, and variation selectors.
_JOINERS: Final = frozenset("\u200d\ufe0e\ufe0f")
_MOST_JOINED: Final = 32


class Block(Struct, frozen=True):
    """Block of a text: `text` as it was written. `before` opens a fence again that the block before has closed;
    `behind` closes one."""

    text: str
    before: str = ""
    behind: str = ""

    @property
    def shown(self) -> str:
        """Return the block as people read it, without blank lines around it."""
        return f"{self.before}{self.text}{self.behind}".strip("\n").rstrip()


class _Fence(Struct, frozen=True):
    """Open code fence: where its first line begins, its marker, and that line."""

    start: int
    marker: str
    line: str


class BlockCutter:
    """Splitter of one text. Args: least, most: characters of a block.

    Raises: ValueError for impossible sizes.
    """

    __slots__ = ("_before", "_blocks", "_ends", "_fence", "_first", "_is_mid_line", "_line", "_outside", "_scanned",
                 "least", "most", "read", "rest")  # fmt: skip

    def __init__(self, least: int, most: int) -> None:
        if not 1 <= least <= most or most < SMALLEST:
            raise ValueError(
                f"a block has {least} to {most} characters, expected 1 <= least <= most, most >= {SMALLEST}"
            )
        self.least, self.most = least, most
        self.rest = ""  # the text that is in no block yet
        self._before = ""
        self._blocks: list[Block] = []
        #: The number of characters that were scanned, so that tests can measure the work.
        self.read = 0
        self._begin(0, None)

    def _begin(self, first: int, fence: _Fence | None) -> None:
        """Begin a block at a position of the text. Args: fence: the fence that the block opens again."""
        #: Whether the block begins in the middle of a line, which cannot open or close a fence.
        self._is_mid_line = first > 0 and self.rest[first - 1 : first] != "\n"
        self._first = self._line = self._scanned = first
        self._fence = fence
        self._before = ""
        if fence is not None:
            line = fence.line if len(fence.line) <= self.most // 4 else fence.marker
            self._before = f"{line}\n"
        #: The ends of the lines outside of fences, and the parts of the block outside of fences.
        self._ends: list[int] = []
        self._outside: list[tuple[int, int]] = []

    def feed(self, piece: str) -> list[Block]:
        """Add the next piece of the text; return the blocks that are complete now."""
        self.rest += piece
        while self._scan():
            pass
        if self._first:
            self._drop_finished()
        return self._take_blocks()

    def flush(self) -> list[Block]:
        """Return the remaining blocks at the end of the text. A new text may follow."""
        rest, before = self.rest, self._before
        self.rest = ""
        self._begin(0, None)
        if rest:
            self._blocks.append(Block(rest, before))
        return self._take_blocks()

    def _take_blocks(self) -> list[Block]:
        blocks, self._blocks = self._blocks, []
        return blocks

    def _drop_finished(self) -> None:
        """Drop the text that is in finished blocks."""
        by = self._first
        self.rest = self.rest[by:]
        self._first, self._line, self._scanned = 0, self._line - by, self._scanned - by
        self._ends = [end - by for end in self._ends]
        self._outside = [(start - by, end - by) for start, end in self._outside]
        if self._fence is not None:
            self._fence = _Fence(self._fence.start - by, self._fence.marker, self._fence.line)

    # -- where to cut

    def _scan(self) -> bool:
        """Scan the new lines; end a block if possible, and return whether one was ended."""
        limit = self._first + self.most - len(self._before)
        while (end := self.rest.find("\n", self._scanned, limit) + 1) > 0:
            self.read += end - self._scanned
            is_blank = not self.rest[self._line : end].strip()
            self._line_ended(end)
            if is_blank and self._fence is None and end - self._first >= self.least:
                self._end_block(end)
                return True
        if len(self.rest) <= limit:
            self.read += len(self.rest) - self._scanned
            self._scanned = max(self._scanned, len(self.rest))
            return False
        self.read += limit - self._scanned
        self._end_block_somewhere(limit)
        return True

    def _line_ended(self, end: int) -> None:
        """Process one complete line, up to `end`."""
        line, start = self.rest[self._line : end].rstrip(), self._line
        self._line = self._scanned = end
        match = None if self._is_mid_line else _FENCE.fullmatch(line)
        self._is_mid_line = False
        if self._fence is not None:
            marker = self._fence.marker
            if match is not None and match[1].startswith(marker) and not match[2].strip():
                self._fence = None
                self._ends.append(end)  # the position after a fence is outside of it
            return
        if match is not None and _opens(match):
            self._fence = _Fence(start, match[1], line)
            return
        self._outside.append((start, end))
        self._ends.append(end)

    def _end_block_somewhere(self, limit: int) -> None:
        """End the block at the best position up to `limit`, if no paragraph ends before it."""
        least = min(self._first + self.least, limit)
        fence = self._fence
        if fence is None and not self._is_mid_line:
            match = _FENCE.match(self.rest, self._line, limit)
            if match is not None and _opens(match):  # an unfinished line that opens a fence
                fence = _Fence(self._line, "", "")
        if fence is None:
            self._outside.append((self._line, limit))
        ends = [end for end in self._ends if end >= least]
        if ends:
            self._end_block(ends[-1])
        elif (at := self._inside_line(least, limit)) is not None:
            self._end_block(at)
        elif fence is not None and self.rest[self._first : max(fence.start, self._first)].strip():
            self._end_block(fence.start)
        elif fence is not None and fence.marker:
            self._end_block_in_fence(fence, least, limit)
        else:
            self._end_block(self._whole_signs(limit))

    def _inside_line(self, least: int, limit: int) -> int | None:
        """Return the last end of a sentence outside of fences, else of a word; None without any."""
        for pattern in (_SENTENCE, _SPACE):
            for start, end in reversed(self._outside):
                start, end = max(start, least - 1), min(end, limit)
                if start >= end:
                    break
                self.read += end - start
                positions = [match.end() for match in pattern.finditer(self.rest, start, end)]
                if at := next((position for position in reversed(positions) if position >= least), 0):
                    return at
        return None

    def _end_block_in_fence(self, fence: _Fence, least: int, limit: int) -> None:
        """Close a fence that is too long, and open it again in the next block."""
        limit -= len(fence.marker) + 1
        content = self._first if self._before else fence.start + len(fence.line) + 1
        at = self.rest.rfind("\n", max(content, min(least, limit)), limit) + 1
        at = at or self._whole_signs(limit)
        behind = fence.marker if self.rest[at - 1] == "\n" else f"\n{fence.marker}"
        self._blocks.append(Block(self.rest[self._first : at], self._before, behind))
        self._begin(at, _Fence(at, fence.marker, fence.line))

    def _whole_signs(self, at: int) -> int:
        """Return the last position up to `at` that does not split a combined character."""
        for back in range(min(_MOST_JOINED, at - self._first - 1)):
            here, before = self.rest[at - back], self.rest[at - back - 1]
            if not (unicodedata.combining(here) or here in _JOINERS or before in _JOINERS or before + here == "\r\n"):
                return at - back
        return at

    def _end_block(self, at: int) -> None:
        self._blocks.append(Block(self.rest[self._first : at], self._before))
        self._begin(at, None)


def blocks_of(text: str, least: int, most: int) -> list[str]:
    """Return the blocks of a whole text, without empty ones. Raises: ValueError as `BlockCutter` does."""
    cutter = BlockCutter(least, most)
    return [shown for block in (*cutter.feed(text), *cutter.flush()) if (shown := block.shown).strip()]


def pieces_of(text: str, most: int) -> list[str]:
    """Return a text in pieces of at most `most` characters, which together are the whole. A piece ends at a paragraph,
    a line, a sentence or a word, if one ends in its second half."""
    parts: list[str] = []
    start = 0
    while len(text) - start > most:
        end = start + most
        for sign in _ENDS:
            at = text.rfind(sign, start + most // 2, end)
            if at >= 0:
                end = at + len(sign)
                break
        parts.append(text[start:end])
        start = end
    parts.append(text[start:])
    return parts


def _opens(line: re.Match[str]) -> bool:
    """Return whether a line with a marker opens a fence. A line with text between backticks is inline code."""
    return not (line[1][0] == "`" and "`" in line[2])
