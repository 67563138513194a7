"""Stage 3: what is asked or implied, how sure that is, and what it is about. A given intent stays.

The first that knows decides: the rules of the configuration, the level that a sensor itself states, short words such
as "yes", what was learnt from examples (`perception.learning`), the built-in rules. These know English, and only
turns of phrase that are cheap and hard to mistake; whatever fits nothing informs, or is `unknown` where intents were
learnt. What the named groups of a pattern captured and what learnt texts name goes to `attributes["slots"]`, how sure
the reading is (0..1) to `attributes["intent_confidence"]`, what learning says to `attributes["intent_why"]`;
`Perception.confidence` remains the sensor's own. An intent describes what a text wants, it grants nothing: whether
the text may steer the agent is said by `trust`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any, ClassVar

from msgspec import Meta, Struct

from perception.learning.classifier import Reading
from perception.learning.learner import Labels, Learnt
from perception.stages.classify import Glob, Rule, read_rules, text_of
from perception.stages.dedup import StageResult
from perception.stages.phrases import BUILT_IN, SAYS, SHORT
from spar.types import Perception, replace

FALLBACK = ("inform", 0.3)
UNKNOWN = ("unknown", 0.5)  # none of the learnt intents, and no rule fits

#: What the `level` in a sensor's attributes means; it needs no reading.
LEVELS: dict[str, tuple[str, float]] = {
    "high": ("report_problem", 0.95),
    "warning": ("report_problem", 0.95),
    "critical": ("report_problem", 0.95),
    "firing": ("report_problem", 0.95),
    "normal": ("report_recovered", 0.95),
    "ok": ("report_recovered", 0.95),
    "resolved": ("report_recovered", 0.95),
}


class IntentRule(Rule, frozen=True, kw_only=True):
    """A rule that gives this `intent`, with this `confidence` (0..1); `kind` narrows what may fit."""

    filters: ClassVar[tuple[str, ...]] = ("source", "kind")
    intent: str
    kind: Glob | None = None
    confidence: Annotated[float, Meta(ge=0, le=1)] = 0.8


class IntentSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[perception.intent]`: rules that go before everything else."""

    enabled: bool = True
    rules: tuple[IntentRule, ...] = ()


def recognise(settings: IntentSettings, perceptions: Sequence[Perception], learnt: Learnt | None = None) -> StageResult:
    """Give an intent to each perception that has none. Args: learnt: what was learnt from examples."""
    labels = learnt.get("intent") if learnt else None
    kept: list[Perception] = []
    touched = 0
    for perception in perceptions:
        if not perception.intent:
            text = text_of(perception)
            perception = (
                _read(perception, text, settings.rules)
                or _stated(perception)
                or _read(perception, text, _built_in(is_short=True))
                or (_learnt(labels, perception, text) if labels and perception.kind in SAYS else None)
                or _read(perception, text, _built_in())
                or _given(perception, *FALLBACK)
            )
            touched += 1
        kept.append(perception)
    return StageResult(kept, touched=touched)


def _learnt(labels: Labels, perception: Perception, text: str) -> Perception | None:
    """Return the perception with a learnt intent; without one, as the built-in rules know it, or as unknown."""
    reading = labels.read(text)
    if reading is None:
        return None
    if reading.label is not None:
        known = _given(perception, reading.label, round(reading.confidence, 3), labels.slots(reading.label, text))
    else:
        known = _read(perception, text, _built_in()) or _given(perception, *UNKNOWN)
    return _explained(known, reading)


def _explained(perception: Perception, reading: Reading) -> Perception:
    return replace(perception, attributes={**perception.attributes, "intent_why": reading.why})


def _read(perception: Perception, text: str, rules: Sequence[IntentRule]) -> Perception | None:
    for rule in rules:
        slots = rule.find(perception, text)
        if slots is not None:
            return _given(perception, rule.intent, rule.confidence, slots)
    return None


def _stated(perception: Perception) -> Perception | None:
    level = perception.attributes.get("level")
    known = LEVELS.get(level) if isinstance(level, str) else None
    return _given(perception, *known) if known else None


def _given(perception: Perception, intent: str, confidence: float, slots: dict[str, str] | None = None) -> Perception:
    attributes: dict[str, Any] = {**perception.attributes, "intent_confidence": confidence}
    if slots:
        own = attributes.get("slots")  # what a sensor has found out itself is better than a pattern's guess
        attributes["slots"] = {**slots, **own} if isinstance(own, dict) else slots
    return replace(perception, intent=intent, attributes=attributes)


@cache
def _built_in(*, is_short: bool = False) -> tuple[IntentRule, ...]:
    return read_rules(SHORT if is_short else BUILT_IN, IntentRule)
