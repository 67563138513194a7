"""Table of the records that wait for people: approvals, calls in doubt and dead letters, and of present grants."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from msgspec import Struct

from spar.records.approvals import Approval, Grant
from spar.records.journal import DeadLetter, Doubt
from spar.review.approvals import approval_cells, approval_full, grant_cells
from spar.review.left_work import doubt_cells, doubt_full, letter_cells, letter_full


class ReviewKind(Struct, frozen=True):
    """Kind of record that the command line and the control API list, show and take answers about.

    `path` is its place in the control API, `noun` its name in messages, `record` its class. `heads` and `cells` are the
    header and a row of a list, `full` renders all that is known. `hint` says how to find its ids, `unanswered` which
    state remains without an answer.
    """

    path: str
    noun: str
    record: type[Any]
    heads: tuple[str, ...]
    cells: Callable[[Any, datetime], tuple[str, ...]]
    full: Callable[[Any, datetime], str]
    hint: str
    unanswered: str = ""


APPROVALS = ReviewKind(
    "/v1/approvals", "approval", Approval,
    ("id", "state", ">asked", "session", "tool", "call"), approval_cells, approval_full,
    hint="spar approvals list shows those that wait", unanswered="it still waits",
)  # fmt: skip
CALLS_IN_DOUBT = ReviewKind(
    "/v1/calls/in-doubt", "call in doubt", Doubt,
    ("id", "state", ">since", "session", "tool", "call"), doubt_cells, doubt_full,
    hint="spar calls list shows those in doubt", unanswered="it is still in doubt",
)  # fmt: skip
DEAD_LETTERS = ReviewKind(
    "/v1/dead-letters", "dead letter", DeadLetter,
    ("id", "what", ">put aside", "session", "why", "content"), letter_cells, letter_full,
    hint="spar dead list shows what was put aside",
)  # fmt: skip
GRANTS = ReviewKind(
    "/v1/grants", "grant", Grant, ("id", "call", "where", ">for", "by", ">used"), grant_cells,
    lambda grant, now: "  ".join(grant_cells(grant, now)), hint="spar approvals grants shows those in force",
)  # fmt: skip
