"""Stage 3: what is asked or implied, how sure that is, and what it is about. A given intent stays.

The rules are read in order and the first that fits decides: those of the configuration, then the level that a
sensor itself states, then the built-in ones. These know English, and only turns of phrase that are cheap and
hard to mistake; whatever fits nothing informs. What the named groups of a pattern captured goes to
`attributes["slots"]`, how sure the reading is (0..1) to `attributes["intent_confidence"]`;
`Perception.confidence` remains the sensor's own. An intent describes what a text wants, it grants nothing:
whether the text may steer the agent is said by `trust`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any, ClassVar

from msgspec import Meta, Struct

from perception.stages.classify import Glob, Rule, read_rules, text_of
from perception.stages.dedup import MESSAGE, StageResult
from spar.types import Perception, replace

SAYS = [MESSAGE, ""]  # the kinds in which somebody may be speaking
FALLBACK = ("inform", 0.3)

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

_VERBS = (
    "add|analy[sz]e|archive|backup|block|build|call|check|clean|close|compare|copy|create|delete|deploy|disable|"
    "download|draft|enable|explain|extend|fetch|file|find|fix|forward|get|give|install|kill|list|look up|make|"
    "monitor|move|notify|open|post|print|read|reboot|remind|remove|rename|reply|report|reset|restart|restore|retry|"
    "roll back|rotate|run|save|schedule|search|send|set|show|shut down|start|stop|summari[sz]e|sync|tell|test|"
    "translate|turn off|turn on|uninstall|update|upgrade|upload|verify|wait|watch|write"
)
# Up to the end of the line or a question mark, without the politeness and the full stop.
_OBJECT = r"(?P<what>[^\n?]{1,1000}?)(?:,? please)?(?=[.!\s]{0,3}(?:[?\n]|\Z))"
# "restart failed" is no order to restart something.
_NOT_AN_OBJECT = (
    "(?:is|are|was|were|has|have|had|did|does|failed|fails|completed|succeeded|finished|timed|aborted|error)"
)
# Whoever adds to these two: the letters that they may begin with stand before them in the rule, which is then
# three times as fast.
_TROUBLE = (
    "errors?|fail(?:s|ed|ing|ures?)?|crash(?:ed|es|ing)?|outage|unreachable|time(?:d |-)?outs?|exhausted|firing|broken|"
    "(?:connection|access) refused|not (?:working|responding|reachable|available)|(?:doesn|isn)['’]t work(?:ing)?|"
    "does not work|panic(?:ked)?|exception|traceback|corrupt(?:ed|ion)?|overload(?:ed)?|out of (?:memory|disk|space)|"
    "no space left|(?:is|are|was|went|goes|gone) (?:down|offline|full|dead)|(?:almost|nearly) full|segmentation fault"
)
_RECOVERY = (
    "recovered|resolved|back (?:to normal|online|up)|(?:up|works|working|healthy|reachable) again|restored|"
    "has been fixed|is fixed|no longer (?:failing|firing|down)"
)
_YES = "y|yes|yep|yeah|ok|okay|sure|correct|agreed|approved?|confirm(?:ed)?|go ahead|do it|sounds good|please do"
_NO = "n|no|nope|nah|never|no way|not now|don['’]t|do not|den(?:y|ied)|reject(?:ed)?|declined?"

#: Used after the rules of the configuration; written as they are. The first that fits decides.
BUILT_IN: tuple[dict[str, Any], ...] = (
    {"intent": "inform", "confidence": 0.9, "kind": ["file.*", "schedule.tick"]},
    {
        "intent": "greeting",
        "confidence": 0.9,
        "kind": SAYS,
        "pattern": r"(?i)\A\W{0,3}(?:hi|hello|hey|greetings|good (?:morning|afternoon|evening|day))"
        r"(?: (?:there|all|everyone|everybody|team|again|folks))?\W{0,5}\Z",
    },
    {
        "intent": "confirm",
        "confidence": 0.9,
        "kind": SAYS,
        "pattern": rf"(?i)\A\W{{0,3}}(?:{_YES})"
        r"(?:[ ,]{1,2}(?:please|thanks|thank you|go ahead|do it|sure|of course))?[\s.!]{0,5}\Z",
    },
    {
        "intent": "deny",
        "confidence": 0.9,
        "kind": SAYS,
        "pattern": rf"(?i)\A\W{{0,3}}(?:{_NO})"
        r"(?:[ ,]{1,2}(?:please|thanks|thank you|don['’]t|do not|do that|do it|not now)){0,2}[\s.!]{0,5}\Z",
    },
    {
        "intent": "question",
        "confidence": 0.9,
        "kind": SAYS,
        "pattern": r"(?i)\A\W{0,3}(?:who|whom|whose|what|when|where|why|which|how)(?:['’]s|['’]re)?\b[^\n]{0,300}\?",
    },
    {
        "intent": "request",
        "confidence": 0.85,
        "kind": SAYS,
        "pattern": rf"(?i)\b(?:c(?:an|ould)|w(?:ould|ill)) you (?:please |kindly )?(?P<verb>\w{{1,30}})(?: {_OBJECT})?",
    },
    {
        "intent": "request",
        "confidence": 0.85,
        "kind": SAYS,
        "pattern": rf"(?i)\bI(?: need| want| would like|['’]d like) you to (?P<verb>\w{{1,30}})(?: {_OBJECT})?",
    },
    {
        "intent": "request",
        "confidence": 0.85,
        "kind": SAYS,
        "pattern": rf"(?i)\A\W{{0,3}}please,? (?P<verb>\w{{1,30}})(?: {_OBJECT})?",
    },
    {
        "intent": "request",
        "confidence": 0.75,
        "kind": SAYS,
        "pattern": rf"(?i)\A\W{{0,3}}(?P<verb>{_VERBS}) (?!{_NOT_AN_OBJECT}\b)(?:{_OBJECT})?",
    },
    {
        "intent": "request",
        "confidence": 0.75,
        "kind": SAYS,
        "pattern": r"(?i)\A\W{0,3}(?P<verb>stop|cancel|abort|pause|resume|continue|retry|undo|help|status)\W{0,5}\Z",
    },
    {"intent": "question", "confidence": 0.8, "kind": SAYS, "pattern": r"\?[\s)\"'!?]{0,5}\Z"},
    {
        "intent": "report_recovered",
        "confidence": 0.75,
        "pattern": rf"(?i)\b(?=[bhinruw])(?<!not )(?<!yet )(?<!be )(?<!never )(?:{_RECOVERY})\b",
    },
    {
        "intent": "report_problem",
        "confidence": 0.7,
        "pattern": rf"(?i)\b(?=[a-gin-pstuw])(?<!no )(?<!\b0 )(?<!zero )(?<!without )(?<!not )(?:{_TROUBLE})\b",
    },
    {"intent": "report_problem", "confidence": 0.7, "kind": ["log.error", "alert"]},
)


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


def recognise(settings: IntentSettings, perceptions: Sequence[Perception]) -> StageResult:
    """Give an intent to each perception that has none."""
    built_in = _built_in()
    kept: list[Perception] = []
    touched = 0
    for perception in perceptions:
        if not perception.intent:
            text = text_of(perception)
            perception = (
                _read(perception, text, settings.rules)
                or _stated(perception)
                or _read(perception, text, built_in)
                or _given(perception, *FALLBACK)
            )
            touched += 1
        kept.append(perception)
    return StageResult(kept, touched=touched)


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
def _built_in() -> tuple[IntentRule, ...]:
    return read_rules(BUILT_IN, IntentRule)
