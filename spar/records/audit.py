"""Values of the audit log: who changed what about the agent, and the draft of an entry.

An interface opens a draft (`auditing`) before it passes on a request; the store writes the entry in the transaction of
the first row that decides the request (`claim`), so that neither exists without the other. The interface itself writes
the entry of a request that changes no row, when the request is done.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from typing import Any, Final, Protocol

from msgspec import Struct, field

#: Prefix of the kinds of rows that hold a state: only a draft that names such a kind waits for it.
STATE: Final = "state."


class AuditEntry(Struct, frozen=True):
    """Entry of the log.

    `actor` is the person, `origin` the way of the request ("http", "channel", "signal", "program", "shell"), `action`
    the action ("approval.approve"), `subject` its object; `before` and `after` are digests of the changed row, "" for
    none.
    """

    seq: int
    at: datetime
    actor: str
    action: str
    subject: str = ""
    origin: str = ""
    agent: str = ""
    before: str = ""
    after: str = ""
    detail: dict[str, Any] = field(default_factory=dict)


class AuditDraft:
    """Draft of an entry; `rows` are the kinds of rows that decide the request ("": the first row that is written)."""

    __slots__ = ("action", "actor", "agent", "detail", "is_written", "origin", "rows", "subject")

    def __init__(self, actor: str, origin: str, action: str, subject: str = "", *, agent: str = "",
                 rows: Sequence[str] = ("",), detail: Mapping[str, Any] = {}) -> None:  # fmt: skip
        self.actor, self.origin, self.action, self.subject, self.agent = actor, origin, action, subject, agent
        self.rows = frozenset(rows)
        self.detail: dict[str, Any] = dict(detail)
        self.is_written = False


#: The draft of the request that is served now.
CURRENT: ContextVar[AuditDraft | None] = ContextVar("audit", default=None)


@contextmanager
def auditing(draft: AuditDraft) -> Iterator[AuditDraft]:
    """Write the changes inside this `with`, also those of tasks started there, with this entry; at most once."""
    token = CURRENT.set(draft)
    try:
        yield draft
    finally:
        CURRENT.reset(token)


def current() -> AuditDraft | None:
    """Return the draft of the present request; None without one."""
    return CURRENT.get()


def refine(*, action: str = "", subject: str = "", detail: Mapping[str, Any] | None = None) -> None:
    """Set details of the current draft; without a draft nothing happens."""
    if (draft := CURRENT.get()) is not None:
        draft.action, draft.subject = action or draft.action, subject or draft.subject
        draft.detail.update(detail or {})


def claim(kind: str) -> AuditDraft | None:
    """Return the draft of the entry to write with a row of this kind; it is not returned again.

    None if there is no draft, or if it waits for another row. A caller that cannot write the row sets `is_written`
    back.
    """
    draft = CURRENT.get()
    if draft is None or draft.is_written:
        return None
    if kind not in draft.rows and ("" not in draft.rows or kind.startswith(STATE)):
        return None
    draft.is_written = True
    return draft


class AuditLog(Protocol):
    """Audit log of an open store."""

    async def write(self, draft: AuditDraft) -> None:
        """Write an entry that was written with no row; durable when this returns. Raises: SparError."""

    async def entries(
        self, limit: int = 50, *, before: int | None = None, since: datetime | None = None,
        until: datetime | None = None, actor: str = "", action: str = "",
    ) -> Sequence[AuditEntry]:  # fmt: skip
        """Return entries, the newest first.

        Args: before: the number of an entry that was read; action: a whole action, or the part before its point.
        """

    async def verify(self) -> str:
        """Return the first entry that was altered, inserted or removed, as a sentence; "" if the log is intact."""
