"""Table of the records that wait for people: approvals, calls in doubt and dead letters, and of present grants."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from msgspec import Struct


def _lazily(module: str, name: str) -> Callable[..., Any]:
    """Return a function that is imported when it is first called: an empty list needs none."""
    return lambda *args: getattr(import_module(f"spar.review.{module}"), name)(*args)


class ReviewKind(Struct, frozen=True):
    """Kind of record that people are shown and take decisions about.

    `path` is its place in the control API, `noun` its name in messages. `heads` and `cells` are the header and a row of
    a list, `full` renders all that is known; both take the record and the present time.
    """

    path: str
    noun: str
    heads: tuple[str, ...]
    cells: Callable[..., tuple[str, ...]]
    full: Callable[..., str]


APPROVALS = ReviewKind(
    "/v1/approvals", "approval", ("id", "state", ">asked", "session", "tool", "call"),
    _lazily("approvals", "approval_cells"), _lazily("approvals", "approval_full"),
)  # fmt: skip
CALLS_IN_DOUBT = ReviewKind(
    "/v1/calls/in-doubt", "call in doubt", ("id", "state", ">since", "session", "tool", "call"),
    _lazily("left_work", "doubt_cells"), _lazily("left_work", "doubt_full"),
)  # fmt: skip
DEAD_LETTERS = ReviewKind(
    "/v1/dead-letters", "dead letter", ("id", "what", ">put aside", "session", "why", "content"),
    _lazily("left_work", "letter_cells"), _lazily("left_work", "letter_full"),
)  # fmt: skip
_grant_cells = _lazily("approvals", "grant_cells")
GRANTS = ReviewKind(
    "/v1/grants", "grant", ("id", "call", "where", ">for", "by", ">used"),
    _grant_cells, lambda grant, now: "  ".join(_grant_cells(grant, now)),
)  # fmt: skip
