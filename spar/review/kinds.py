"""Table of the records that wait for people: approvals, calls in doubt and dead letters, and the grants in force."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from msgspec import Struct

from spar.records.approvals import Approval, Grant
from spar.records.journal import DeadLetter, Doubt
from spar.review.approvals import approval_full, approval_summary, grant_summary
from spar.review.left_work import doubt_full, doubt_summary, letter_full, letter_summary


class ReviewKind(Struct, frozen=True):
    """Kind of record that the command line and the control API list, show and take answers about.

    `path` is its place in the control API, `noun` its name in messages, `record` its class. `summary` renders one line
    of a list, `full` all that is known. `hint` says where its ids are found, `unanswered` what an answer that was not
    given leaves.
    """

    path: str
    noun: str
    record: type[Any]
    summary: Callable[[Any, datetime], str]
    full: Callable[[Any, datetime], str]
    hint: str
    unanswered: str = ""


APPROVALS = ReviewKind(
    "/v1/approvals", "approval", Approval, approval_summary, approval_full,
    hint="spar approvals list shows those that wait", unanswered="it still waits",
)  # fmt: skip
CALLS_IN_DOUBT = ReviewKind(
    "/v1/calls/in-doubt", "call in doubt", Doubt, doubt_summary, doubt_full,
    hint="spar calls list shows those in doubt", unanswered="it is still in doubt",
)  # fmt: skip
DEAD_LETTERS = ReviewKind(
    "/v1/dead-letters", "dead letter", DeadLetter, letter_summary, letter_full,
    hint="spar dead list shows what was put aside",
)  # fmt: skip
GRANTS = ReviewKind(
    "/v1/grants", "grant", Grant, grant_summary, grant_summary, hint="spar approvals grants shows those in force"
)  # fmt: skip
