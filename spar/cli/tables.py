"""Formatting of values for people: local times with their zone, durations, amounts; rows by their columns."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from spar.cli.blocks import Block, Fields, styled, table
from spar.data.text import one_line

if TYPE_CHECKING:
    from spar.operations.operation import Column
    from spar.types import Call

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


def listing(columns: Sequence[Column], rows: Sequence[Any], room: int) -> Block:
    """Return rows as a table."""
    return table(_heads(columns), [cells(columns, row) for row in rows], room)


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
    texts = [_FORMS[column.form](value) if value or value == 0 else ""
             for column, value in zip(columns, values, strict=True)]  # fmt: skip
    return [
        (text if column.style is None else styled(text, column.style(row)))
        if text
        else (column.absent(row) if callable(column.absent) else column.absent)
        for column, text in zip(columns, texts, strict=True)
    ]
