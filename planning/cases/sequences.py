"""Sequences of calls that led to success from a situation on; pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from planning.cases.situations import Situation, has_same_params, is_same
from spar.data.scrub import MASK
from spar.records.abilities import thing_named, things_of
from spar.types import Experience, TriedCall, Trust

#: Stands where something of a kept parameter is left out, and begins references in parameters.
_LEFT_OUT: Final = "…"
_REFERENCE: Final = "†"


class KnownCall(Struct, frozen=True):
    """One call of a sequence: its tool, the parameters that can be given again, and how far these are trusted."""

    tool: str
    params: Mapping[str, Any] = {}
    trust: Trust = "trusted"


class KnownSequence(Struct, frozen=True):
    """Calls that led to success from a situation on, without those that failed on the way, and where it is known."""

    calls: tuple[KnownCall, ...]
    experience_id: str
    score: float

    @property
    def tools(self) -> tuple[str, ...]:
        return tuple(call.tool for call in self.calls)


def sequence_of(experiences: Iterable[Experience], at: Situation) -> KnownSequence | None:
    """Return the sequence of calls that began in this situation and worked, the best and then the shortest of them.

    A parameter is given again if it is one of the things that the situation is about, or was the same each time that
    these calls worked here.
    """
    found: dict[tuple[str, ...], list[tuple[Experience, list[TriedCall]]]] = {}
    for each in experiences:
        if each.success is not True or len(each.calls) < 2 or not is_same(each, at):
            continue
        if each.trust == "untrusted" and at.trust == "trusted":
            continue
        calls = [call for call in each.calls if call.success is not False]
        found.setdefault(tuple(call.tool for call in calls), []).append((each, calls))
    best = [(max(alike, key=lambda one: _score_of(one[0])), [calls for _, calls in alike]) for alike in found.values()]
    if not best:
        return None
    (experience, calls), alike = min(best, key=lambda one: (-_score_of(one[0][0]), len(one[0][1])))
    known = [_known_call(call, experience, [one[place] for one in alike], at) for place, call in enumerate(calls)]
    return KnownSequence(tuple(known), experience.id, _score_of(experience))


def _score_of(experience: Experience) -> float:
    return 1.0 if experience.score is None else experience.score


def _known_call(call: TriedCall, experience: Experience, alike: Sequence[TriedCall], at: Situation) -> KnownCall:
    """Return a call as it can be made again; no text of a stranger enters one about something trusted."""
    trust: Trust = "untrusted" if "untrusted" in (call.trust, experience.trust) else "trusted"
    if trust == "untrusted" and at.trust == "trusted":
        return KnownCall(call.tool)
    things = things_of(at.key)
    params = {
        name: value
        for name, value in call.params.items()
        if _is_whole(value)
        and (
            (isinstance(value, str) and thing_named(value) in things)
            or all(name in each.params and has_same_params({"": each.params[name]}, {"": value}) for each in alike)
        )
    }
    return KnownCall(call.tool, params, trust)


def _is_whole(value: Any) -> bool:
    """Return whether a kept parameter is what was given: nothing of it is masked or left out, and it is no
    reference."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return not any(sign in text for sign in (MASK, _LEFT_OUT, _REFERENCE))
