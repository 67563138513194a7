"""The situation of a decision, and the comparison of two situations. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from msgspec import Struct

from spar.data.learning.situations import wording
from spar.data.scrub import scrub
from spar.data.text import safe_line
from spar.types import Experience, Perception, Trust

#: Characters of a text that are compared, and characters that are read for that.
_WORDS: Final = 160
LOOKED_AT: Final = 2_000


class Situation(Struct, frozen=True):
    """The situation of a decision. `key` is its name; `words` is its text in the form that is compared."""

    key: str
    words: str
    trust: Trust
    session: str
    now: datetime
    incident: str = ""


def situation(perception: Perception, key: str, now: datetime) -> Situation:
    """Return the situation of a perception. Args: key: its name."""
    incident = perception.attributes.get("incident")
    return Situation(
        key,
        _words_of(perception.text),
        perception.trust,
        perception.session,
        now,
        incident if isinstance(incident, str) and not perception.kind.endswith(".closed") else "",
    )


def is_same(experience: Experience, at: Situation) -> bool:
    """Return whether an experience belongs to this situation: its key, if known, and its words are the same."""
    if experience.key and at.key and experience.key != at.key:
        return False
    if not at.words:
        return bool(experience.key)
    if experience.said and _words_of(experience.said) == at.words:
        return True
    return f" {wording(experience.situation)} ".endswith(f" {at.words} ")


def has_same_params(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two sets of parameters are the same as JSON."""
    return _as_text(one) == _as_text(other)


def _words_of(text: str) -> str:
    """Return the beginning of a text as plain words without secrets, the form in which situations are compared."""
    return wording(safe_line(scrub(text[:LOOKED_AT]), _WORDS))


def _as_text(params: Mapping[str, Any]) -> str:
    return json.dumps(params, sort_keys=True, default=str)
