"""Tokens of programs that ask over the network: what is kept of one, and what it may do.

A token is 256 random bits, so that its digest needs no salt and tells nothing of it: nobody guesses what was drawn. It
is told once, when it is made, and kept nowhere.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable
from datetime import datetime
from hashlib import sha256
from typing import Final, Literal, get_args

from msgspec import Struct

#: Rights of a token. "admin" has all of them; none of the others has another one.
Scope = Literal["read", "operate", "approve", "admin"]
SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)
#: The beginning of each token, by which people and scanners know one.
PREFIX: Final = "spar_"
#: Bytes that are drawn, and characters of a token.
_BYTES: Final = 32
LENGTH: Final = len(PREFIX) + 43
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}", re.ASCII)


class TokenRow(Struct, frozen=True):
    """Row of one token. `digest` is its SHA-256 in hexadecimal digits, `by` the maker, `used_at` the hour of its last
    use; it is good until `expires_at`."""

    name: str
    scopes: tuple[Scope, ...]
    digest: str
    made_at: datetime
    by: str = ""
    expires_at: datetime | None = None
    used_at: datetime | None = None

    def allows(self, scope: Scope) -> bool:
        """Return whether it has this right."""
        return scope in self.scopes or "admin" in self.scopes

    def is_good(self, now: datetime) -> bool:
        """Return whether it has not expired."""
        return self.expires_at is None or now < self.expires_at


class TokenView(Struct, frozen=True):
    """A token as it is listed: all but itself. `used_at` is exact to the hour."""

    name: str
    scopes: tuple[Scope, ...]
    made_at: datetime
    by: str = ""
    expires_at: datetime | None = None
    used_at: datetime | None = None
    is_expired: bool = False


class NewToken(Struct, frozen=True):
    """A token that was just made: the only time that `token`, the text itself, is told."""

    token: str
    name: str
    scopes: tuple[Scope, ...]
    expires_at: datetime | None = None


def new_token() -> str:
    """Return a token that nobody can guess."""
    return PREFIX + secrets.token_urlsafe(_BYTES)


def looks_like_one(text: str) -> bool:
    """Return whether a text has the form of a token."""
    return len(text) == LENGTH and text.startswith(PREFIX) and text.isascii()


def digest_of_token(token: str) -> str:
    return sha256(token.encode("utf-8", "replace")).hexdigest()


def check_name(name: str) -> str:
    """Return a name of a token. Raises: ValueError."""
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"name = {name[:80]!r}: must be 1 to 63 small letters, digits, '.', '_', '-', a letter or digit first"
        )
    return name


def in_order(scopes: Iterable[Scope]) -> tuple[Scope, ...]:
    """Return scopes once each, in the order of `SCOPES`. Raises: ValueError where there is none."""
    given = set(scopes)
    if not given:
        raise ValueError(f"scopes are missing; known: {', '.join(SCOPES)}")
    return tuple(scope for scope in SCOPES if scope in given)
