"""Answers that stay: calls that a person let run for a time, each the very call and nothing wider.

A grant is bound by the digest of the call that it was given for, so one whose program, schema, effect or rules have
changed since is asked about again. Each use is counted, durably, before the call starts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from acting.approvals.fingerprint import BoundCall, Fingerprinter
from acting.approvals.records import Rows
from spar.errors import TransientError
from spar.protocols import Records
from spar.records.approvals import Approval, Grant
from spar.types import replace

LONGEST: Final = 30 * 86_400.0  # seconds


class Grants:
    """The grants of one executor; `now` says what time it is."""

    def __init__(self, fingerprinter: Fingerprinter, now: Callable[[], datetime]) -> None:
        self._fingerprinter, self._now = fingerprinter, now
        self._rows = Rows("grant", Grant)

    async def open(self, store: Records) -> None:
        """Read what is kept. Raises: TransientError when that cannot be done now."""
        await self._rows.open(store)

    def in_force(self) -> list[Grant]:
        now = self._now()
        return sorted((each for each in self._rows.values.values() if each.expires_at > now), key=lambda each: each.id)

    async def give(self, row: Approval, seconds: float, by: str, *, is_of_session: bool) -> Grant:
        """Let this very call run from now on; durable when this returns.

        Raises: ValueError for a time that is too long or a tool that is against it; TransientError.
        """
        if not 0 < seconds <= LONGEST:
            raise ValueError(f"a grant lasts more than 0 and at most {LONGEST:g} seconds, found {seconds!r}")
        if why := await self._fingerprinter.refusal(self._fingerprinter.again(row.call)):
            raise ValueError(f"no grant can be given for this call: {why}")
        now = self._now()
        grant = Grant(self._rows.new_id("g"), row.call.tool, row.call.params, now + timedelta(seconds=seconds),
                      row.session if is_of_session else "", by, now, 0, row.digest)  # fmt: skip
        for over in [each.id for each in self._rows.values.values() if each.expires_at <= now]:
            await self._rows.drop(over)
        await self._rows.add(grant)
        return grant

    async def use(self, bound_call: BoundCall, session: str) -> tuple[Grant, Mapping[str, Any]] | None:
        """The grant that lets this very call run, counted, and what binds the call; None if there is none.

        Raises: UnboundError.
        """
        found = [
            each for each in self.in_force() if each.session in ("", session) and each.tool == bound_call.entry.name
        ]
        if not found:
            return None
        fingerprint = await self._fingerprinter.fingerprint(bound_call)
        for grant in found:
            if grant.digest == fingerprint.digest:
                try:
                    return await self._rows.change(grant.id, self._used), fingerprint.binds
                except (LookupError, TransientError):  # revoked just now, or its use cannot be told
                    return None
        return None

    def _used(self, row: Grant) -> Grant:
        """Counted; judged by the row as it is when it is written. Raises: LookupError for one that is over."""
        if row.expires_at <= self._now():
            raise LookupError(f"grant {row.id!r} has expired")
        return replace(row, uses=row.uses + 1)

    async def revoke(self, id: str) -> Grant:
        """End a grant, by its id or a unique beginning of one. Raises: LookupError, TransientError."""
        grant = self._rows.named(id)
        await self._rows.drop(grant.id)
        return grant
