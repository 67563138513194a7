"""Stage 3: sets the intent, its confidence and the slots. An intent that is already set stays.

The first match of these decides: the rules of the configuration, the level that a sensor states, short words such as
"yes", the intents learnt from examples (`perception.learning`), the built-in rules. The built-in rules know only
English phrases that are cheap to find and hard to mistake. A text without a match gets `inform`, or `unknown` where
intents were learnt. `attributes["slots"]` holds the captures of a pattern's named groups and the learnt parts of the
text, `attributes["intent_confidence"]` the confidence 0..1, and `attributes["intent_why"]` the reason that learning
gives. `Perception.confidence` remains the sensor's own. An intent describes the wish in a text and grants nothing:
`trust` says whether the text may steer the agent.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any, ClassVar

from msgspec import Meta, Struct

from perception.learning.learner import Labels, Learnt
from perception.stages.classify import Rule, read_rules, text_of
from perception.stages.dedup import StageResult, enriched, with_attributes
from perception.stages.phrases import BUILT_IN, SAYS, SHORT
from spar.data.patterns import Glob
from spar.types import Perception, replace

FALLBACK = ("inform", 0.3)
UNKNOWN = ("unknown", 0.5)  # neither a learnt intent nor a rule fits

#: Intents by the `level` in a sensor's attributes, with their confidence.
LEVELS: dict[str, tuple[str, float]] = {
    **dict.fromkeys(("high", "warning", "critical", "firing"), ("report_problem", 0.95)),
    **dict.fromkeys(("normal", "ok", "resolved"), ("report_recovered", 0.95)),
}


class IntentRule(Rule, frozen=True, kw_only=True):
    """Rule that gives this `intent` with this `confidence` (0..1); `kind` restricts the perceptions."""

    filters: ClassVar[tuple[str, ...]] = ("source", "kind")
    intent: str
    kind: Glob | None = None
    confidence: Annotated[float, Meta(ge=0, le=1)] = 0.8


class IntentSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings `[perception.intent]`: rules that apply before all others."""

    enabled: bool = True
    rules: tuple[IntentRule, ...] = ()


def recognise(settings: IntentSettings, perceptions: Sequence[Perception], learnt: Learnt | None = None) -> StageResult:
    """Give an intent to each perception without one. Args: learnt: the classifiers that were learnt from examples."""
    labels = learnt.get("intent") if learnt else None

    def with_intent(perception: Perception) -> Perception:
        if perception.intent:
            return perception
        text = text_of(perception)
        return (
            _by_rules(perception, text, settings.rules)
            or _by_level(perception)
            or _by_rules(perception, text, _built_in(is_short=True))
            or (_by_learning(labels, perception, text) if labels and perception.kind in SAYS else None)
            or _by_rules(perception, text, _built_in())
            or _with_intent(perception, *FALLBACK)
        )

    return enriched(perceptions, with_intent)


def _by_learning(labels: Labels, perception: Perception, text: str) -> Perception | None:
    """Return the perception with a learnt intent; where none fits, with that of the built-in rules, or with `unknown`.
    Return None where learning has no reading."""
    reading = labels.read(text)
    if reading is None:
        return None
    if reading.label is not None:
        known = _with_intent(perception, reading.label, round(reading.confidence, 3), labels.slots(reading.label, text))
    else:
        known = _by_rules(perception, text, _built_in()) or _with_intent(perception, *UNKNOWN)
    return with_attributes(known, intent_why=reading.why)


def _by_rules(perception: Perception, text: str, rules: Sequence[IntentRule]) -> Perception | None:
    for rule in rules:
        if (slots := rule.find(perception, text)) is not None:
            return _with_intent(perception, rule.intent, rule.confidence, slots)
    return None


def _by_level(perception: Perception) -> Perception | None:
    level = perception.attributes.get("level")
    known = LEVELS.get(level) if isinstance(level, str) else None
    return _with_intent(perception, *known) if known else None


def _with_intent(
    perception: Perception, intent: str, confidence: float, slots: dict[str, str] | None = None
) -> Perception:
    attributes: dict[str, Any] = {**perception.attributes, "intent_confidence": confidence}
    if slots:
        sensor_slots = attributes.get("slots")  # the sensor's own slots are more reliable than a pattern's guess
        attributes["slots"] = {**slots, **sensor_slots} if isinstance(sensor_slots, dict) else slots
    return replace(perception, intent=intent, attributes=attributes)


@cache
def _built_in(*, is_short: bool = False) -> tuple[IntentRule, ...]:
    return read_rules(SHORT if is_short else BUILT_IN, IntentRule)
