"""Access tokens of the control API: the stored row of a token, its scopes and its name."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from typing import Final, Literal, get_args

from msgspec import Struct

#: Scopes (rights) of a token. "admin" includes all others; no other scope includes another one.
Scope = Literal["read", "operate", "step", "approve", "admin"]
SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)
#: Longest validity of a token, in days.
LONGEST_DAYS: Final = 3_650
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}", re.ASCII)


class TokenTerms(Struct, frozen=True):
    """Terms of one token: `by` is its creator, `used_at` the hour of its last use, `expires_at` the time from which it
    is invalid (None: never)."""

    name: str
    scopes: tuple[Scope, ...]
    made_at: datetime
    by: str = ""
    expires_at: datetime | None = None
    used_at: datetime | None = None


class TokenRow(TokenTerms, frozen=True, kw_only=True):
    """Stored row of one token. `digest` is the SHA-256 of the token in hexadecimal digits."""

    digest: str


class TokenView(TokenTerms, frozen=True):
    """Token as it is listed, without its secret text and digest. `used_at` is exact to the hour."""

    is_expired: bool = False


class NewToken(Struct, frozen=True):
    """Token that was just created; nothing else contains `token`, its secret text."""

    token: str
    name: str
    scopes: tuple[Scope, ...]
    expires_at: datetime | None = None


def check_name(name: str) -> str:
    """Return the name of a token unchanged. Raises: ValueError if it has not the form of a name."""
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"name = {name[:80]!r}: must be 1 to 63 small letters, digits, '.', '_', '-', a letter or digit first"
        )
    return name


def in_order(scopes: Iterable[Scope]) -> tuple[Scope, ...]:
    """Return the scopes without repetitions, in the order of `SCOPES`. Raises: ValueError if there are none."""
    unique = set(scopes)
    if not unique:
        raise ValueError(f"scopes are missing; known: {', '.join(SCOPES)}")
    return tuple(scope for scope in SCOPES if scope in unique)
