"""Table of the access tokens: creates, lists, revokes and finds them, by their digests.

The table is read from the store once, or before each request if other nodes may have changed it. Other look-ups are
answered from memory, in any thread, without I/O. A new token is valid only after it is on disk; a revoked one is
invalid before it is removed from disk. Where no service runs, the commands change the same rows.

A token is 256 random bits. Its digest needs no salt, because nobody can guess a token. The token itself is returned
once, when it is created, and is stored nowhere.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from hmac import compare_digest
from operator import attrgetter
from typing import Any, Final

from spar.errors import ConflictError, SparError
from spar.ports.any_part import offers
from spar.ports.nodes import nodes_of
from spar.ports.rows import KeptRows
from spar.protocols import Records
from spar.service.token_rows import (
    LONGEST_DAYS,
    NewToken,
    Scope,
    TokenRow,
    TokenView,
    check_name,
    in_order,
)
from spar.types import replace

#: The kind of the rows in the store.
KIND: Final = "token"
#: Largest number of tokens in the table.
MOST_TOKENS: Final = 1_000
#: Age of the rows at which they are read again if other nodes may have changed them.
READ_EVERY: Final = timedelta(seconds=2)
#: Precision of the time of the last use: a token in constant use is written once an hour.
USED_EVERY: Final = timedelta(hours=1)
#: The beginning of each token, by which people and secret scanners recognize one.
PREFIX: Final = "spar_"
#: Random bytes of a token, and its characters.
_BYTES: Final = 32
_LENGTH: Final = len(PREFIX) + 43


class Tokens:
    """The access tokens of one service.

    Args: memory: returns the store, which must be open before `open` is called; now: the wall clock.
    """

    def __init__(self, memory: Callable[[], Any], now: Callable[[], datetime]) -> None:
        self._memory, self._now = memory, now
        self._lock = asyncio.Lock()
        self._rows = KeptRows(KIND, TokenRow, on_unreadable=_refuse, key=attrgetter("name"))
        #: Rows by digest. A change assigns a new dict, so that other threads always read a consistent one.
        self._by_digest: dict[str, TokenRow] = {}
        self._is_read, self._stale_at = False, datetime.max.replace(tzinfo=UTC)

    @property
    def is_open(self) -> bool:
        """Return whether the rows were read, and that just now if other processes share the store."""
        return self._is_read and self._now() < self._stale_at

    async def open(self) -> None:
        """Read the rows from the store unless they are known. Raises: any error of the store."""
        async with self._lock:
            if self.is_open:
                return
            if offers(memory := self._memory(), Records):
                now = self._now()
                await self._change(self._rows.open(memory))
                if nodes_of(memory) is not None:
                    self._stale_at = now + READ_EVERY
            self._is_read = True

    # -- look-ups of the HTTP servers, from any thread

    def find(self, token: str) -> TokenRow | None:
        """Return the row of a token that is known and has not expired, else None.

        The look-up goes by the digest, so its time does not reveal how similar the text is to a valid token.
        """
        if len(token) != _LENGTH or not token.startswith(PREFIX) or not token.isascii():
            return None
        digest = _digest(token)
        row = self._by_digest.get(digest)
        return row if row is not None and compare_digest(row.digest, digest) and not self._is_expired(row) else None

    def is_valid(self, row: TokenRow) -> bool:
        """Return whether the token of this row is still known and has not expired."""
        return row.digest in self._by_digest and not self._is_expired(row)

    def is_use_due(self, row: TokenRow) -> bool:
        """Return whether `note_use` should be called: an hour has passed since the last recorded use."""
        row = self._by_digest.get(row.digest, row)
        return row.used_at is None or self._now() - row.used_at >= USED_EVERY

    # -- changes that people make

    async def create(self, name: str, scopes: Iterable[Scope], *, days: float | None = None, by: str = "") -> NewToken:
        """Create a token; it is on disk when this returns. Its text is never returned again.

        Args:
            days: Validity in days; None: until it is revoked.
            by: The creator.
        Raises: ValueError for a wrong name, scope or number of days; ConflictError for a name that is in use or a full
            table; LookupError if the store keeps no tokens.
        """
        check_name(name)
        if days is not None and not 0 < days <= LONGEST_DAYS:
            raise ValueError(f"days = {days:g}: must be more than 0 and at most {LONGEST_DAYS}")
        await self.open()
        async with self._lock:
            self._demand_records()
            if name in self._rows.values:
                raise ConflictError(f"there is a token {name!r} already; revoke it first, or choose another name")
            if len(self._rows.values) >= MOST_TOKENS:
                raise ConflictError(f"there are {MOST_TOKENS} tokens; revoke some")
            token, now = PREFIX + secrets.token_urlsafe(_BYTES), self._now()
            expires_at = None if days is None else now + timedelta(days=days)
            row = TokenRow(name, in_order(scopes), now, by, expires_at, digest=_digest(token))
            await self._change(self._rows.add(row))
            return NewToken(token, name, row.scopes, expires_at)

    async def list(self) -> Sequence[TokenView]:
        """Return the tokens in the order of their names, without secrets. Raises: any error of the store."""
        await self.open()
        return [self._view(row) for row in sorted(self._rows.values.values(), key=lambda row: row.name)]

    async def revoke(self, name: str) -> TokenView:
        """Delete a token; it is invalid when this returns. Raises: LookupError for an unknown name."""
        await self.open()
        async with self._lock:
            if (row := self._rows.values.get(name)) is None:
                known = ", ".join(sorted(self._rows.values)[:20]) or "none"
                raise LookupError(f"no token {name[:80]!r}; known: {known}")
            self._by_digest = {digest: other for digest, other in self._by_digest.items() if digest != row.digest}
            self._demand_records()
            await self._change(self._rows.drop(name))
            return self._view(row)

    async def note_use(self, row: TokenRow) -> None:
        """Store the hour of a token's use. An error of the store is ignored: it is no reason to refuse the request."""
        async with self._lock:
            if not self.is_valid(row) or not self.is_use_due(row):
                return
            hour = self._now().replace(minute=0, second=0, microsecond=0)
            used = replace(row, used_at=max(hour, row.made_at))
            self._by_digest = {**self._by_digest, row.digest: used}
            with suppress(SparError, LookupError):  # of several nodes another one may have revoked it
                await self._rows.change(row.name, lambda known: replace(known, used_at=used.used_at))

    async def _change(self, change: Awaitable[object]) -> None:
        """Change the table. If this fails, it is read again before the next use: the change may be on disk or not."""
        try:
            await change
        except BaseException:
            self._is_read = False
            raise
        self._by_digest = {row.digest: row for row in self._rows.values.values()}

    def _demand_records(self) -> None:
        """Check that the store keeps rows. Raises: LookupError if it does not."""
        if not offers(self._memory(), Records):
            raise LookupError("this store keeps no tokens; the built-in one does")

    def _view(self, row: TokenRow) -> TokenView:
        return TokenView(row.name, row.scopes, row.made_at, row.by, row.expires_at, row.used_at,
                         self._is_expired(row))  # fmt: skip

    def _is_expired(self, row: TokenRow) -> bool:
        return row.expires_at is not None and self._now() >= row.expires_at


def _digest(token: str) -> str:
    return sha256(token.encode("utf-8", "replace")).hexdigest()


def _refuse(name: str, error: Exception) -> None:
    """Read no table with a row of another version: it may be the row of a token that counts."""
    raise error
