"""Audit log of a memory: entries are added and never changed, and each is linked to the one before it.

An entry is written in the same transaction as the row that it describes, with a digest of that row before and after
(`audited`). Only entries older than the limit are deleted, the oldest first. The number and link of the last deleted
entry stay, so that the rest can be verified.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, TypeVar

from memory.codec import decode, encode, moment, safe
from memory.engine import hash_chain
from memory.engine.hash_chain import AUDIT
from memory.inserts import where
from memory.sqlite import seals
from memory.transcripts import OpenRows
from spar.clock import Clock
from spar.data.scrub import mask_json, scrubbed
from spar.failpoints import crashpoint
from spar.records.audit import AuditDraft, AuditEntry, claim

if TYPE_CHECKING:
    from memory.engine.connection import Connection

R = TypeVar("R")
#: Query of the present content of a row, and its bindings.
Probe = tuple[str, tuple[Any, ...]]
_INTO = "INSERT INTO audit (seq, at, actor, subject, action, body, link) VALUES (?, ?, ?, ?, ?, ?, ?)"
#: Most characters of an actor, a subject or an action; most entries of one answer; entries deleted at once.
_LONGEST, _MOST, _BATCH = 1_000, 1_000, 250
_DAY = 86_400.0


def append(connection: Connection, draft: AuditDraft, at: float, before: str = "", after: str = "") -> None:
    """Add an entry after the last one; `before` and `after` are digests of the changed row, "" for none."""
    seq, link = hash_chain.last(connection, AUDIT) or hash_chain.anchor(connection, AUDIT)
    body = {
        "origin": draft.origin,
        "agent": draft.agent,
        "before": before,
        "after": after,
        "detail": scrubbed(draft.detail, str),  # texts are masked when all is written
    }
    text = mask_json(encode(body))
    actor, subject, action = safe(draft.actor, _LONGEST), safe(draft.subject, _LONGEST), safe(draft.action, _LONGEST)
    link = hash_chain.link(link, seq + 1, at, actor, subject, action, text)
    connection.execute(_INTO, (seq + 1, at, actor, subject, action, text, link))


def audited(
    work: Callable[[Connection], R], kind: str, clock: Clock, probe: Probe | None = None
) -> Callable[[Connection], R]:
    """Return work that also writes the entry of the current draft, if the draft waits for a row of this kind.

    Otherwise return the work itself. If the work raises, neither row nor entry is written, and the draft waits for the
    next row. `probe` reads the row, for the digests of the entry.
    """
    draft = claim(kind)
    if draft is None:
        return work
    at = clock.now().timestamp()

    def both(connection: Connection) -> R:
        before = _digest(connection, probe)
        try:
            done = work(connection)
        except BaseException:
            draft.is_written = False
            raise
        crashpoint("audit.between")
        if isinstance(done, Exception):  # the row was refused, but the other rows of the work are written
            draft.is_written = False
        else:
            append(connection, draft, at, before, _digest(connection, probe))
        return done

    return both


def write_all(connection: Connection, given: Sequence[tuple[AuditDraft, float]]) -> None:
    """Add an entry for each draft and its time (seconds since 1970)."""
    for draft, at in given:
        append(connection, draft, at)


def trim(connection: Connection, days: float | None, now: float) -> int:
    """Delete one batch of the entries that are too old; the newest stays. Return the number of deleted entries."""
    if days is None:
        return 0
    query = "SELECT seq FROM audit WHERE at < ? AND seq < (SELECT max(seq) FROM audit) ORDER BY seq"
    first = connection.execute("SELECT min(seq) FROM audit").get
    gone = 0
    for (seq,) in connection.execute(f"{query} LIMIT {_BATCH}", (now - days * _DAY,)).fetchall():
        if seq != int(str(first)) + gone:  # only the beginning of the chain can be deleted
            break
        gone += 1
    if gone:
        upto = int(str(first)) + gone - 1
        hash_chain.move_anchor(connection, upto, AUDIT)
        connection.execute("DELETE FROM audit WHERE seq <= ?", (upto,))
    return gone


class AuditRows(OpenRows):
    """Audit log of an open memory. Implements `spar.records.audit.AuditLog`."""

    async def write(self, draft: AuditDraft) -> None:
        """Write an entry of a request that changed no row; durable when this returns. Raises: SparError."""
        draft.is_written = True
        at = self._opened.clock().now().timestamp()
        await self._opened.file().commit(lambda connection: append(connection, draft, at))

    async def entries(
        self, limit: int = 50, *, before: int | None = None, since: datetime | None = None,
        until: datetime | None = None, actor: str = "", action: str = "",
    ) -> list[AuditEntry]:  # fmt: skip
        """Return entries, the newest first, at most 1,000. Raises: TransientError."""
        start = f"{safe(action)}."
        condition, bindings = where((
            ("seq < ?", before), ("at >= ?", since and since.timestamp()), ("at < ?", until and until.timestamp()),
            ("actor = ?", safe(actor) or None),
            (f"substr(action || '.', 1, {len(start)}) = ?", start if action else None),
        ))  # fmt: skip
        query = f"SELECT seq, at, actor, subject, action, body FROM audit WHERE {condition} ORDER BY seq DESC LIMIT ?"
        given = (*bindings, max(0, min(limit, _MOST)))
        return await self._read(lambda connection: [_entry(row) for row in connection.execute(query, given)])

    async def verify(self) -> str:
        """Return a description of the first damage of the log; "" if it is intact. Raises: TransientError."""
        return await self._read(_fault)


def _fault(connection: Connection) -> str:
    """Describe the first damage: a broken link of the chain, or an entry that does not match its seal; "" for none."""
    if (broken := hash_chain.check(connection, chain=AUDIT)) is not None:
        return str(broken)
    unsound = next(seals.check_table(connection, AUDIT.table), None)
    return "" if unsound is None else f"the {AUDIT.table} log is broken at {unsound.row or 'its end'}: {unsound.why}"


def _entry(row: tuple[Any, ...]) -> AuditEntry:
    seq, at, actor, subject, action, text = row
    try:
        body = decode(str(text), dict[str, Any])
    except Exception:  # the entry was altered; `verify` reports it
        body = {"detail": {"unreadable": True}}
    texts = {name: str(body.get(name, "")) for name in ("origin", "agent", "before", "after")}
    detail = body.get("detail")
    return AuditEntry(int(seq), moment(at), str(actor), str(action), str(subject),
                      **texts, detail=detail if isinstance(detail, dict) else {})  # fmt: skip


def _digest(connection: Connection, probe: Probe | None) -> str:
    content = None if probe is None else connection.execute(*probe).get
    return "" if content is None else blake2b(str(content).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
