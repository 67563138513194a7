"""Situations in which something is decided, and what is the same in two of them; pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from msgspec import Struct

from spar.data.scrub import scrub
from spar.data.text import safe_line
from spar.records.abilities import wording
from spar.types import Experience, Perception, Trust

#: Characters of a text that are compared, and of those that are read for it.
_WORDS: Final = 160
LOOKED_AT: Final = 2_000


class Situation(Struct, frozen=True):
    """Subject of a decision. `key` is its name, `words` its text in the form in which it is compared."""

    key: str
    words: str
    trust: Trust
    session: str
    now: datetime
    incident: str = ""


def situation(perception: Perception, key: str, now: datetime) -> Situation:
    """Return the situation that a perception tells of, by its name."""
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
    """Return whether an experience was made in this very situation: its name is the same, and so are its words."""
    if experience.key and at.key and experience.key != at.key:
        return False
    if not at.words:
        return bool(experience.key)
    if experience.said and _words_of(experience.said) == at.words:
        return True
    return f" {wording(experience.situation)} ".endswith(f" {at.words} ")


def has_same_params(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two sets of parameters are the same, as far as they can be compared."""
    return _as_text(one) == _as_text(other)


def _words_of(text: str) -> str:
    """Return a text in the form in which situations are compared: without secrets, its beginning, as plain words."""
    return wording(safe_line(scrub(text[:LOOKED_AT]), _WORDS))


def _as_text(params: Mapping[str, Any]) -> str:
    return json.dumps(params, sort_keys=True, default=str)
