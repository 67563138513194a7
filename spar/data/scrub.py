"""Removal of secrets from text and tables before anybody else sees them.

A secret is recognised in three ways: by its name (`api_key = …`), by its shape (`Bearer …`, `sk-…`, `?key=…` in an
address), and by its value, if a program declared it secret (`know`). Pure except for these values; other secrets are
not recognised.

`mask` removes only known kinds, whose shape no ordinary text has: for texts of people and tools that are stored and
shown. `scrub` removes everything that may be a secret: for logs and errors, which need not be complete.

The work of every pattern is proportional to the length of the text: each repetition is bounded or ends at the first
character that it does not match.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from spar.checks import SCALARS
from spar.data.patterns import any_of

MASK = "***"

#: Least characters of a hidden value; a shorter one would remove ordinary words.
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


def _begin(first: str) -> str:
    """Return the pattern for the first character of a kind, which must not follow a word character.

    The letter of an escape of JSON does not count as one. The character stands before that condition, so that a search
    looks for it first.
    """
    return rf"{first}(?:(?<!\w{first})|(?<=\\[bfnrt]{first})|(?<=\\u[0-9A-Fa-f]{{4}}{first}))"


# Known kinds. Each pattern keeps its first group, which names the secret, and removes the other characters. No pattern
# matches a quotation mark or half of an escape, so a text that is JSON stays JSON.
_PRIVATE_KEY = (
    r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
    r"(?:[^\"\\-]|\\[nrt/]|-(?!----))*(?:-----END [A-Z ]{0,40}-----)?"
)
_KINDS = (
    re.compile(_PRIVATE_KEY),
    re.compile(
        rf"(?i)({_begin('a')}uthorization"
        r"(?:\s{0,3}[:=]\s{0,3}|\\?[\"']\s{0,3}[:=]\s{0,3}\\?[\"'])(?:(?:bearer|basic|digest|token)\s{1,3})?)"
        r"[A-Za-z0-9._~+/=-]{4,}"
    ),
    re.compile(_begin("g") + r"h[pousr]_[A-Za-z0-9]{16,}"),
    re.compile(_begin("g") + r"ithub_pat_[A-Za-z0-9_]{16,}"),
    re.compile(_begin("g") + r"lpat-[A-Za-z0-9_-]{16,}"),
    re.compile(_begin("x") + r"ox[abeoprs]-[A-Za-z0-9-]{8,}"),
    re.compile(_begin("A") + r"(?:KIA|SIA)[0-9A-Z]{16}\b"),
    re.compile(_begin("A") + r"Iza[A-Za-z0-9_-]{35}"),
    re.compile(_begin("y") + r"a29\.[A-Za-z0-9_-]{16,}"),
    re.compile(_begin("n") + r"pm_[A-Za-z0-9]{30,}"),
    re.compile(_begin("h") + r"f_[A-Za-z0-9]{30,}"),
    re.compile(_begin("p") + r"ypi-[A-Za-z0-9_-]{40,}"),
    re.compile(_begin("s") + r"par_(?=[a-z0-9_-]{0,42}[A-Z])[A-Za-z0-9_-]{43}(?![A-Za-z0-9_-])"),
    re.compile(_begin("S") + r"G\.[A-Za-z0-9_-]{16,64}\.[A-Za-z0-9_-]{16,64}"),
    # Bounded, because the search begins anew at each "-".
    re.compile(_begin("e") + r"yJ[A-Za-z0-9_-]{6,1000}\.[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]*"),
)
#: Kinds that look like words: they count only with a digit in them, or if they are longer than words are.
_WORDLIKE = (
    re.compile(_begin("[spr]") + r"k[-_][A-Za-z0-9_-]{8,}"),
    re.compile(rf"(?i)({_begin('b')}earer\s{{1,3}})[A-Za-z0-9._~+/=-]{{8,}}"),
)
_LONG = 32
_DIGITS = frozenset("0123456789")
#: Letters of JSON's escapes with which a kind may begin.
_ESCAPES = frozenset("bfnrtu")

# Shapes of everything that may be a secret.
_SHAPES = (
    re.compile(r"(?i)\b((?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{4,}"),
    re.compile(r"(?i)(\b[a-z][a-z0-9+.-]{0,20}://[^\s/:@]{0,200}:)[^\s/@]+(?=@)"),
    re.compile(
        r"(?i)\b((?:[a-z0-9]{1,20}[_-]){0,3}(?:token|secret|password|passwd|api[_-]?key|access[_-]?key|signature)"
        r"[\"']?\s{0,3}[=:]\s{0,3}[\"']?)[^\s\"'&,;)}\]]+"
    ),
    re.compile(r"(?i)([?&](?:key|sig|auth|code)=)[^\s\"'&#]+"),
    re.compile(r"()\b(?:sk|pk|rk)-[A-Za-z0-9_-]{8,}"),
)

#: Hints: a text without any of them matches no pattern, and most texts have none. The hints are grouped by a character
#: that each of them contains: most short texts do not even contain that character.
_HINTS_OF_KINDS = (
    ("", ("authorization", "bearer", "akia", "asia", "aiza")),
    ("-", ("private key", "sk-", "pk-", "rk-", "glpat-", "xox", "pypi-")),
    ("_", ("sk_", "pk_", "rk_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "npm_", "hf_", "spar_")),
    (".", ("ya29.", "sg.", "eyj")),
)
#: Most characters of a text that is searched for one hint after the other. A search for all hints at once is faster in
#: a longer text, but it releases the interpreter to other threads, which costs more than the search itself.
_SHORT = 1_000
_HINTS_OF_SHAPES = ("bearer", "basic", "://", "token", "secret", "passw", "key", "signature", "sig=", "auth=", "code=",
                    "sk-", "pk-", "rk-")  # fmt: skip
_may_hold_kind = any_of(*[hint for _, hints in _HINTS_OF_KINDS for hint in hints])
_may_hold_shape = any_of(*_HINTS_OF_SHAPES)


#: Values that this process shows nowhere, in each form in which they are written; the longest first.
_known: tuple[str, ...] = ()


def know(*values: str) -> None:
    """Hide these secrets everywhere in this process from now on: each as it is, in a URL, in base64 and in JSON. Values
    of fewer than six characters are ignored."""
    global _known
    from urllib.parse import quote  # not at the top: most programs hide no values

    forms = set(_known)
    for value in values:
        if len(value) >= SHORTEST_HIDDEN:
            encoded = value.encode("utf-8", "replace")
            forms |= {value, quote(encoded, safe=""), base64.b64encode(encoded).decode().rstrip("=")}
            forms |= {json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
    # The longest first: a value may be part of another.
    _known = tuple(sorted(forms, key=lambda value: (-len(value), value)))


def _remove_known(text: str) -> str:
    for value in _known:
        if value in text:
            text = text.replace(value, MASK)
    return text


@lru_cache(maxsize=1024)
def is_secret_name(name: str) -> bool:
    """Return whether this is the name of a secret: `API_KEY`, `accessToken`, `smtp-password`, not `max_tokens`."""
    return _SECRET_NAME.search(_HUMP.sub("_", name).replace("-", "_").lower()) is not None


def may_hold(text: str) -> bool:
    """Return whether a text may contain a secret of a known kind."""
    if len(text) < SHORTEST_HIDDEN:
        return False
    if _known and any(value in text for value in _known):
        return True
    if len(text) > _SHORT:
        return _may_hold_kind(text)
    lowered = text.lower()
    for character, hints in _HINTS_OF_KINDS:
        if character in lowered:
            for hint in hints:
                if hint in lowered:
                    return True
    return False


def mask(text: str) -> str:
    """Return the text with known kinds of secrets replaced by `***`.

    Known kinds are keys with a recognised prefix, private keys in PEM, JSON web tokens, and the text after
    `Authorization:` or `Bearer`.
    """
    if may_hold(text):
        text = _remove_known(text)
        for kind in (*_KINDS, *_WORDLIKE):
            text = kind.sub(_mask_match, text)
    return text


def mask_json(text: str) -> str:
    """Return the JSON text as `mask` does, still JSON: no match begins with the letter of an escape."""
    if may_hold(text):
        text = _remove_known(text)
        for kind in (*_KINDS, *_WORDLIKE):
            text = kind.sub(_mask_match_in_json, text)
    return text


def _mask_match(match: re.Match[str]) -> str:
    prefix = match[1] if match.re.groups else ""
    value = match[0][len(prefix) :]
    is_secret = match.re not in _WORDLIKE or len(value) >= _LONG or not _DIGITS.isdisjoint(value)
    return f"{prefix}{MASK}" if is_secret else match[0]


def _mask_match_in_json(match: re.Match[str]) -> str:
    start = match.start()
    backslashes = 0
    while backslashes < start and match.string[start - backslashes - 1] == "\\":
        backslashes += 1
    if backslashes % 2 and match[0][0] in _ESCAPES:
        return match[0][0] + match.re.sub(_mask_match, match[0][1:])
    return _mask_match(match)


def masked(value: Any) -> Any:
    """Return plain data with each text in it masked, except keys; other values stay as they are. Data without a secret
    is returned itself."""
    texts, items = [], [value]
    for item in items:  # the list grows while its containers are read
        kind = type(item)
        if kind is str:
            texts.append(item)
        elif kind is dict:
            items += item.values()
        elif kind is list or kind is tuple:
            items += item
        elif kind not in SCALARS:
            return scrubbed(value, mask, named=())
    # One search over all texts, since most data has no secret.
    return scrubbed(value, mask, named=()) if may_hold("\n".join(texts)) else value


def scrubbed(value: Any, clean: Callable[[str], str] | None = None, named: type | tuple[type, ...] = object) -> Any:
    """Return plain data with each text in it scrubbed, and without the values whose names are those of secrets.

    Args: clean: returns a text without secrets, `scrub` by default; named: the types of values whose names count.
    """
    clean = clean or scrub
    if isinstance(value, str):
        return clean(value)
    if type(value) in SCALARS:
        return value
    if isinstance(value, Mapping):
        return {key: MASK if item is not None and isinstance(item, named) and is_secret_name(str(key)) else
                scrubbed(item, clean, named) for key, item in value.items()}  # fmt: skip
    return [scrubbed(item, clean, named) for item in value] if isinstance(value, (list, tuple)) else value


def scrub(text: str) -> str:
    """Return the text with everything that is shaped like a secret replaced by `***`."""
    if len(text) < SHORTEST_HIDDEN:
        return text
    text = mask(text)
    if _has_hint(text.lower()) if len(text) <= _SHORT else _may_hold_shape(text):
        for shape in _SHAPES:
            text = shape.sub(rf"\1{MASK}", text)
    return text


def _has_hint(lowered: str) -> bool:
    return any(hint in lowered for hint in _HINTS_OF_SHAPES)
