"""Parts that the texts for people share: rows, calls, times, and lines of a list."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from spar.data.text import cut, value_line, value_lines, visible
from spar.types import Call

#: Most characters of one text in a list.
ROOM = 60


def document(title: str, rows: Iterable[tuple[str, str]], *sections: Iterable[str]) -> str:
    """Return the full text of a record: its title, a row for each property, and sections of lines below."""
    lines = [title, *(f"  {name:11}{text}" for name, text in rows)]
    for section in sections:
        lines += section
    return "\n".join(lines)


def list_cells(id: str, state: str, age: timedelta, session: str, about: str, marks: Iterable[str], value: Any,
               room: int) -> tuple[str, ...]:  # fmt: skip
    """Return the cells of a row in a list; each shows at most `room` characters of a text, and the number of the
    others."""
    return (
        visible(id),
        state,
        f"{span(age.total_seconds())} ago",
        cut(visible(session), room),
        cut(visible(about), room),
        " ".join([*marks, cut(value_line(value), room)]),
    )


def call_lines(title: str, call: Call) -> list[str]:
    """Return the complete call below a title, with the plan's reason."""
    lines = [f"  {title}", f"    {visible(call.tool)}", *value_lines(call.params, 2)]
    if call.reason:
        lines.append(f"    the plan says why: {visible(call.reason)}")
    return lines


def warning_lines(warnings: Iterable[str]) -> list[str]:
    """Return each warning as a line of a document."""
    return [f"  WARNING    {warning}" for warning in warnings]


def origin(session: str, run_id: str | None, cycle_id: str) -> str:
    """Return the session, run and cycle that a record belongs to."""
    places = (("session", session), ("run", run_id), ("cycle", cycle_id))
    return ", ".join(f"{name} {visible(id)}" for name, id in places if id)


def author(name: str) -> str:
    """Return ` by NAME`, or "" if nobody is known."""
    return f" by {visible(name)}" if name else ""


def moment(at: datetime, now: datetime | None = None) -> str:
    """Return a time to the second; with `now`, also its age."""
    ago = f" ({span((now - at).total_seconds())} ago)" if now is not None else ""
    return f"{at:%Y-%m-%d %H:%M:%S} UTC{ago}"


def span(seconds: float) -> str:
    """Return a duration in its two largest units."""
    remaining = max(0, int(seconds))
    parts: list[str] = []
    for name, size in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        number, remaining = divmod(remaining, size)
        if number or (name == "s" and not parts):
            parts.append(f"{number} {name}")
    return " ".join(parts[:2])
