"""Blocks of an answer for people: tables, fields, trees and texts, and the formats of values: local times, durations,
amounts, rows by their columns. This module renders plain lines; `screen` draws.

Only here are shown texts escaped (`spar.data.text.printable`), and texts in a line shortened, with `…` at the end.
`--json` has the whole texts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec import Struct

from spar.data.text import one_line, printable

if TYPE_CHECKING:
    from spar.operations.operation import Column
    from spar.types import Call

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
        columns = zip(table.heads, row, widths, strict=True)
        padded = (cell.rjust(width) if head.startswith(">") else cell.ljust(width) for head, cell, width in columns)
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


# -- values

#: Characters of an id that are shown; commands accept any unique beginning of an id.
ID = 12
#: Characters of a text that a tree shows; `--json` has all of it.
TEXT = 200


def local(at: Any) -> str:
    """Return a time (ISO text) in the zone of this machine, to the second; "" for anything else."""
    try:
        return datetime.fromisoformat(str(at)).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except ValueError:
        return ""


def zoned(head: str) -> str:
    """Return the head of a column with the zone of `local`: `started (CET)`."""
    return f"{head} ({datetime.now().astimezone().tzname()})"


def took(seconds: float) -> str:
    """Return a measured duration: `340 µs`, `3.5 ms`, `12.01 s`."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} µs"
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


def span(seconds: float) -> str:
    """Return a long duration: `93 s`; from two minutes on in its two largest units: `2 h 5 min`."""
    if seconds < 120:
        return f"{max(seconds, 0.0):.0f} s"
    from spar.review.render import span as in_units

    return in_units(seconds)


def money(millionths: float) -> str:
    """Return an amount of money, which is given in millionths."""
    return f"{millionths / 1_000_000:,.4f}".rstrip("0").rstrip(".")


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: "1 thing", "2 things"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def short(value: Any) -> str:
    """Return the beginning of a value, on one line."""
    return one_line(_text_of(value), TEXT)


def call_text(call: Call) -> str:
    """Return a call with its parameters in short."""
    return f"{call.tool}({', '.join(f'{name}={short(value)}' for name, value in call.params.items())})"


def _text_of(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


# -- columns

#: The text of a cell, by the form of its column.
_FORMS: Final[dict[str, Callable[[Any], str]]] = {
    "text": str, "time": local, "line": _text_of, "list": ", ".join, "took": took,
    "each": "\n".join,
}  # fmt: skip


def listing(columns: Sequence[Column], rows: Sequence[Any]) -> Block:
    """Return rows as a table."""
    return table(_heads(columns), [cells(columns, row) for row in rows])


def record(fields: Sequence[Column], answer: Any, title: str = "") -> Fields:
    """Return the values of one record with their labels; empty ones are left out."""
    rows = [
        (head, part)
        for head, field, text in zip(_heads(fields), fields, cells(fields, answer), strict=True)
        for part in (text.split("\n") if field.form == "each" else [text])
        if part
    ]
    width = max(len(head) for head, _ in rows) + 1
    return Fields(title, tuple(rows), width, indent=2 if title else 0)


def _heads(columns: Sequence[Column]) -> list[str]:
    """Return the heads of columns; that of the first time names its zone."""
    first = next((column for column in columns if column.form == "time"), None)
    return [zoned(column.head) if column is first else column.head for column in columns]


def cells(columns: Sequence[Column], row: Any) -> list[str]:
    """Return the texts of a row."""
    values = [column.cell(row) if callable(column.cell) else getattr(row, column.cell) for column in columns]
    return [_cell(column, row, value) for column, value in zip(columns, values, strict=True)]


def _cell(column: Column, row: Any, value: Any) -> str:
    if not (text := _FORMS[column.form](value) if value or value == 0 else ""):
        return column.absent(row) if callable(column.absent) else column.absent
    return text if column.style is None else styled(text, column.style(row))
