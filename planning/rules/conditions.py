"""Conditions of rules: they decide whether a rule matches a perception; pure.

Conditions are compiled once into a few tests, cheapest first. Text conditions are globs that are case sensitive
(`file.*`, `a?c`, `[ab]*`) or lists of them; `pattern` is a regular expression (`spar.data.patterns`) searched in the
text's first 10,000 characters, and its named groups become slots.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, partial
from itertools import islice
from operator import attrgetter, eq, le
from typing import Annotated, Any, Final

from msgspec import Meta, Struct, ValidationError, field
from msgspec.structs import asdict

from planning.rules.templates import as_text, count_of, lookup
from spar.data.patterns import Glob, Pattern, is_open
from spar.data.text import one_line
from spar.decoding import convert
from spar.errors import ConfigError
from spar.types import Perception, Trust

TEXT_LIMIT = 10_000
MESSAGE = "message"  # the kind of messages of people
NOTICES = "incident."  # the beginning of the kinds of notices about incidents
Globs = str | tuple[str, ...] | None
#: The most entries of a value, characters of an entry, and levels in a sentence.
_MOST_SHOWN: Final = 10
_LONGEST_SHOWN: Final = 80
_DEEPEST_SHOWN: Final = 3
Share = Annotated[float, Meta(ge=0, le=1)]
Path = tuple[str | int, ...]


class EvidenceConditions(Struct, frozen=True, forbid_unknown_fields=True):
    """`when.incident.evidence`: conditions that one piece of the evidence must meet, all that are given."""

    source: Globs = None
    kind: Globs = None
    subject: Globs = None
    trust: Trust | None = None
    pattern: str | None = None


class IncidentConditions(Struct, frozen=True, forbid_unknown_fields=True):
    """`when.incident`: conditions on what a notice says of its incident, all that are given."""

    severity: Globs = None
    source: Globs = None
    count: int | dict[str, Any] | None = None
    things: int | dict[str, Any] | None = None
    ordinal: int | dict[str, Any] | None = None
    entities: dict[str, Globs] = field(default_factory=dict)
    evidence: EvidenceConditions | None = None


class Conditions(Struct, frozen=True, forbid_unknown_fields=True):
    """`when` and `unless` as they are written; every condition that is given must hold."""

    source: Globs = None
    kind: Globs = None
    intent: Globs = None
    key: Globs = None
    subject: Globs = None
    session: Globs = None
    trust: Trust | None = None
    pattern: str | None = None
    min_priority: Share | None = None
    min_confidence: Share | None = None
    count: int | dict[str, Any] | None = None
    attributes: dict[str, Any] = field(default_factory=dict)
    incident: IncidentConditions | None = None


class Bounds(Struct, frozen=True, forbid_unknown_fields=True):
    """`{ above = 0.9 }`: limits that a number must keep, all that are given."""

    above: float | None = None
    below: float | None = None
    at_least: float | None = None
    at_most: float | None = None

    def hold(self, value: object) -> bool:
        """Return whether a value is a number that keeps all limits."""
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return False
        return (
            (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
            and (self.at_least is None or value >= self.at_least)
            and (self.at_most is None or value <= self.at_most)
        )


class MatchInput:
    """A perception with its text, which is made once for all rules that match it."""

    def __init__(self, perception: Perception) -> None:
        self.perception = perception

    @cached_property
    def text(self) -> str:
        return self.perception.text


def sights(perception: Perception) -> list[MatchInput]:
    """Return the inputs that rules are matched against: the perception, then the parts that it was fused from.

    These parts are left out: the one that gave the perception its content (it has the same id and kind), a state that a
    newer one has replaced (`attributes["superseded"]`), evidence of an incident that an earlier notice held
    (`attributes["told"]`), and the parts of a message, whose text holds them already.
    """
    parts = () if perception.kind == MESSAGE else perception.evidence
    independent = (
        part
        for part in parts
        if (part.id != perception.id or part.kind != perception.kind)
        and "superseded" not in part.attributes
        and "told" not in part.attributes
    )
    return [MatchInput(perception), *map(MatchInput, independent)]


def _shown(value: Any, depth: int = 0) -> str:
    """Return a value of a condition or of a perception as it is written in a configuration, on one short line."""
    if depth > _DEEPEST_SHOWN:
        return "…"
    if isinstance(value, Mapping):
        items = islice(value.items(), _MOST_SHOWN)
        return f"{{ {', '.join(f'{key} = {_shown(item, depth + 1)}' for key, item in items)} }}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_shown(item, depth + 1) for item in islice(value, _MOST_SHOWN))}]"
    text = f'"{value}"' if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return one_line(text, _LONGEST_SHOWN)


class Term(Struct, frozen=True):
    """Condition: its name, what it wants as it is written, how its value is taken from a perception, the test of that
    value, and how it is shown."""

    name: str
    wanted: Any
    value: Callable[[Perception], Any]
    holds: Callable[[Any], bool]
    show: Callable[[Any], str] = _shown

    def objection(self, perception: Perception) -> str:
        """Return the sentence that a perception does not meet it."""
        value = self.value(perception)
        seen = "nothing of that name is there" if value is None else self.show(value)
        return f"{self.name} = {_shown(self.wanted)} is not met: {seen}"


class Matcher(Struct, frozen=True):
    """Compiled conditions. Only perceptions of these `kinds` and `sources` can match; None means any.

    `tests` has value and test of each of the `terms`: they run for each perception.
    """

    tests: tuple[tuple[Callable[[Perception], Any], Callable[[Any], bool]], ...] = ()
    terms: tuple[Term, ...] = ()
    pattern: Pattern | None = None
    kinds: frozenset[str] | None = None
    sources: frozenset[str] | None = None

    @property
    def is_empty(self) -> bool:
        return not self.terms and self.pattern is None

    @property
    def names(self) -> list[str]:
        """Return the names of the conditions."""
        return [*(term.name for term in self.terms), *(["pattern"] if self.pattern is not None else [])]

    @property
    def groups(self) -> frozenset[str]:
        """Return the names of the slots that the pattern may fill."""
        return self.pattern.groups if self.pattern else frozenset()

    def match(self, match_input: MatchInput) -> Mapping[str, str] | None:
        """Return the slots that the pattern captured (perhaps none) if every condition holds, else None."""
        perception = match_input.perception
        for value, holds in self.tests:
            if not holds(value(perception)):
                return None
        if self.pattern is None:
            return {}
        return self.pattern.search(match_input.text[:TEXT_LIMIT])

    def objection(self, match_input: MatchInput) -> tuple[str, int]:
        """Return the sentence about the first condition that does not hold ("" if all hold), and how many hold before
        it."""
        for number, term in enumerate(self.terms):
            if not term.holds(term.value(match_input.perception)):
                return term.objection(match_input.perception), number
        if self.pattern is not None and self.pattern.search(match_input.text[:TEXT_LIMIT]) is None:
            shown = f"pattern = {_shown(self.pattern.text)} is not found in {_shown(match_input.text)}"
            return shown, len(self.terms)
        return "", len(self.names)


def compile_conditions(conditions: Conditions, path: Path) -> Matcher:
    """Compile conditions. Raises: ConfigError with the `path` of the one that cannot be read."""
    terms: list[Term] = []
    if conditions.trust is not None:
        terms.append(Term("trust", conditions.trust, attrgetter("trust"), partial(eq, conditions.trust)))
    for name in ("kind", "source", "intent", "session", "subject", "key"):
        if (globs := _listed(getattr(conditions, name))) is not None:
            if not globs:
                raise ConfigError(f"the list of {name!r} names nothing, so it could never match", path=(*path, name))
            terms.append(Term(name, getattr(conditions, name), attrgetter(name), _fits(globs)))
    for name, field_name in (("min_priority", "importance"), ("min_confidence", "confidence")):
        if (least := getattr(conditions, name)) is not None:
            terms.append(Term(name, least, attrgetter(field_name), partial(le, least)))
    if conditions.count is not None:
        terms.append(Term("count", conditions.count, count_of, _value_test(conditions.count, (*path, "count"))))
    terms += [
        Term(f"attributes.{name}", wanted, _attribute(name), _value_test(wanted, (*path, "attributes", name)))
        for name, wanted in conditions.attributes.items()
    ]
    if conditions.incident is not None:
        terms += _incident_terms(conditions.incident, (*path, "incident"))
    return Matcher(
        tuple((term.value, term.holds) for term in terms),
        tuple(terms),
        kinds=_literals(conditions.kind),
        sources=_literals(conditions.source),
        pattern=_pattern(conditions.pattern, (*path, "pattern")),
    )


def _listed(globs: Globs) -> tuple[str, ...] | None:
    return (globs,) if isinstance(globs, str) else globs


def _literals(globs: Globs) -> frozenset[str] | None:
    listed = _listed(globs)
    return None if listed is None or any(map(is_open, listed)) else frozenset(listed)


def _pattern(text: str | None, path: Path) -> Pattern | None:
    if text is None:
        return None
    try:
        return Pattern(text)
    except ValueError as error:
        raise ConfigError(f"pattern {text!r} is no regular expression that can be used: {error}", path=path) from error


def _fits(globs: tuple[str, ...]) -> Callable[[Any], bool]:
    matches = Glob(*globs).fits
    return lambda value: isinstance(value, str) and matches(value)


def _incident_terms(conditions: IncidentConditions, path: Path) -> Iterator[Term]:
    """Yield the terms of a notice about an incident; the first one says whether a perception is such a notice."""
    is_notice = _fits((f"{NOTICES}*",))
    yield Term("incident", f"a notice, of a kind {NOTICES}*", attrgetter("kind"), is_notice)
    for name in ("severity", "source", "count", "things", "ordinal"):
        if (wanted := getattr(conditions, name)) is not None:
            holds = _value_test(wanted, (*path, name))
            if name == "source":
                yield Term("incident.source", wanted, _attribute("sources"), _any(holds))
            else:
                yield Term(f"incident.{name}", wanted, _attribute(name), holds)
    for kind, globs in conditions.entities.items():
        holds = _any(_value_test(globs, (*path, "entities", kind)))
        yield Term(f"incident.entities.{kind}", globs, _attribute(f"entities.{kind}"), holds)
    if (of := conditions.evidence) is not None:
        piece = Conditions(source=of.source, kind=of.kind, subject=of.subject, trust=of.trust, pattern=of.pattern)
        matcher = compile_conditions(piece, (*path, "evidence"))
        given = {name: value for name, value in asdict(of).items() if value is not None}
        yield Term("incident.evidence", given, attrgetter("evidence"),
                   lambda parts: any(matcher.match(MatchInput(part)) is not None for part in parts),
                   lambda parts: _shown(f"{len(parts)} pieces of evidence"))  # fmt: skip


def _attribute(name: str) -> Callable[[Perception], Any]:
    """Return the function that takes an attribute, or a part of one, from a perception."""
    if "." not in name:
        return lambda perception: perception.attributes.get(name)
    return lambda perception: lookup(perception.attributes, name)


def _any(holds: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Return the test whether a value is a list with a wanted item."""
    return lambda values: isinstance(values, (list, tuple)) and any(map(holds, values))


