"""Cuts a text that is still being written into blocks that people read as messages of their own; pure.

    cutter = BlockCutter(800, 1_200)
    for piece in pieces:
        for block in cutter.feed(piece):
            send(block.shown)
    for block in cutter.flush():
        send(block.shown)

A block ends at the first end of a paragraph from its least size on. Where there is none up to its most, it ends at the
last end of a line, else of a sentence, else of a word, else at its most. It never ends inside a code fence (three or
more backticks or tildes): it ends before the fence, and a fence that is longer than a block is closed at the end of a
line and opened again, with its language, in the next block. Where the cuts are depends on the text alone, not on the
pieces that it comes in. Source of the rules: OpenClaw's block streaming.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from msgspec import Struct

#: The least size that blocks can be bounded to: enough for a fence that is closed and opened again.
SMALLEST: Final = 100
#: A line that may open or close a fence: its marker, and what stands behind.
_FENCE: Final = re.compile(r" {0,3}(`{3,10}|~{3,10}(?!~))(.*)")
#: The end of a sentence, with the quotes and brackets that belong to it and the space behind.
_SENTENCE: Final = re.compile(r"[.!?…][\"'”’»)\]]*\s+|[。！？]")
_SPACE: Final = re.compile(r"\s+")
#: Signs that join what stands beside them: a zero-width joiner, and selectors of a variant.
_JOINERS: Final = frozenset("\u200d\ufe0e\ufe0f")
_MOST_JOINED: Final = 32


class Block(Struct, frozen=True):
    """Block of a text: `text` as it was written; `before` opens a fence again that the block before has closed,
    `behind` closes one."""

    text: str
    before: str = ""
    behind: str = ""

    @property
    def shown(self) -> str:
        """Return the block as people read it, without blank lines around it."""
        return f"{self.before}{self.text}{self.behind}".strip("\n").rstrip()


class _Fence(Struct, frozen=True):
    """Fence that is open: where its first line begins, the marker, and that line."""

    start: int
    marker: str
    line: str


class BlockCutter:
    """Cutter of one text. Args: least, most: characters of a block.

    Raises: ValueError for sizes that make no sense.
    """

    __slots__ = ("_before", "_blocks", "_ends", "_fence", "_first", "_is_amid", "_line", "_outside", "_sought",
                 "_text", "least", "most", "read")  # fmt: skip

    def __init__(self, least: int, most: int) -> None:
        if not 1 <= least <= most or most < SMALLEST:
            raise ValueError(
                f"a block has {least} to {most} characters, expected 1 <= least <= most, most >= {SMALLEST}"
            )
        self.least, self.most = least, most
        self._text = self._before = ""
        self._blocks: list[Block] = []
        #: Characters that were looked at, for whoever counts the work.
        self.read = 0
        self._begin(0, None)

    def _begin(self, first: int, fence: _Fence | None) -> None:
        """Begin a block at a place of the text. Args: fence: the one that is opened again there."""
        #: Whether the block begins in the middle of a line, which therefore opens and closes nothing.
        self._is_amid = first > 0 and self._text[first - 1 : first] != "\n"
        self._first = self._line = self._sought = first
        self._fence = fence
        self._before = ""
        if fence is not None:
            line = fence.line if len(fence.line) <= self.most // 4 else fence.marker
            self._before = f"{line}\n"
        #: Where the last line outside of fences ended, and the parts of the block that are outside of fences.
        self._ends: list[int] = []
        self._outside: list[tuple[int, int]] = []

    def feed(self, piece: str) -> list[Block]:
        """Take the next piece of the text; return the blocks that are complete now."""
        self._text += piece
        while self._cut():
            pass
        if self._first:
            self._shift()
        return self._taken()

    def flush(self) -> list[Block]:
        """Return the rest: the text is at its end. Another one may begin."""
        rest, before = self._text, self._before
        self._text = ""
        self._begin(0, None)
        if rest:
            self._blocks.append(Block(rest, before))
        return self._taken()

    @property
    def rest(self) -> str:
        """Return the text that stands in no block yet."""
        return self._text

    def _taken(self) -> list[Block]:
        blocks, self._blocks = self._blocks, []
        return blocks

    def _shift(self) -> None:
        """Forget the text that stands in blocks."""
        by = self._first
        self._text = self._text[by:]
        self._first, self._line, self._sought = 0, self._line - by, self._sought - by
        self._ends = [each - by for each in self._ends]
        self._outside = [(start - by, end - by) for start, end in self._outside]
        if self._fence is not None:
            self._fence = _Fence(self._fence.start - by, self._fence.marker, self._fence.line)

    # -- where to cut

    def _cut(self) -> bool:
        """Look through the lines that have come; cut if there is a place, and say so."""
        limit = self._first + self.most - len(self._before)
        while (end := self._text.find("\n", self._sought, limit) + 1) > 0:
            self.read += end - self._sought
            is_blank = not self._text[self._line : end].strip()
            self._line_ended(end)
            if is_blank and self._fence is None and end - self._first >= self.least:
                self._end_block(end)
                return True
        if len(self._text) <= limit:
            self.read += len(self._text) - self._sought
            self._sought = max(self._sought, len(self._text))
            return False
        self.read += limit - self._sought
        self._end_block_somewhere(limit)
        return True

    def _line_ended(self, end: int) -> None:
        """Take a whole line, up to `end`."""
        line, start = self._text[self._line : end].rstrip(), self._line
        self._line = self._sought = end
        match = None if self._is_amid else _FENCE.fullmatch(line)
        self._is_amid = False
        if self._fence is not None:
            marker = self._fence.marker
            if match is not None and match[1].startswith(marker) and not match[2].strip():
                self._fence = None
                self._ends.append(end)  # right behind a fence is outside of it
            return
        if match is not None and _opens(match):
            self._fence = _Fence(start, match[1], line)
            return
        self._outside.append((start, end))
        self._ends.append(end)

    def _end_block_somewhere(self, limit: int) -> None:
        """End the block at the best place up to `limit`, where no paragraph ends."""
        least = min(self._first + self.least, limit)
        fence = self._fence
        if fence is None and not self._is_amid:
            match = _FENCE.match(self._text, self._line, limit)
            if match is not None and _opens(match):  # a line that opens a fence, whose end is not there yet
                fence = _Fence(self._line, "", "")
        if fence is None:
            self._outside.append((self._line, limit))
        ends = [each for each in self._ends if each >= least]
        if ends:
            self._end_block(ends[-1])
        elif (at := self._inside_line(least, limit)) is not None:
            self._end_block(at)
        elif fence is not None and self._text[self._first : max(fence.start, self._first)].strip():
            self._end_block(fence.start)
        elif fence is not None and fence.marker:
            self._end_block_in_fence(fence, least, limit)
        else:
            self._end_block(self._whole_signs(limit))

    def _inside_line(self, least: int, limit: int) -> int | None:
        """Return where the last sentence outside of fences ends, else the last word; None without any."""
        for pattern in (_SENTENCE, _SPACE):
            for start, end in reversed(self._outside):
                start, end = max(start, least - 1), min(end, limit)
                if start >= end:
                    break
                self.read += end - start
                ends = [found.end() for found in pattern.finditer(self._text, start, end)]
                if at := next((each for each in reversed(ends) if each >= least), 0):
                    return at
        return None

    def _end_block_in_fence(self, fence: _Fence, least: int, limit: int) -> None:
        """Close a fence that is too long, and open it again in the next block."""
        limit -= len(fence.marker) + 1
        content = self._first if self._before else fence.start + len(fence.line) + 1
        at = self._text.rfind("\n", max(content, min(least, limit)), limit) + 1
        at = at or self._whole_signs(limit)
        behind = fence.marker if self._text[at - 1] == "\n" else f"\n{fence.marker}"
        self._blocks.append(Block(self._text[self._first : at], self._before, behind))
        self._begin(at, _Fence(at, fence.marker, fence.line))

    def _whole_signs(self, at: int) -> int:
        """Return the nearest place before this one where no sign is parted from what is joined to it."""
        for back in range(min(_MOST_JOINED, at - self._first - 1)):
            here, before = self._text[at - back], self._text[at - back - 1]
            if not (unicodedata.combining(here) or here in _JOINERS or before in _JOINERS or before + here == "\r\n"):
                return at - back
        return at

    def _end_block(self, at: int) -> None:
        self._blocks.append(Block(self._text[self._first : at], self._before))
        self._begin(at, None)


def blocks_of(text: str, least: int, most: int) -> list[str]:
    """Return the blocks of a whole text as people read them. Raises: ValueError as `BlockCutter` does."""
    cutter = BlockCutter(least, most)
    return [shown for block in (*cutter.feed(text), *cutter.flush()) if (shown := block.shown).strip()]


def _opens(line: re.Match[str]) -> bool:
    """Return whether a line with a marker opens a fence: words between backticks are code inside a line."""
    return not (line[1][0] == "`" and "`" in line[2])
