"""Policy of calls: decides by rules, terms and trust whether a call runs, needs approval or is denied. Pure.

    policy = Policy.of({"untrusted": "ask", "rules": [
        {"tool": "files", "params": {"op": "delete", "path": "reports/*"}, "decision": "deny"},
        {"tool": "shell", "effect": ["once"], "decision": "ask"},
    ]})

The first rule that matches decides instead of the tool's own `approval`; a tool's own `deny` stands whatever the
rules say. For a call that follows from untrusted text, to a tool that is not `safe_with_untrusted`, the setting
`untrusted` decides where it is stricter, unless the matching rule names `trust` itself.

A pattern is a case-sensitive shell glob over the whole text: `*` stands for any characters (also `/` and line breaks),
`?` for one, `[ab]` for one of these, so `[*]` is a star (`spar.data.patterns`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf, isnan
from typing import Any, Final, get_args

from msgspec import Struct

from acting.approvals.digest import canonical, fingerprint
from spar.checks import shorten
from spar.data.patterns import glob
from spar.errors import ConfigError
from spar.protocols import Effect
from spar.protocols.tools import Approval, ToolTerms
from spar.types import Call, Trust

DECISIONS: Final[tuple[Approval, ...]] = get_args(Approval)  # from the loosest to the strictest
_KEYS: Final = ("tool", "effect", "trust", "session", "params", "decision")
_LONGEST = 1000  # characters of a pattern


class Ruling(Struct, frozen=True):
    """A decision about a call; `why` is a sentence, "" where the tool's own terms let it run."""

    decision: Approval
    why: str = ""


class Rule(Struct, frozen=True):
    """One compiled rule: each key that it names must match."""

    decision: Approval
    tests: tuple[tuple[str, Callable[[Any], bool]], ...]
    names_trust: bool
    text: str

    def matches(self, about: Mapping[str, Any]) -> bool:
        return all(test(about[key]) for key, test in self.tests)


class Policy:
    """The rules of one executor. `revision` changes with every change of the rules; it is part of what people approve.

    Args: untrusted: what happens to calls that follow from untrusted text; rules: in order, each a mapping.
    """

    __slots__ = ("_untrusted", "revision", "rules")

    def __init__(self, untrusted: Approval = "ask", rules: Sequence[Mapping[str, Any]] = ()) -> None:
        if untrusted not in DECISIONS:
            raise ConfigError(f"untrusted is {untrusted!r}, expected 'auto', 'ask' or 'deny'", path=("untrusted",))
        if isinstance(rules, (str, Mapping)) or not isinstance(rules, Sequence):
            raise ConfigError(f"rules must be a list of tables, found {shorten(rules)}", path=("rules",))
        self._untrusted = untrusted
        self.rules = tuple(_rule(index, rule) for index, rule in enumerate(rules))
        self.revision = fingerprint({"untrusted": untrusted, "rules": [rule.text for rule in self.rules]})

    def decide(self, terms: ToolTerms, effect: Effect, call: Call, params: Any, trust: Trust, session: str) -> Ruling:
        """Return the decision on a call of a tool with these terms; `params` are its values. Never raises."""
        if terms.approval == "deny":
            return Ruling("deny", f"tool {terms.name!r} may not be called: its approval is 'deny'")
        names_trust, ruling = False, Ruling(terms.approval)
        if terms.approval == "ask":
            ruling = Ruling("ask", f"tool {terms.name!r} is always asked about")
        if self.rules:
            about = {"tool": call.tool, "effect": effect, "trust": trust, "session": session, "params": params}
            for index, rule in enumerate(self.rules, 1):
                if rule.matches(about):
                    names_trust = rule.names_trust
                    verb = {"auto": "lets it run", "ask": "asks about it", "deny": "forbids it"}[rule.decision]
                    ruling = Ruling(rule.decision, f"rule {index} of the approval rules {verb}")
                    break
        if trust == "trusted" or names_trust or terms.safe_with_untrusted or not _is_stricter(self._untrusted, ruling):
            return ruling
        return Ruling(
            self._untrusted, f"it follows from untrusted text and {terms.name!r} is not declared safe with it"
        )


def trust_in(call: Call, trust: Trust) -> Trust:
    """Return the trust in a call by the trust in its action; the call itself can only lower it."""
    return "untrusted" if call.meta and call.meta.get("_trust") == "untrusted" else trust


