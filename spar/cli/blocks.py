"""Blocks of an answer for people: tables, fields, trees and texts. This module renders plain lines; `screen` draws.

Only here are shown texts escaped (`spar.data.text.printable`), and texts in a line shortened, with `…` at the end.
`--json` has the whole texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from msgspec import Struct

from spar.data.text import one_line, printable

#: Characters of a text that a cell or a line shows.
CELL = 200
#: Room of a cell whose text is bounded already, or must be shown whole.
UNCUT = 1_000_000
#: Characters that are examined for each one that may be shown, so that a text of a megabyte costs no more.
_LOOKED_AT = 8
#: Styles of texts by their meaning; `screen` has the colours.
STYLES = ("good", "bad", "warn", "dim", "strong")


class Styled(str):
    """Text with a style; only the drawing on a terminal uses the style.

    Attributes: style: one of `STYLES`, or "".
    """

    __slots__ = ("style",)
    style: str


def styled(text: str, style: str) -> Styled:
    """Return a text with a style."""
    result = Styled(text)
    result.style = style
    return result


def style_of(text: str) -> str:
    """Return the style of a text, "" for one without a style."""
    return text.style if isinstance(text, Styled) else ""


class Table(Struct, frozen=True):
    """Rows under a header.

    Attributes: heads: the header; a ">" at the beginning of one aligns its column to the right; room: the largest
        number of characters of a cell.
    """

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    room: int = CELL

    def cells(self) -> list[list[str]]:
        """Return the rows, each cell escaped and on one line."""
        return [_harmless(row, self.room) for row in self.rows]


class Fields(Struct, frozen=True):
    """Rows of a label and a text, under a title if that is not "". Repeated labels are shown each time."""

    title: str
    rows: tuple[tuple[str, str], ...]
    width: int = 8
    indent: int = 2
    room: int = 500


class Branch(Struct, frozen=True):
    """Line of a tree with the lines below it.

    Attributes:
        took: Its duration for people, "" for none.
        bar: The times when its wait began, its work began and its work ended, as shares (0 to 1) of the tree's time;
            None: no bar.
    """

    text: str
    children: tuple[Branch, ...] = ()
    took: str = ""
    bar: tuple[float, float, float] | None = None


Block: TypeAlias = str | Table | Fields | Branch


def harmless(text: object, room: int = CELL) -> str:
    """Return any text as one escaped line of at most `room` characters; a cut one ends with `…`."""
    return _harmless([text], room)[0]


def _harmless(texts: Iterable[object], room: int) -> list[str]:
    wholes, most = [text if isinstance(text, str) else str(text) for text in texts], _LOOKED_AT * room
    lines = [one_line(printable(whole[:most])) for whole in wholes]
    return [f"{line[: room - 1]}…" if len(line) > room or len(whole) > most else line
            for line, whole in zip(lines, wholes, strict=True)]  # fmt: skip


def plain(block: Block) -> str:
    """Return a block as lines without colour, boxes and folding, for pipes, files and simple terminals."""
    match block:
        case Table():
            return "\n".join(_table_lines(block))
        case Fields():
            return "\n".join(_field_lines(block))
        case Branch():
            return "\n".join(_branch_lines(block, 0))
    return printable(block)


def _table_lines(table: Table) -> Iterator[str]:
    cells = [[head.removeprefix(">") for head in table.heads], *table.cells()]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        padded = (
            cell.rjust(width) if head.startswith(">") else cell.ljust(width)
            for head, cell, width in zip(table.heads, row, widths, strict=True)
        )
        yield "  ".join(padded).rstrip()


def _field_lines(fields: Fields) -> Iterator[str]:
    if fields.title:
        yield harmless(fields.title, fields.room)
    texts = _harmless((text for _, text in fields.rows), fields.room)
    for (label, _), text in zip(fields.rows, texts, strict=True):
        yield f"{'':{fields.indent}}{label:<{fields.width}} {text}".rstrip()


def _branch_lines(branch: Branch, level: int) -> Iterator[str]:
    took = f"  {branch.took}" if branch.took else ""
    yield f"{'  ' * level}{harmless(branch.text, 2 * CELL)}{took}"
    for child in branch.children:
        yield from _branch_lines(child, level + 1)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], room: int = CELL) -> Table:
    """Return rows under a header as a block."""
    return Table(tuple(heads), tuple(tuple(row) for row in rows), room)
