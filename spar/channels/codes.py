"""Pairing codes: an unknown sender is told one, and gives it to the owner, who says it to the agent.

So the owner knows that whoever gave it reads what is sent to that address. Only a digest is kept: nobody who reads the
database, a log or a backup can pair anybody.
"""

from __future__ import annotations

import hmac
import secrets
from hashlib import sha256
from typing import Final

#: No two of these look or sound alike; 8 of them are 40 bits.
ALPHABET: Final = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"
LENGTH: Final = 8


def new_code() -> str:
    """Return a code that nobody can guess: `K7QF-2M9X`."""
    letters = "".join(secrets.choice(ALPHABET) for _ in range(LENGTH))
    return f"{letters[:4]}-{letters[4:]}"


def new_salt() -> str:
    """Return the salt of one code."""
    return secrets.token_hex(16)


def digest_of(code: str, salt: str) -> str:
    """Return what is kept of a code; small letters, spaces and dashes make no difference."""
    letters = "".join(each for each in code.upper() if each in ALPHABET)
    return hmac.new(salt.encode(), letters.encode(), sha256).hexdigest()


def is_same(digest: str, code: str, salt: str) -> bool:
    """Return whether a code is the one of this digest, in a time that says nothing about either."""
    return hmac.compare_digest(digest, digest_of(code, salt))
