"""Takes secrets out of text and tables before anybody else sees them.

Three ways to know a secret: the name it is kept under (`api_key = …`), its shape (`Bearer …`, `sk-…`,
`?key=…` in an address), and its value, when somebody said that it is one (`Scrubber.hide`). Pure but for the
hidden values; what cannot be recognised in one of these ways is not found.
"""

from __future__ import annotations

import base64
import re
from functools import lru_cache
from urllib.parse import quote

MASK = "***"

#: A hidden value shorter than this would blot out ordinary words.
SHORTEST_HIDDEN = 6

_NAMES = (
    "token",
    "secret",
    "secrets",
    "password",
    "passwd",
    "passphrase",
    "authorization",
    "api_key",
    "apikey",
    "access_key",
    "private_key",
    "credential",
    "credentials",
    "cookie",
)
_SECRET_NAME = re.compile(rf"(?:^|_)(?:{'|'.join(_NAMES)})$")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

# Each pattern keeps its first group, which says what was there, and loses the rest.
_SHAPES = (
    re.compile(r"(?i)\b((?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{4,}"),
    re.compile(r"(?i)(\b[a-z][a-z0-9+.-]{0,20}://[^\s/:@]{0,200}:)[^\s/@]+(?=@)"),
    re.compile(
        r"(?i)\b((?:[a-z0-9]{1,20}[_-]){0,3}(?:token|secret|password|passwd|api[_-]?key|access[_-]?key|signature)"
        r"[\"']?\s{0,3}[=:]\s{0,3}[\"']?)[^\s\"'&,;)}\]]+"
    ),
    re.compile(r"(?i)([?&](?:key|sig|auth|code)=)[^\s\"'&#]+"),
    re.compile(r"()\b(?:sk|pk|rk)-[A-Za-z0-9_-]{8,}"),
    re.compile(r"()\bgh[pousr]_[A-Za-z0-9]{16,}"),
    re.compile(r"()\bgithub_pat_[A-Za-z0-9_]{16,}"),
    re.compile(r"()\bxox[abeoprs]-[A-Za-z0-9-]{8,}"),
    re.compile(r"()\bAKIA[0-9A-Z]{16}\b"),
    re.compile(
        r"()\beyJ[A-Za-z0-9_-]{6,1000}\.[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]*"
    ),  # bounded: it begins anew at each "-"
)

#: No shape can match a text that has none of these in lower case; most texts have none, and looking is cheap.
_HINTS = (
    *("bearer", "basic", "://", "token", "secret", "passw", "key", "signature", "sig=", "auth=", "code="),
    *("sk-", "pk-", "rk-", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "xox", "akia", "eyj"),
)


@lru_cache(maxsize=1024)
def is_secret_name(name: str) -> bool:
    """Whether what is kept under this name is a secret: `API_KEY`, `accessToken`, `smtp-password`, not `max_tokens`."""
    return _SECRET_NAME.search(_HUMP.sub("_", name).replace("-", "_").lower()) is not None


def scrub(text: str) -> str:
    """The text with everything that is shaped like a secret replaced by `***`."""
    if len(text) < SHORTEST_HIDDEN:
        return text
    lowered = text.lower()
    if not any(hint in lowered for hint in _HINTS):
        return text
    for shape in _SHAPES:
        text = shape.sub(rf"\1{MASK}", text)
    return text


class Scrubber:
    """`scrub`, and values that are known to be secret, also where they stand encoded for a URL or in base64."""

    __slots__ = ("_hidden",)

    def __init__(self, *values: str) -> None:
        self._hidden: tuple[str, ...] = ()
        self.hide(*values)

    def hide(self, *values: str) -> None:
        """Never show these again. Values of fewer than six characters are ignored."""
        found = set(self._hidden)
        for value in values:
            if len(value) >= SHORTEST_HIDDEN:
                encoded = value.encode("utf-8", "replace")
                found |= {value, quote(encoded, safe=""), base64.b64encode(encoded).decode().rstrip("=")}
        # The longest first: a value may be a part of another.
        self._hidden = tuple(sorted(found, key=lambda value: (-len(value), value)))

    def __call__(self, text: str) -> str:
        for value in self._hidden:
            if value in text:
                text = text.replace(value, MASK)
        return scrub(text)
