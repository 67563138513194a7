"""Drawing of blocks on a terminal with rich. No other module imports rich; this one is imported only for a terminal.

Texts are drawn literally: rich's markup (`[red]`), emoji names and highlighting are off.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from io import StringIO
from typing import TextIO

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text
from rich.tree import Tree

from spar.cli.blocks import CELL, Block, Branch, Fields, Table, harmless, plain, style_of

#: The rich style of each style of texts.
LOOKS = {"good": "green", "bad": "red", "warn": "yellow", "dim": "dim", "strong": "bold"}
#: Columns of a terminal that are assumed at least.
NARROWEST = 20
#: Columns up to which a cell is never folded: an id, a time, a number.
SHORT = 26
#: Columns of a bar, of a duration, and the least width of a screen that shows both.
BAR, TOOK, WITH_BARS = 20, 9, 76
#: Signs at the beginning of a line; only the sign gets the colour then.
SIGNS = ("✓", "✗", "–", "?")
_FULL, _WAIT = "█", "░"


def is_drawn() -> bool:
    """Return whether standard output is a terminal that can show lines and signs."""
    encoding = (sys.stdout.encoding or "").lower().replace("-", "")
    return sys.stdout.isatty() and encoding == "utf8" and os.environ.get("TERM") != "dumb"


def draw(blocks: Sequence[Block]) -> str:
    """Return blocks as text for the terminal of standard output, in its width, with colour unless NO_COLOR is set."""
    width = max(shutil.get_terminal_size().columns, NARROWEST)
    target = StringIO()
    console = console_of(target, width)
    for block in blocks:
        if isinstance(block, str):
            target.write(plain(block) + "\n")  # not folded, so that people can copy it
        else:
            console.print(_drawn(block, width))
    return target.getvalue().removesuffix("\n")


def console_of(target: TextIO, width: int) -> Console:
    """Return a console that writes literal texts for a terminal of this width, with colour unless NO_COLOR is set."""
    return Console(
        file=target, width=width, force_terminal=True, legacy_windows=False, highlight=False, markup=False, emoji=False,
        color_system=None if os.environ.get("NO_COLOR") else "standard", _environ={},
    )  # fmt: skip


def _drawn(block: Table | Fields | Branch, width: int) -> RenderableType:
    match block:
        case Table():
            return _table(block, width)
        case Fields():
            return _fields(block)
    tree = Tree(_line(block, width), guide_style="dim")
    _grow(tree, block, width)
    return tree


def _text(text: str, room: int) -> Text:
    return Text(harmless(text, room), LOOKS.get(style_of(text), ""))


def _table(table: Table, width: int) -> RenderableType:
    longest = [max((len(cell) for cell in column), default=0) for column in zip(*table.cells(), strict=True)]
    longest = longest or [0] * len(table.heads)
    heads = [head.removeprefix(">") for head in table.heads]
    least = [max(min(size, SHORT), min(len(head), SHORT)) for size, head in zip(longest, heads, strict=True)]
    if sum(least) + 2 * len(heads) > width:
        return _records(table, heads)
    rich_table = RichTable(
        box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold", border_style="dim"
    )
    for head, name, size in zip(table.heads, heads, longest, strict=True):
        rich_table.add_column(
            Text(name), justify="right" if head.startswith(">") else "left", overflow="fold", no_wrap=size <= SHORT
        )
    for row in table.rows:
        rich_table.add_row(*(_text(cell, table.room) for cell in row))
    return rich_table


def _records(table: Table, heads: Sequence[str]) -> RenderableType:
    """Return a table that is too wide for the screen as records, with a line for each non-empty cell."""
    width = max(map(len, heads), default=0)
    records = [
        _fields(Fields("", tuple((head, cell) for head, cell in zip(heads, row, strict=True) if cell), width, 0))
        for row in table.rows
    ]
    return Group(*(part for record in records for part in (record, Text(""))))


def _fields(fields: Fields) -> RenderableType:
    grid = RichTable.grid(padding=(0, 1, 0, 0))
    grid.add_column(style="dim", no_wrap=True, width=max(fields.width, *(len(label) for label, _ in fields.rows), 1))
    grid.add_column(overflow="fold")
    for label, text in fields.rows:
        grid.add_row(Text(" " * fields.indent + label), _text(text, fields.room))
    grid.columns[0].width = (grid.columns[0].width or 0) + fields.indent
    return Group(_text(fields.title, fields.room), grid) if fields.title else grid


def _grow(tree: Tree, branch: Branch, width: int) -> None:
    for child in branch.children:
        _grow(tree.add(_line(child, width)), child, width)


def _line(branch: Branch, width: int) -> RenderableType:
    """Return the text of a branch, with its duration and its bar at the right edge if the screen is wide enough."""
    text = _text(branch.text, 2 * CELL)
    if text.plain[:1] in SIGNS and (style := text.style):
        text.style = ""
        text.stylize(style, 0, 1)
    if width < WITH_BARS or not (branch.took or branch.bar):
        return text.append(f"  {branch.took}", "dim") if branch.took else text
    grid = RichTable.grid(expand=True, padding=(0, 0, 0, 1))
    grid.add_column(ratio=1, overflow="fold")
    grid.add_column(width=TOOK, justify="right", no_wrap=True, style="dim")
    grid.add_column(width=BAR + 1, no_wrap=True)
    grid.add_row(text, Text(branch.took), _bar(branch.bar))
    return grid


def _bar(bar: tuple[float, float, float] | None) -> Text:
    """Return a bar: blank before the wait, then the wait, then the work, which has at least one sign."""
    if bar is None:
        return Text("")
    waits, begins, ends = (min(max(round(part * BAR), 0), BAR) for part in bar)
    begins = min(begins, BAR - 1)
    ends = max(ends, begins + 1)
    waits = min(waits, begins)
    return Text(" " * waits).append(_WAIT * (begins - waits), "dim").append(_FULL * (ends - begins), "cyan")
