"""Kinds of lines that perception knows, as far as others read their rows: which of them are new."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from msgspec import Struct

#: First part of the owner of the rows of the pipeline, and of the key of a kind of line.
ROWS, KEY = "pipeline", "template/"
#: Places in a row: the session, trust, source, subject and kind of its lines; an example; when the first one came.
_SCOPE, _EXAMPLE, FIRST_AT = 0, 4, 5
_SOURCE: Final = 2


class NewLine(Struct, frozen=True):
    """Kind of line: its source, an example, and when the first line of it came."""

    source: str
    example: str
    first_at: datetime


def new_lines(rows: Mapping[str, Any], since: datetime) -> Iterator[NewLine]:
    """Yield the kinds of lines whose first line came since a time; those of which that is not known are left out."""
    earliest = since.timestamp()
    for key, row in rows.items():
        if not (key.startswith(KEY) and isinstance(row, list) and len(row) > FIRST_AT):
            continue
        at = row[FIRST_AT]
        if isinstance(at, (int, float)) and at >= earliest:
            yield NewLine(str(row[_SCOPE][_SOURCE]), str(row[_EXAMPLE]), datetime.fromtimestamp(at, UTC))
