"""Calls in doubt and dead letters as a person reads them: what may have happened, what was put aside, and why.

Whoever answers has only this text to go by, and much of it comes from outside: all of it is drawn by `spar.data.text`,
so that nothing hides or moves, and is cut only where a list says by how much. Pure functions.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from spar.data.text import value_lines, visible
from spar.records.journal import DeadLetter, Doubt
from spar.review.approvals import span, warnings

#: What each answer means, as it is told to whoever looks.
ANSWERS = {
    "done": "done: it had its effect",
    "failed": "failed: it had no effect",
    "again": "again: it had no effect, and was made once more in a cycle of its own",
}
_OPEN = "in doubt: nobody here knows whether it had its effect"


# -- calls in doubt


def doubt_full(doubt: Doubt, now: datetime) -> str:
    """All that is known of a call in doubt; the call is shown whole."""
    call = doubt.call
    rows = [
        ("status", _OPEN if doubt.answer is None else ANSWERS[doubt.answer]),
        ("tool", visible(call.tool)),
        ("of", ", ".join(_of(doubt.session, doubt.run_id, doubt.cycle_id))),
        ("since", _moment(doubt.at, now)),
        ("why", visible(doubt.why)),
    ]
    if doubt.answered_at is not None:
        by = f" by {visible(doubt.answered_by)}" if doubt.answered_by else ""
        rows.append(("answered", f"{_moment(doubt.answered_at, now)}{by}"))
    if doubt.reason:
        rows.append(("reason", visible(doubt.reason)))
    lines = [f"call in doubt {visible(doubt.id)}", *_rows(rows)]
    if doubt.output is not None:
        lines += ["  its output, as answered", *value_lines(doubt.output, 2)]
    lines += ["  the call", f"    {visible(call.tool)}", *value_lines(call.params, 2)]
    if call.reason:
        lines.append(f"    the plan says why: {visible(call.reason)}")
    lines += [f"  WARNING    {warning}" for warning in warnings(call)]
    if doubt.answer is None:
        lines.append("  find out what became of it, then: spar calls resolve ID done|failed|again")
    return "\n".join(lines)


def doubt_summary(doubt: Doubt, now: datetime, room: int = 60) -> str:
    """One line for a list; of each text at most `room` characters, and how many more there are."""
    call = doubt.call
    return "  ".join((
        visible(doubt.id),
        f"{doubt.answer or 'in doubt':8}",
        f"{span((now - doubt.at).total_seconds()):>10} ago",
        _cut(visible(doubt.session), room),
        _cut(visible(call.tool), room),
        *(["WARNING"] if warnings(call) else []),
        _cut(_flat(value_lines(call.params)), room),
    ))  # fmt: skip


def answered(doubt: Doubt) -> str:
    """Why a call in doubt takes no answer any more: which it has, whose, since when."""
    by = f" by {visible(doubt.answered_by)}" if doubt.answered_by else ""
    at = f" at {doubt.answered_at:%Y-%m-%d %H:%M:%S} UTC" if doubt.answered_at is not None else ""
    return f"call {visible(doubt.id)} is not in doubt any more: it was answered {doubt.answer!r}{by}{at}"


# -- dead letters


def letter_full(letter: DeadLetter, now: datetime) -> str:
    """All that is known of work that was put aside; what it is about is shown whole."""
    item = letter.item
    perception = item.perception
    rows = [
        ("what", "the message of a run" if item.kind == "run" else "a perception"),
        ("of", f"session {visible(item.session)}"),
        ("from", f"{visible(perception.source)}, kind {visible(perception.kind) or 'unknown'}, {perception.trust}"),
        ("accepted", _moment(item.at, now)),
        ("put aside", _moment(letter.at, now)),
        ("why", visible(letter.reason)),
    ]
    lines = [f"dead letter {visible(letter.id)}", *_rows(rows), "  content", *value_lines(perception.content, 2)]
    if perception.attributes:
        lines += ["  attributes", *value_lines(perception.attributes, 2)]
    lines.append("  when its cause is gone: spar dead retry ID; to be rid of it: spar dead drop ID")
    return "\n".join(lines)


def letter_summary(letter: DeadLetter, now: datetime, room: int = 60) -> str:
    """One line for a list; of each text at most `room` characters, and how many more there are."""
    item = letter.item
    return "  ".join((
        visible(letter.id),
        f"{item.kind:10}",
        f"{span((now - letter.at).total_seconds()):>10} ago",
        _cut(visible(item.session), room),
        _cut(visible(letter.reason), room),
        _cut(_flat(value_lines(item.perception.content)), room),
    ))  # fmt: skip


# -- parts of a text


def _of(session: str, run_id: str | None, cycle_id: str) -> list[str]:
    run = [f"run {visible(run_id)}"] if run_id else []
    return [f"session {visible(session)}", *run, f"cycle {visible(cycle_id)}"]


def _rows(rows: Iterable[tuple[str, str]]) -> list[str]:
    return [f"  {name:11}{text}" for name, text in rows]


def _moment(at: datetime, now: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC ({span((now - at).total_seconds())} ago)"


def _flat(lines: Iterable[str]) -> str:
    return " ".join(line.strip() for line in lines)


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else f"{text[:room]}… ({len(text) - room} characters more)"