def _value_test(wanted: Any, path: Path) -> Callable[[Any], bool]:
    """Return the test of a value: a text is a glob, numbers and booleans are equal, a table holds bounds, a list any of
    these."""
    if isinstance(wanted, str):
        matches = Glob(wanted).fits
        return lambda value: isinstance(value, (str, int, float)) and matches(as_text(value))
    if isinstance(wanted, bool):
        return lambda value: value is wanted
    if isinstance(wanted, (int, float)):
        return lambda value: not isinstance(value, bool) and bool(value == wanted)
    if isinstance(wanted, Mapping):
        return _bounds(wanted, path).hold
    if isinstance(wanted, (list, tuple)) and wanted:
        tests = [_value_test(item, (*path, number)) for number, item in enumerate(wanted)]
        return lambda value: any(test(value) for test in tests)
    raise ConfigError(
        "an attribute is compared with a text, a number, true or false, a list of these or bounds, found "
        f"{list(wanted) if isinstance(wanted, tuple) else wanted!r}",
        path=path,
    )


def _bounds(table: Mapping[str, Any], path: Path) -> Bounds:
    known = ", ".join(Bounds.__struct_fields__)
    hint = f"bounds are numbers under {known}; a part of an attribute is named by a quoted path such as 'host.load'"
    try:
        bounds = convert(table, Bounds)
    except ValidationError as error:
        raise ConfigError(f"{dict(table)!r} cannot be read as bounds: {hint}", path=path) from error
    given = [value for value in (getattr(bounds, name) for name in Bounds.__struct_fields__) if value is not None]
    if not given or any(value != value for value in given):
        raise ConfigError(f"{dict(table)!r} bounds nothing: {hint}", path=path)
    return bounds
