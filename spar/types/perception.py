"""Perceptions, and messages that a tool adds to the context."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from msgspec import field

from spar import checks
from spar.checks import Checked, Share, shorten
from spar.ids import new_id
from spar.types.literals import Trust
from spar.types.value import Value, utcnow

#: Most characters of the representation of content that is not JSON.
LONGEST_REPRESENTED = 200


class Perception(Checked, Value, frozen=True):
    """Thing that was noticed. `Perception("disk is full")` is enough to make one.

    `key` identifies repetitions (two perceptions with one key are duplicates); `subject` says what it is about
    (perceptions of one subject are fused into one, with the parts in `evidence`).
    `priority` (None until it is set) and `confidence` are 0..1. Text of an `untrusted` perception never steers the
    agent.
    Stages of the pipeline write their results to `attributes`: `slots` (what an intent captured) and `why` (the reasons
    for the priority, a list of sentences).

    Raises: TypeError, ValueError for an invalid field.
    """

    content: Any = ""
    source: str = "manual"
    kind: str = ""
    id: str = field(default_factory=new_id)
    at: datetime = field(default_factory=utcnow)
    key: str | None = None
    subject: str | None = None
    session: str = "main"
    intent: str = ""
    priority: Share | None = None
    confidence: Share = 1.0
    trust: Trust = "untrusted"
    evidence: Sequence[Perception] = ()
    attributes: dict[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """Return the content as text: itself if it is a string, else its JSON; of content that is not JSON, such as
        keys that are not text, the beginning of its representation."""
        if isinstance(self.content, str):
            return self.content
        try:
            return json.dumps(self.content, ensure_ascii=False, default=str)
        except Exception:  # also those of a user's objects
            return shorten(self.content, LONGEST_REPRESENTED)

    @property
    def importance(self) -> float:
        """Return the priority, or 0.5 while it is not set."""
        return 0.5 if self.priority is None else self.priority

    @staticmethod
    def restored(row: dict[str, Any]) -> dict[str, Any]:
        """Clamp the values of a row that an earlier version wrote without bounds."""
        bounded = {name: checks.clamped(row[name], 0.0, 1.0, low) for name, low in _UNBOUNDED_BEFORE if name in row}
        return {**row, **bounded}


_UNBOUNDED_BEFORE = (("priority", None), ("confidence", 1.0))


class Message(Checked, Value, frozen=True):
    """Message that a tool asks to append to the context as it is."""

    kind: str
    data: Any
    instance: str | None = None
