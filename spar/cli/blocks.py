"""Blocks that an answer for people is made of: tables, fields, trees and texts; as plain lines here, drawn by `screen`.

This is the one place where what is shown is made harmless (`spar.data.text.printable`) and where a text that stands in
a line is shortened, visibly: with `…` at its end. `--json` has all of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from msgspec import Struct

from spar.data.text import one_line, printable

#: Characters of a text that are shown in a cell or a line.
CELL = 200
#: Room of a cell whose text is bounded already, or must be seen whole.
UNCUT = 1_000_000
#: So many characters before the cut are looked at for one that is shown: a word of a megabyte costs no more.
_LOOKED_AT = 8
#: What a text means; how that looks is the screen's matter.
STYLES = ("good", "bad", "warn", "dim", "strong")


class Styled(str):
    """Text that means something; everywhere but on a terminal it is like any other.

    Attributes: style: one of `STYLES`, or "".
    """

    __slots__ = ("style",)
    style: str


def styled(text: str, style: str) -> Styled:
    """Return a text with what it means."""
    found = Styled(text)
    found.style = style
    return found


def style_of(text: str) -> str:
    """Return what a text means; "" for one that says nothing about it."""
    return text.style if isinstance(text, Styled) else ""


class Table(Struct, frozen=True):
    """Rows under a header; a head that begins with ">" has its column to the right. `room` is for each cell."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    room: int = CELL

    def cells(self) -> list[list[str]]:
        """Return the rows, each cell harmless and on one line."""
        return [[harmless(cell, self.room) for cell in row] for row in self.rows]


class Fields(Struct, frozen=True):
    """Rows of a label and a text, under a title if that is not "". A label that repeats is shown each time."""

    title: str
    rows: tuple[tuple[str, str], ...]
    width: int = 8
    indent: int = 2
    room: int = 500


class Branch(Struct, frozen=True):
    """Line of a tree with the lines below it.

    Attributes:
        took: how long it took, for people; "" for nothing to say.
        bar: when it began to wait, began and ended, each from 0 to 1 of the whole tree's time; None for no bar.
    """

    text: str
    children: tuple[Branch, ...] = ()
    took: str = ""
    bar: tuple[float, float, float] | None = None


Block: TypeAlias = str | Table | Fields | Branch


def harmless(text: object, room: int = CELL) -> str:
    """Return any text as one line that a terminal can take, of at most `room` characters; a cut one ends with `…`."""
    whole = text if isinstance(text, str) else str(text)
    line = one_line(printable(whole[: _LOOKED_AT * room]))
    if len(line) > room or len(whole) > _LOOKED_AT * room:
        line = f"{line[: room - 1]}…"
    return line


def plain(block: Block) -> str:
    """Return a block as lines without colour, boxes and folding: for pipes, files and terminals that cannot draw."""
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
    for label, text in fields.rows:
        yield f"{'':{fields.indent}}{label:<{fields.width}} {harmless(text, fields.room)}".rstrip()


def _branch_lines(branch: Branch, level: int) -> Iterator[str]:
    took = f"  {branch.took}" if branch.took else ""
    yield f"{'  ' * level}{harmless(branch.text, 2 * CELL)}{took}"
    for child in branch.children:
        yield from _branch_lines(child, level + 1)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], room: int = CELL) -> Table:
    """Return rows under their header as a block."""
    return Table(tuple(heads), tuple(tuple(row) for row in rows), room)
