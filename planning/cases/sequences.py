"""Sequences of calls that began in a situation and led to success. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from planning.cases.situations import Situation, has_same_params, is_same
from spar.data.scrub import MASK
from spar.records.situations import thing_named, things_of
from spar.types import Experience, TriedCall, Trust

#: The sign of a cut in a stored parameter, and the first sign of a reference in a parameter.
_LEFT_OUT: Final = "…"
_REFERENCE: Final = "†"


class KnownCall(Struct, frozen=True):
    """One call of a sequence: its tool, the parameters that can be used again, and their trust."""

    tool: str
    params: Mapping[str, Any] = {}
    trust: Trust = "trusted"


class KnownSequence(Struct, frozen=True):
    """Calls that began in a situation and led to success, without those that failed; with the id of the experience."""

    calls: tuple[KnownCall, ...]
    experience_id: str
    score: float

    @property
    def tools(self) -> tuple[str, ...]:
        return tuple(call.tool for call in self.calls)


def sequence_of(experiences: Iterable[Experience], at: Situation) -> KnownSequence | None:
    """Return the best sequence of calls that began in this situation and worked; of equals the shortest one.

    A parameter is used again if its value is one of the things in the situation's key, or if it was the same each time
    that these calls worked here.
    """
    by_tools: dict[tuple[str, ...], list[tuple[Experience, list[TriedCall]]]] = {}
    for experience in experiences:
        if experience.success is not True or len(experience.calls) < 2 or not is_same(experience, at):
            continue
        if experience.trust == "untrusted" and at.trust == "trusted":
            continue
        calls = [call for call in experience.calls if call.success is not False]
        by_tools.setdefault(tuple(call.tool for call in calls), []).append((experience, calls))
    candidates = [
        (max(alike, key=lambda candidate: _score_of(candidate[0])), [calls for _, calls in alike])
        for alike in by_tools.values()
    ]
    if not candidates:
        return None
    (experience, calls), alike = min(
        candidates, key=lambda candidate: (-_score_of(candidate[0][0]), len(candidate[0][1]))
    )
    known = [
        _known_call(call, experience, [sequence[place] for sequence in alike], at) for place, call in enumerate(calls)
    ]
    return KnownSequence(tuple(known), experience.id, _score_of(experience))


def _score_of(experience: Experience) -> float:
    return 1.0 if experience.score is None else experience.score


def _known_call(call: TriedCall, experience: Experience, alike: Sequence[TriedCall], at: Situation) -> KnownCall:
    """Return a call as it can be made again. No untrusted parameter enters a call in a trusted situation."""
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
            or all(name in other.params and has_same_params({"": other.params[name]}, {"": value}) for other in alike)
        )
    }
    return KnownCall(call.tool, params, trust)


def _is_whole(value: Any) -> bool:
    """Return whether a stored parameter is the original value: not masked, not cut and not a reference."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return not any(sign in text for sign in (MASK, _LEFT_OUT, _REFERENCE))
