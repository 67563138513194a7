"""Reply of a run as people read it: pure decisions about texts.

`NO_REPLY`, or `silent` in the answer, is a choice to say nothing, which is not the same as having nothing to say. Two
texts that differ in case, spaces and signs like 🙂 only are the same. Source of the rules: OpenClaw's reply shaping and
message deduplication.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any, Final

from msgspec import Struct

from spar.data.json_safe import UNBOUNDED, plain
from spar.data.scrub import scrub
from spar.types import CallResult

TOKEN: Final = "NO_REPLY"
_SILENT = re.compile(rf"\s*(?:{TOKEN}\s*)+", re.IGNORECASE)
#: Texts shorter than this (characters, once made comparable) are too common to be repetitions of one another.
_SHORTEST = 10
#: Characters of a text, made comparable, that is looked for inside others.
_LONGEST_COMPARED = 20_000
#: Characters of the reason why a run failed that people are told; the whole stands in its status.
_LONGEST_WHY = 500
#: The share of the longer text that the shorter one must be, to say the same somewhere inside it.
_SHARE = 0.5
#: Statuses of calls that did not do what they were to do.
_BAD: Final = ("failed", "timeout", "denied")


class Reply(Struct, frozen=True):
    """`text` is what people are told (None: nothing), `is_silent` that this was chosen."""

    text: str | None = None
    is_silent: bool = False


def reply_of(output: Any) -> Reply:
    """Return the reply to people of an answer."""
    if output is None:
        return Reply()
    if isinstance(output, str):
        return Reply(None, True) if is_silent(output) else Reply(output) if output.strip() else Reply()
    if isinstance(output, Mapping):
        if output.get("silent") is True:
            return Reply(None, True)
        said = next((output[key] for key in ("reply", "text", "message") if isinstance(output.get(key), str)), None)
        if said is not None:
            return reply_of(said)
    return Reply(_json_of(output))


def _json_of(output: Any) -> str:
    """An answer that is no text, as people are told it. Never raises."""
    try:
        return json.dumps(output, ensure_ascii=False, default=str)
    except Exception:  # keys that are no text, an object that cannot be shown
        return json.dumps(plain(output, UNBOUNDED), ensure_ascii=False)


def is_silent(text: str) -> bool:
    """Return whether a whole text is the token, however written and however often."""
    return _SILENT.fullmatch(text) is not None


def may_become_silent(text: str) -> bool:
    """Return whether a text that is still being written may turn out to be the token: not to be shown yet."""
    rest = _SILENT.sub("", text.lstrip(), count=1) if _SILENT.match(text) else text.lstrip()
    return TOKEN.startswith(rest.strip().upper())


def is_same(before: str, text: str) -> bool:
    """Return whether a text says nothing that was not said before."""
    return repeats(comparable(before), comparable(text))


def repeats(old: str, new: str) -> bool:
    """Return whether a text, made comparable, says nothing that another one did not; the work is bounded."""
    if min(len(old), len(new)) < _SHORTEST:
        return False
    if old == new:
        return True
    if new.startswith(old):  # "Done." and then "Done. Actually it failed." are two things
        return not any(sign.isalnum() for sign in new[len(old) :])
    if old in new:
        return len(old) >= _SHARE * len(new)
    return new in old and len(new) >= _SHARE * len(old)


def comparable(text: str) -> str:
    """Return a text without its dress: case, spaces, signs like 🙂. A very long one is named by its digest: it is the
    same as an equal one only, and costs nothing to compare."""
    plainly = " ".join(text.translate(_DRESS).casefold().split())
    if len(plainly) <= _LONGEST_COMPARED:
        return plainly
    return f"\0{blake2b(plainly.encode('utf-8', 'surrogatepass'), digest_size=16).hexdigest()}"


class _Dress(dict[int, str | None]):
    """The table that takes away signs that say nothing; each sign is looked up once in a process."""

    def __missing__(self, code: int) -> str | None:
        kept = self[code] = None if unicodedata.category(chr(code)) in ("So", "Sk", "Cf", "Mn") else chr(code)
        return kept


_DRESS: Final = _Dress()


def fallback(results: Iterable[CallResult]) -> str | None:
    """The one sentence that stands for an answer where there is none and calls failed; None when none did."""
    bad = [each for each in results if each.status in _BAD and each.reason != "handled"]
    if not bad:
        return None
    first = bad[0]
    why = first.fault.message if first.fault is not None else first.reason or first.status
    more = f" ({len(bad) - 1} more calls did not end well)" if len(bad) > 1 else ""
    return f"{first.call.tool} did not work: {why}{more}"


def failure(error: str) -> str:
    """Return the one sentence by which people are told that a run came to nothing; no secret is in it."""
    why = scrub(" ".join(error.split()) or "nobody knows why")
    return f"I could not finish this: {why if len(why) <= _LONGEST_WHY else why[:_LONGEST_WHY] + ' …'}"