def _is_stricter(decision: Approval, than: Ruling) -> bool:
    return DECISIONS.index(decision) > DECISIONS.index(than.decision)


# -- reading rules


def _rule(index: int, given: Any) -> Rule:
    """Compile one rule. Raises: ConfigError naming the key, what was found and what is allowed."""

    def wrong(key: str, value: Any, expected: str) -> ConfigError:
        place = ("rules", index, key) if key else ("rules", index)
        return ConfigError(
            f"approval rule {index + 1}: {key or 'it'} is {shorten(value)}, expected {expected}", path=place
        )

    if not isinstance(given, Mapping):
        raise wrong("", given, "a table")
    named = {key: value for key, value in given.items() if value is not None}
    for key in named:
        if key not in _KEYS:
            raise ConfigError(f"approval rule {index + 1}: no key {key!r}; known: {', '.join(_KEYS)}",
                              path=("rules", index, str(key)))  # fmt: skip
    decision = named.get("decision")
    if decision not in DECISIONS:
        raise wrong("decision", decision, "'auto', 'ask' or 'deny'")
    tests: list[tuple[str, Callable[[Any], bool]]] = []
    for key, known in (("effect", get_args(Effect)), ("trust", get_args(Trust))):
        if key in named:
            words = (named[key],) if isinstance(named[key], str) else named[key]
            is_list = isinstance(words, (list, tuple)) and bool(words)
            if not is_list or any(word not in known for word in words):
                raise wrong(key, named[key], f"one or a list of {', '.join(known)}")
            tests.append((key, frozenset(words).__contains__))
    for key in ("tool", "session"):
        if key in named:
            if not isinstance(named[key], str) or not 0 < len(named[key]) <= _LONGEST:
                raise wrong(key, named[key], f"a pattern: text of at most {_LONGEST} characters")
            tests.append((key, _pattern(named[key])))
    if "params" in named:
        if not isinstance(named["params"], Mapping):
            raise wrong("params", named["params"], "a table of parameters")
        try:
            tests.append(("params", _shape(named["params"])))
        except ValueError as error:
            raise wrong("params", named["params"], str(error)) from None
    return Rule(decision, tuple(tests), "trust" in named, canonical(named).decode("utf-8", "surrogatepass"))


def _pattern(text: str) -> Callable[[Any], bool]:
    matches = glob(text)
    return lambda value: isinstance(value, str) and matches(value)


def _written(value: Any) -> Any:
    """Return a parameter as a JSON value: tools also get paths, dates, members of enumerations and own objects."""
    if value is None or isinstance(value, (bool, int, float, Mapping, list, tuple)) or type(value) is str:
        return value
    from pydantic_core import to_jsonable_python  # heavy, and needed only here

    return to_jsonable_python(value, fallback=str)


def _shape(expected: Any) -> Callable[[Any], bool]:
    """Return the test of a parameter: texts are patterns, lists match item by item, tables by their keys."""
    test = _plain_shape(expected)
    return lambda value: test(_written(value))


def _plain_shape(expected: Any) -> Callable[[Any], bool]:
    if isinstance(expected, str):
        if len(expected) > _LONGEST:
            raise ValueError(f"patterns of at most {_LONGEST} characters")
        return _pattern(expected)
    if isinstance(expected, Mapping):
        shapes = {key: _shape(value) for key, value in expected.items()}
        return lambda value: (
            isinstance(value, Mapping) and all(key in value and shape(value[key]) for key, shape in shapes.items())
        )
    if isinstance(expected, (list, tuple)):
        items = [_shape(item) for item in expected]
        return lambda value: (
            isinstance(value, (list, tuple))
            and len(value) == len(items)
            and all(shape(item) for shape, item in zip(items, value, strict=True))
        )
    is_number = isinstance(expected, (int, float)) and not isinstance(expected, bool)
    if is_number and (isnan(expected) or expected in (inf, -inf)):
        raise ValueError("finite numbers")
    if expected is not None and not isinstance(expected, (bool, int, float)):
        raise ValueError(f"text, numbers, lists and tables, not a {type(expected).__name__}")
    # 1 and True are equal in Python, but not in JSON.
    return lambda value: value == expected and isinstance(value, bool) == isinstance(expected, bool)
