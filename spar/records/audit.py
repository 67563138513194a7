"""Values of the audit log: who changed what about the agent, and the entry that is being made.

A door opens an entry (`auditing`) before it hands on what somebody wants; the store writes it in the transaction of
the first row that decides about it (`claim`), so that neither is ever there without the other. What is decided without
a row is written by the door when it is done.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from typing import Any, Final, Protocol, runtime_checkable

from msgspec import Struct, field

#: Kinds of rows begin with this that keep a state: only an entry that names one waits for it.
STATE: Final = "state."


class AuditEntry(Struct, frozen=True):
    """One entry. `actor` is who did it, `origin` the way it came ("http", "channel", "signal", "program", "shell"),
    `action` what was done ("approval.approve"), `subject` to what; `before` and `after` are digests of the row that was
    changed, "" for none."""

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
    """Entry that is being made; `rows` are the kinds of rows of which one decides ("": the first that is written)."""

    __slots__ = ("action", "actor", "agent", "detail", "is_written", "origin", "rows", "subject")

    def __init__(self, actor: str, origin: str, action: str, subject: str = "", *, agent: str = "",
                 rows: Sequence[str] = ("",)) -> None:  # fmt: skip
        self.actor, self.origin, self.action, self.subject, self.agent = actor, origin, action, subject, agent
        self.rows = frozenset(rows)
        self.detail: dict[str, Any] = {}
        self.is_written = False


_CURRENT: ContextVar[AuditDraft | None] = ContextVar("audit", default=None)


@contextmanager
def auditing(draft: AuditDraft) -> Iterator[AuditDraft]:
    """Have what is decided inside, also in tasks that are begun there, written with this entry; once at most."""
    token = _CURRENT.set(draft)
    try:
        yield draft
    finally:
        _CURRENT.reset(token)


def refine(*, action: str = "", subject: str = "", detail: Mapping[str, Any] | None = None) -> None:
    """Say more exactly what the entry that is being made is about; without one it does nothing."""
    if (draft := _CURRENT.get()) is not None:
        draft.action, draft.subject = action or draft.action, subject or draft.subject
        draft.detail.update(detail or {})


def claim(kind: str) -> AuditDraft | None:
    """Return the entry that a row of this kind is to be written with, which is nobody else's from then on; None where
    there is none, or it waits for another row. Whoever cannot write the row sets `is_written` back."""
    draft = _CURRENT.get()
    if draft is None or draft.is_written:
        return None
    if kind not in draft.rows and ("" not in draft.rows or kind.startswith(STATE)):
        return None
    draft.is_written = True
    return draft


class AuditLog(Protocol):
    """The audit log of a store that is open."""

    async def write(self, draft: AuditDraft) -> None:
        """Write an entry that no row was written with; durable when this returns. Raises: SparError."""

    async def entries(
        self, limit: int = 50, *, before: int | None = None, since: datetime | None = None,
        until: datetime | None = None, actor: str = "", action: str = "",
    ) -> Sequence[AuditEntry]:  # fmt: skip
        """Return entries, the newest first. Args: before: the number of one that was seen; action: a whole one, or the
        part before its point."""
        ...

    async def verify(self) -> str:
        """Return what is wrong with the log: the first entry that was altered, put in or taken out; "" for nothing."""
        ...


@runtime_checkable
class KeepsAudit(Protocol):
    """A store with an audit log."""

    @property
    def audit(self) -> AuditLog: ...
