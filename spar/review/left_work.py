"""Text of the work that recovery leaves to people: calls in doubt and dead letters.

The person who answers sees only this text, and much of it comes from outside: all of it is rendered by
`spar.data.text`, so that nothing hides or moves. It is cut only in lists, which say by how much. Pure functions.
"""

from __future__ import annotations

from datetime import datetime

from spar.data.text import value_lines, visible
from spar.records.journal import DeadLetter, Doubt
from spar.review.deception import warnings
from spar.review.render import ROOM, author, call_lines, document, list_cells, moment, origin, warning_lines

#: Status text of a call in doubt, by its answer.
_ANSWERS = {
    None: "in doubt: nobody here knows whether it had its effect",
    "done": "done: it had its effect",
    "failed": "failed: it had no effect",
    "again": "again: it had no effect, and was made once more in a cycle of its own",
}


def doubt_full(doubt: Doubt, now: datetime) -> str:
    """Return all that is known of a call in doubt, with the complete call."""
    call = doubt.call
    rows = [
        ("status", _ANSWERS[doubt.answer]),
        ("tool", visible(call.tool)),
        ("of", origin(doubt.session, doubt.run_id, doubt.cycle_id)),
        ("since", moment(doubt.at, now)),
        ("why", visible(doubt.why)),
    ]
    if doubt.answered_at is not None:
        rows.append(("answered", f"{moment(doubt.answered_at, now)}{author(doubt.answered_by)}"))
    if doubt.reason:
        rows.append(("reason", visible(doubt.reason)))
    is_open = doubt.answer is None
    return document(
        f"call in doubt {visible(doubt.id)}",
        rows,
        [] if doubt.output is None else ["  its output, as answered", *value_lines(doubt.output, 2)],
        call_lines("the call", call),
        warning_lines(warnings(call)),
        ["  find out what became of it, then: spar calls resolve ID done|failed|again"] if is_open else [],
    )


def doubt_cells(doubt: Doubt, now: datetime, room: int = ROOM) -> tuple[str, ...]:
    """Return the cells of a row in a list."""
    call, state = doubt.call, doubt.answer or "in doubt"
    marks = ["WARNING"] if warnings(call) else []
    return list_cells(doubt.id, state, now - doubt.at, doubt.session, call.tool, marks, call.params, room)


def answered(doubt: Doubt) -> str:
    """Return why a call in doubt accepts no answer any more: its answer, the author and the time."""
    at = f" at {moment(doubt.answered_at)}" if doubt.answered_at is not None else ""
    answer = f"it was answered {doubt.answer!r}{author(doubt.answered_by)}{at}"
    return f"call {visible(doubt.id)} is not in doubt any more: {answer}"


def letter_full(letter: DeadLetter, now: datetime) -> str:
    """Return all that is known of work that was put aside, with its complete content."""
    item = letter.item
    perception = item.perception
    rows = [
        ("what", "the message of a run" if item.kind == "run" else "a perception"),
        ("of", origin(item.session, None, "")),
        ("from", f"{visible(perception.source)}, kind {visible(perception.kind) or 'unknown'}, {perception.trust}"),
        ("accepted", moment(item.at, now)),
        ("put aside", moment(letter.at, now)),
        ("why", visible(letter.reason)),
    ]
    return document(
        f"dead letter {visible(letter.id)}",
        rows,
        ["  content", *value_lines(perception.content, 2)],
        ["  attributes", *value_lines(perception.attributes, 2)] if perception.attributes else [],
        ["  when its cause is gone: spar dead retry ID; to be rid of it: spar dead drop ID"],
    )


def letter_cells(letter: DeadLetter, now: datetime, room: int = ROOM) -> tuple[str, ...]:
    """Return the cells of a row in a list."""
    item = letter.item
    age = now - letter.at
    return list_cells(letter.id, item.kind, age, item.session, letter.reason, [], item.perception.content, room)
