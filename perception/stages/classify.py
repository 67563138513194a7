"""Stage 2: sets the kind of a perception. A kind that the sensor has set stays, with two exceptions. A bare "log"
becomes `log.error` and so on by the level of the line. A kind that was learnt from examples (`perception.learning`)
replaces `log.*`. The intent has no influence.

The module also defines the conditions that rules of all stages share. `source`, `kind` and `intent` are shell patterns
(`"host.*"`, or a list of them). `pattern` is a regular expression (`spar.data.patterns`) that is searched for in the
first `TEXT_LIMIT` characters of the content as text. A rule without conditions applies to every perception.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache, partial
from typing import Any, ClassVar, TypeVar

from msgspec import Struct

from perception.learning.learner import Learnt
from perception.stages.dedup import StageResult, enriched
from perception.stages.wording import represented
from spar.data.patterns import Glob, Pattern
from spar.decoding import convert
from spar.types import Perception, replace

LOG = "log."  # prefix of the kinds of log lines
BARE = "log"  # kind of a log line whose level is not known yet
TEXT_LIMIT = 10_000  # characters: a regular expression must not cost more because a text is longer

#: Rules that apply after those of the configuration, in the same format. The first that fits decides.
BUILT_IN: tuple[dict[str, Any], ...] = (
    {"kind": "alert", "pattern": r'"status":\s*"(?:firing|resolved)"'},
    {"kind": "alert", "pattern": r"\A\W{0,3}(?:FIRING|RESOLVED|ALERT|ALARM|PROBLEM|RECOVERY)\b"},
    {"kind": "log.error", "pattern": r"\A(?:\S{1,80}+\s{1,9}+){0,5}[\[<(]?(?:ERROR|FATAL|CRITICAL|CRIT|PANIC|EMERG)\b"},
    {"kind": "log.error", "pattern": r"\ATraceback \(most recent call last\)"},
    {"kind": "log.warning", "pattern": r"\A(?:\S{1,80}+\s{1,9}+){0,5}[\[<(]?(?:WARNING|WARN)\b"},
    {"kind": "log.line", "pattern": r"\A(?:\S{1,80}+\s{1,9}+){0,5}[\[<(]?(?:INFO|NOTICE|DEBUG|TRACE)\b[\]>):\s]"},
    {"kind": "link", "pattern": r"\A\s{0,9}https?://\S+\s{0,9}\Z"},
)


class BuiltInPattern(Pattern):
    """Pattern of a built-in table, matched by Python's `re` because it needs look-around.

    Use it only for patterns in this package: a test checks that the time of each grows only with the length of the
    text.
    """

    __slots__ = ("_search",)

    def __init__(self, text: str) -> None:
        compiled = re.compile(text)
        self.text, self._search, self._names = text, compiled.search, tuple(compiled.groupindex.items())

    def search(self, text: str) -> dict[str, str] | None:
        match = self._search(text)
        return None if match is None else {k: value for k, value in match.groupdict().items() if value is not None}


class Rule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Conditions under which a rule applies; each stage adds its consequences."""

    filters: ClassVar[tuple[str, ...]] = ("source",)
    source: Glob | None = None
    pattern: Pattern | None = None

    def find(self, perception: Perception, text: str) -> dict[str, str] | None:
        """Return the captures of the pattern's named groups if the rule fits the perception, else None."""
        for name in self.filters:
            glob: Glob | None = getattr(self, name)
            if glob is not None and not glob.fits(getattr(perception, name)):
                return None
        if self.pattern is None:
            return {}
        return self.pattern.search(text)


R = TypeVar("R", bound=Rule)


class ClassifyRule(Rule, frozen=True, kw_only=True):
    """Rule that gives this `kind` to fitting perceptions without a kind."""

    kind: str


class ClassifySettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings `[perception.classify]`: rules that apply before the built-in ones."""

    enabled: bool = True
    rules: tuple[ClassifyRule, ...] = ()


@cache
def _built_in(*, is_line: bool = False) -> tuple[ClassifyRule, ...]:
    """Return the built-in rules; for a log line only those of levels, because its words never make it an alert."""
    return read_rules([row for row in BUILT_IN if not is_line or row["kind"].startswith(LOG)], ClassifyRule)


def classify(
    settings: ClassifySettings, perceptions: Sequence[Perception], learnt: Learnt | None = None
) -> StageResult:
    """Give a kind to each perception without a kind or with the kind "log"; it stays unchanged when no rule fits.

    Args: learnt: the classifiers that were learnt from examples.
    """
    labels = learnt.get("kind") if learnt else None

    def with_kind(perception: Perception) -> Perception:
        is_bare, text = perception.kind == BARE, ""
        if not (kind := "" if is_bare else perception.kind):
            text = text_of(perception)
            kind = _first(settings.rules, perception, text)
        reading = None
        if labels is not None and (not kind or (perception.kind == kind and kind.startswith(LOG))):
            reading = labels.read(text or text_of(perception))
        if reading is not None and reading.label is not None:
            attributes = {"kind_confidence": round(reading.confidence, 3), "kind_why": reading.why}
            return replace(perception, kind=reading.label, attributes={**perception.attributes, **attributes})
        kind = kind or _first(_built_in(is_line=is_bare), perception, text) or perception.kind
        return perception if kind == perception.kind else replace(perception, kind=kind)

    return enriched(perceptions, with_kind)


def _first(rules: Sequence[ClassifyRule], perception: Perception, text: str) -> str:
    return next((rule.kind for rule in rules if rule.find(perception, text) is not None), "")


def text_of(perception: Perception) -> str:
    """Return the first `TEXT_LIMIT` characters of the content as text; "" if it cannot be read. Never raises."""
    content = perception.content
    text = content if isinstance(content, str) else represented(content, lambda: perception.text, "")
    return text[:TEXT_LIMIT]


def read_rules(table: Sequence[dict[str, Any]], kind: type[R]) -> tuple[R, ...]:
    """Read a stage's built-in table as rules. Raises: msgspec.ValidationError."""
    decode_built_in = partial(decode, regular=BuiltInPattern)
    return tuple(convert(row, kind, dec_hook=decode_built_in) for row in table)


def decode(kind: type, value: Any, regular: type[Pattern] = Pattern) -> Any:
    """Decode the types of a rule, for msgspec. Raises: ValueError with the reason."""
    if kind is Glob:
        patterns = [value] if isinstance(value, str) else value
        if not isinstance(patterns, Sequence) or not all(isinstance(pattern, str) for pattern in patterns):
            raise ValueError("Expected a shell pattern or a list of them")
        return Glob(*patterns)
    if not isinstance(value, str):
        raise ValueError("Expected a regular expression as text")
    try:
        return regular(value)
    except ValueError as error:
        raise ValueError(f"Cannot be read as a regular expression ({error})") from None
