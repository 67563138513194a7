"""Grants: standing permissions by people, each for one exact call and for a time.

A grant is bound to the digest of its call, so people are asked again when the call's program, schema, effect or rules
have changed. Each use is counted, durably, before the call starts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from acting.approvals.fingerprint import BoundCall, Fingerprinter
from spar.errors import TransientError
from spar.ports.kept_rows import KeptRows
from spar.records.approvals import Approval, Grant
from spar.types import replace

LONGEST: Final = 30 * 86_400.0  # seconds


class Grants(KeptRows[Grant]):
    """The grants of one executor; `now` returns the wall time."""

    def __init__(self, fingerprinter: Fingerprinter, now: Callable[[], datetime]) -> None:
        super().__init__("grant", Grant)
        self._fingerprinter, self._now = fingerprinter, now

    def in_force(self) -> list[Grant]:
        now = self._now()
        return sorted((grant for grant in self.values.values() if grant.expires_at > now), key=lambda grant: grant.id)

    async def give(self, row: Approval, seconds: float, by: str, *, is_of_session: bool) -> Grant:
        """Grant exactly this call for `seconds` from now; durable when this returns.

        Raises: ValueError for a time that is too long or a tool that refuses it; TransientError.
        """
        if not 0 < seconds <= LONGEST:
            raise ValueError(f"a grant lasts more than 0 and at most {LONGEST:g} seconds, found {seconds!r}")
        if why := await self._fingerprinter.refusal(self._fingerprinter.checked(row.call, row.session)):
            raise ValueError(f"no grant can be given for this call: {why}")
        now = self._now()
        grant = Grant(self.new_id("g"), row.call.tool, row.call.params, now + timedelta(seconds=seconds),
                      row.session if is_of_session else "", by, now, 0, row.digest)  # fmt: skip
        for expired in [grant.id for grant in self.values.values() if grant.expires_at <= now]:
            await self.drop(expired)
        await self.add(grant)
        return grant

    async def use(self, bound_call: BoundCall, since: datetime | None) -> tuple[Grant, Mapping[str, Any]] | None:
        """Use a grant for exactly this call and count the use. Return it with the facts that bind the call, or None.

        Args: since: no grant from before this time counts. Raises: UnboundError.
        """
        candidates = [
            grant
            for grant in self.in_force()
            if grant.session in ("", bound_call.session)
            and grant.tool == bound_call.entry.name
            and (since is None or (grant.granted_at is not None and grant.granted_at >= since))
        ]
        if not candidates:
            return None
        fingerprint = await self._fingerprinter.fingerprint(bound_call)
        for grant in candidates:
            if grant.digest == fingerprint.digest:
                try:
                    return await self.change(grant.id, self._count_use), fingerprint.binds
                except (LookupError, TransientError):  # revoked just now, or the use cannot be counted
                    return None
        return None

    def _count_use(self, row: Grant) -> Grant:
        """Return the row with one use more. Raises: LookupError for an expired grant."""
        if row.expires_at <= self._now():
            raise LookupError(f"grant {row.id!r} has expired")
        return replace(row, uses=row.uses + 1)

    async def revoke(self, id: str) -> Grant:
        """End a grant, by its id or a unique beginning of one. Raises: LookupError, TransientError."""
        grant = self.named(id)
        await self.drop(grant.id)
        return grant
