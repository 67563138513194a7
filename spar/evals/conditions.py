"""Conditions on texts and parameters, and whether a value meets them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, TypeAlias, cast

from spar.config.tables.section import After, Before, Section, Text
from spar.data.patterns import Pattern


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _checked_pattern(text: str) -> str:
    if text:
        Pattern(text)
    return text


#: A text, or several.
Texts: TypeAlias = Annotated[tuple[Text, ...], Before(_listed)]


class TextRule(Section, frozen=True, kw_only=True):
    """Condition on a text; upper and lower case do not differ."""

    contains: Texts = ()
    """Texts all of which occur in it."""
    lacks: Texts = ()
    """Texts none of which occurs in it."""
    matches: Annotated[str, After(_checked_pattern)] = ""
    """A pattern that fits a part of it, in RE2's syntax."""


_KEYS: Final = frozenset({"contains", "lacks", "matches"})


def is_rule(value: Any) -> bool:
    """Return whether a value is read as a condition on a text."""
    return isinstance(value, Mapping) and bool(value) and value.keys() <= _KEYS


def _rule(value: Mapping[str, Any]) -> TextRule:
    """Return the condition of a table. Raises: ValueError."""
    texts = {key: tuple(_listed(value.get(key, ()))) for key in ("contains", "lacks")}
    pattern = value.get("matches", "")
    if not all(isinstance(text, str) and text for text in (*texts["contains"], *texts["lacks"])):
        raise ValueError("contains and lacks must be a text, or a list of texts")
    if not isinstance(pattern, str):
        raise ValueError("matches must be a pattern")
    return TextRule(**texts, matches=_checked_pattern(pattern))


def _checked(value: Any) -> Any:
    if is_rule(value):
        _rule(value)
    elif isinstance(value, (Mapping, list)):
        for inner in value.values() if isinstance(value, Mapping) else value:
            _checked(inner)
    return value


#: Values of parameters, in which a table of `contains`, `lacks` and `matches` is a condition on a text.
Params: TypeAlias = Annotated[dict[str, Any], After(_checked)]


def fits(value: Any, expected: Any) -> bool:
    """Return whether a value is as expected: a table has the expected keys and may have more; texts may differ in case
    and in the spaces around them; a condition on a text holds."""
    if is_rule(expected):
        return isinstance(value, str) and not unmet(value, _rule(expected))
    if isinstance(expected, Mapping):
        return isinstance(value, Mapping) and all(key in value and fits(value[key], expected[key]) for key in expected)
    if isinstance(expected, str) and isinstance(value, str):
        return expected.strip().casefold() == value.strip().casefold()
    if isinstance(expected, list) and isinstance(value, (list, tuple)):
        return len(value) == len(expected) and all(map(fits, value, expected))
    return isinstance(value, bool) == isinstance(expected, bool) and cast(bool, value == expected)


def unmet(text: str, rule: TextRule) -> str:
    """Return what of a condition a text does not meet; "" if it meets all of it."""
    folded = text.casefold()
    if lost := [part for part in rule.contains if part.casefold() not in folded]:
        return f"lacks {', '.join(map(repr, lost))}"
    if wrong := [part for part in rule.lacks if part.casefold() in folded]:
        return f"contains {', '.join(map(repr, wrong))}"
    if rule.matches and Pattern(f"(?i){rule.matches}").search(text) is None:
        return f"does not match {rule.matches!r}"
    return ""
