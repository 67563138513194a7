"""Table of tokens: they are made, listed and revoked here, and known by their digests.

It is read from the store once; from then on it is answered from memory, in any thread, without I/O. A token is on disk
before it is good for anything, and good for nothing before it is taken from there. Where no service runs the commands
change the same rows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from hmac import compare_digest
from typing import Any, Final

import msgspec

from spar.errors import ConflictError, SparError
from spar.ports.optional import offers
from spar.protocols import Records
from spar.service.token_rows import (
    NewToken,
    Scope,
    TokenRow,
    TokenView,
    check_name,
    digest_of_token,
    in_order,
    looks_like_one,
    new_token,
)
from spar.types import replace

#: The kind of the rows in the store.
KIND: Final = "token"
#: Tokens that are kept at once.
MOST_TOKENS: Final = 1_000
#: Days for which a token may be good.
LONGEST_DAYS: Final = 3_650
#: How exact the time of the last use is: a token that is used all the time is one row an hour.
USED_EVERY: Final = timedelta(hours=1)


class Tokens:
    """The tokens of one service.

    Args: memory: returns the store, which is open when it is asked; now: the wall clock.
    """

    def __init__(self, memory: Callable[[], Any], now: Callable[[], datetime]) -> None:
        self._memory, self._now = memory, now
        self._lock = asyncio.Lock()
        #: By digest; a change puts a new table in its place, so that any thread may read it.
        self._rows: dict[str, TokenRow] = {}
        self.is_open = False

    async def open(self) -> None:
        """Read what was kept, once. Raises: what the store raises."""
        async with self._lock:
            if self.is_open:
                return
            if offers(memory := self._memory(), Records):
                rows = [msgspec.convert(each.value, TokenRow) for each in await memory.records(KIND)]
                self._rows = {row.digest: row for row in rows}
            self.is_open = True

    # -- what doors ask, from any thread

    def find(self, token: str) -> TokenRow | None:
        """Return the row of a token that is known and has not expired.

        It is found by its digest, so the time that this takes tells of no token how far another one is like it.
        """
        if not looks_like_one(token):
            return None
        digest = digest_of_token(token)
        row = self._rows.get(digest)
        if row is None or not compare_digest(row.digest, digest) or not row.is_good(self._now()):
            return None
        return row

    def is_valid(self, row: TokenRow) -> bool:
        """Return whether a token that was found is still known and has not expired."""
        return row.digest in self._rows and row.is_good(self._now())

    def is_use_due(self, row: TokenRow) -> bool:
        """Return whether its use is to be noted: an hour has passed since the last one was."""
        row = self._rows.get(row.digest, row)
        return row.used_at is None or self._now() - row.used_at >= USED_EVERY

    # -- what people decide

    async def create(self, name: str, scopes: Iterable[Scope], *, days: float | None = None, by: str = "") -> NewToken:
        """Make a token; it is on disk when this returns, and told to nobody again.

        Args: days: for how long it is good; None: until it is revoked.
        Raises: ValueError; ConflictError for a name that is taken; LookupError where the store keeps no such rows.
        """
        check_name(name)
        if days is not None and not 0 < days <= LONGEST_DAYS:
            raise ValueError(f"days = {days:g}: must be more than 0 and at most {LONGEST_DAYS}")
        await self.open()
        async with self._lock:
            store = self._records()
            if any(row.name == name for row in self._rows.values()):
                raise ConflictError(f"there is a token {name!r} already; revoke it first, or choose another name")
            if len(self._rows) >= MOST_TOKENS:
                raise ConflictError(f"there are {MOST_TOKENS} tokens; revoke some")
            token, now = new_token(), self._now()
            expires_at = None if days is None else now + timedelta(days=days)
            row = TokenRow(name, in_order(scopes), digest_of_token(token), now, by, expires_at)
            await self._written(store.keep(KIND, name, msgspec.to_builtins(row), expect=0))
            self._rows = {**self._rows, row.digest: row}
            return NewToken(token, name, row.scopes, expires_at)

    async def list(self) -> Sequence[TokenView]:
        """Return the tokens by name, without what is secret of them. Raises: what the store raises."""
        await self.open()
        return [self._view(row) for row in sorted(self._rows.values(), key=lambda row: row.name)]

    async def revoke(self, name: str) -> TokenView:
        """Forget a token: it is good for nothing when this returns. Raises: LookupError."""
        await self.open()
        async with self._lock:
            row = next((row for row in self._rows.values() if row.name == name), None)
            if row is None:
                known = ", ".join(sorted(row.name for row in self._rows.values())[:20]) or "none"
                raise LookupError(f"no token {name[:80]!r}; known: {known}")
            self._rows = {digest: each for digest, each in self._rows.items() if digest != row.digest}
            await self._written(self._records().drop(KIND, name))
            return self._view(row)

    async def note_use(self, row: TokenRow) -> None:
        """Keep when a token was used, to the hour; a store that cannot keep it now is no reason to refuse its use."""
        async with self._lock:
            row = self._rows.get(row.digest, row)
            if not self.is_valid(row) or not self.is_use_due(row):
                return
            hour = self._now().replace(minute=0, second=0, microsecond=0)
            used = replace(row, used_at=max(hour, row.made_at))
            self._rows = {**self._rows, row.digest: used}
            with suppress(SparError):
                await self._records().keep(KIND, row.name, msgspec.to_builtins(used))

    async def _written(self, change: Awaitable[object]) -> None:
        """Wait for a change; where nobody knows whether it is on disk, the store is asked before anybody is let in."""
        try:
            await change
        except BaseException:
            self.is_open = False
            raise

    def _records(self) -> Records:
        if not offers(memory := self._memory(), Records):
            raise LookupError("this store keeps no tokens; the built-in one does")
        return memory

    def _view(self, row: TokenRow) -> TokenView:
        return TokenView(row.name, row.scopes, row.made_at, row.by, row.expires_at, row.used_at,
                         not row.is_good(self._now()))  # fmt: skip
