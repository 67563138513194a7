"""Pairing codes: the agent sends one to an unknown sender, the sender gives it to the owner, and the owner enters it.

So the owner knows that the person with the code reads the messages to that address. Only a digest is stored: somebody
who reads the database, a log or a backup cannot pair a sender.
"""

from __future__ import annotations

import hmac
import secrets
from hashlib import sha256
from typing import Final

#: Letters that do not look or sound alike; 8 of them are 40 bits.
ALPHABET: Final = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"
LENGTH: Final = 8


def new_code() -> str:
    """Return a random code: `K7QF-2M9X`."""
    letters = "".join(secrets.choice(ALPHABET) for _ in range(LENGTH))
    return f"{letters[:4]}-{letters[4:]}"


def new_salt() -> str:
    """Return a random salt for one code."""
    return secrets.token_hex(16)


def digest_of(code: str, salt: str) -> str:
    """Return the digest of a code for the store; case, spaces and dashes make no difference."""
    letters = "".join(letter for letter in code.upper() if letter in ALPHABET)
    return hmac.new(salt.encode(), letters.encode(), sha256).hexdigest()


def is_same(digest: str, code: str, salt: str) -> bool:
    """Return whether a code has this digest, in a time that reveals nothing about either."""
    return hmac.compare_digest(digest, digest_of(code, salt))
