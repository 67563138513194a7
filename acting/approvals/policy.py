"""Policy of calls: decides by rules, terms and trust whether a call runs, needs approval or is denied. Pure.

`Taint` finds the data of a run that came from outside, so that calls that read it are untrusted.

    policy = Policy("ask", [
        {"tool": "files", "params": {"op": "delete", "path": "reports/*"}, "decision": "deny"},
        {"tool": "shell", "effect": ["once"], "decision": "ask"},
    ])

The first rule that matches decides instead of the tool's own `approval`; a tool's own `deny` stands whatever the
rules say. For a call that follows from untrusted text, to a tool that is not `safe_with_untrusted`, the setting
`untrusted` decides where it is stricter, unless the matching rule names `trust` itself.

A pattern is a case-sensitive shell glob over the whole text: `*` stands for any characters (also `/` and line breaks),
`?` for one, `[ab]` for one of these, so `[*]` is a star (`spar.data.patterns`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import chain
from math import isfinite
from operator import or_
from types import NoneType
from typing import Annotated, Any, Final, get_args

from msgspec import Meta, Struct
from msgspec.structs import asdict

from acting.tooling.bound_tool import BoundTool
from acting.tooling.context import Scope
from acting.tooling.parameters import settings_of
from spar.checks import shorten
from spar.data.bounded import BoundedDict
from spar.data.json_safe.canonical import canonical, fingerprint
from spar.data.paths import Path, PathIndex, parse_write, references
from spar.data.patterns import glob
from spar.errors import ConfigError
from spar.protocols import Effect
from spar.protocols.tools import Approval, ToolTerms
from spar.types import ActionResult, Call, Trust, trust_of

DECISIONS: Final[tuple[Approval, ...]] = get_args(Approval)  # from the loosest to the strictest
_LONGEST = 1000  # characters of a pattern


class Ruling(Struct, frozen=True):
    """A decision about a call; `why` is a sentence, "" where the tool's own terms let it run."""

    decision: Approval
    why: str = ""


_Text = Annotated[str, Meta(min_length=1, max_length=_LONGEST)]
_Pattern = Annotated[_Text | None, Meta(description=f"a pattern: text of at most {_LONGEST} characters")]
_Effects = Annotated[tuple[Effect, ...], Meta(min_length=1)]
_Trusts = Annotated[tuple[Trust, ...], Meta(min_length=1)]


class Rule(Struct, frozen=True, forbid_unknown_fields=True):
    """One rule: the decision, and the conditions. A call matches that meets each condition which is named."""

    decision: Approval
    tool: _Pattern = None
    effect: Annotated[Effect | _Effects | None, Meta(description="one or a list of read, idempotent, once")] = None
    trust: Annotated[Trust | _Trusts | None, Meta(description="one or a list of trusted, untrusted")] = None
    session: _Pattern = None
    params: Annotated[dict[str, Any] | None, Meta(description="a table of parameters")] = None

    @property
    def named(self) -> dict[str, Any]:
        """Return the decision and the conditions that are named."""
        return {key: value for key, value in asdict(self).items() if value is not None}

    def matches(self, about: Mapping[str, Any]) -> bool:
        """Return whether a call matches. Args: about: what it is, by the names of the conditions."""
        conditions = [(value, expected) for key, value in about.items() if (expected := getattr(self, key)) is not None]
        return all(value in words if type(words) is tuple else _fits(words, value) for value, words in conditions)


class Policy:
    """The rules of one executor. `revision` changes with every change of the rules; it is part of what people approve.

    Args: untrusted: what happens to calls that follow from untrusted text; rules: in order, each a mapping.
    """

    __slots__ = ("revision", "rules", "untrusted")

    def __init__(self, untrusted: Approval = "ask", rules: Sequence[Any] = ()) -> None:
        """Compile the rules. Raises: ConfigError that names the key, what was found and what is allowed."""
        self.untrusted = untrusted
        self.rules = tuple(_rule(index, rule) for index, rule in enumerate(rules))
        texts = [canonical(rule.named).decode("utf-8", "surrogatepass") for rule in self.rules]
        self.revision = fingerprint({"untrusted": untrusted, "rules": texts})

    def decide(self, terms: ToolTerms, effect: Effect, call: Call, params: Any, trust: Trust, session: str) -> Ruling:
        """Return the decision on a call of a tool with these terms; `params` are its values. Never raises."""
        if terms.approval == "deny":
            return Ruling("deny", f"tool {terms.name!r} may not be called: its approval is 'deny'")
        why = f"tool {terms.name!r} is always asked about" if terms.approval == "ask" else ""
        names_trust, ruling = False, Ruling(terms.approval, why)
        about = {"tool": call.tool, "effect": effect, "trust": trust, "session": session, "params": params}
        for index, rule in enumerate(self.rules, 1):
            if rule.matches(about):
                names_trust = rule.trust is not None
                verb = {"auto": "lets it run", "ask": "asks about it", "deny": "forbids it"}[rule.decision]
                ruling = Ruling(rule.decision, f"rule {index} of the approval rules {verb}")
                break
        is_safe = trust == "trusted" or names_trust or terms.safe_with_untrusted
        if is_safe or DECISIONS.index(self.untrusted) <= DECISIONS.index(ruling.decision):
            return ruling
        return Ruling(self.untrusted, f"it follows from untrusted text and {terms.name!r} is not declared safe with it")


#: The policy that decides as the tools say.
BY_TERMS: Final = Policy("auto")


def trust_in(call: Call, trust: Trust) -> Trust:
    """Return the trust in a call by the trust in its action; the call itself can only lower it."""
    return "untrusted" if call.meta and call.meta.get("_trust") == "untrusted" else trust


# -- reading rules


def _rule(index: int, given: Any) -> Rule:
    """Read one rule. Raises: ConfigError naming the key, what was found and what is allowed."""
    place, about = ("approval", "rules", index), f"approval rule {index + 1}"
    rule = settings_of(Rule, given, about, place)
    try:
        _check_shape(rule.params)
    except ValueError as error:
        sentence = f"{about}: params is {shorten(rule.params)}, expected {error}"
        raise ConfigError(sentence, path=(*place, "params")) from None
    return rule


_pattern = cache(glob)  # compiled once; there are as many as the rules have


def _check_shape(expected: Any) -> None:
    """Raises: ValueError that says what a rule can expect of a parameter."""
    if isinstance(expected, (Mapping, list, tuple)):
        for part in expected.values() if isinstance(expected, Mapping) else expected:
            _check_shape(part)
    elif isinstance(expected, str) and len(expected) > _LONGEST:
        raise ValueError(f"patterns of at most {_LONGEST} characters")
    elif isinstance(expected, float) and not isfinite(expected):
        raise ValueError("finite numbers")
    elif not isinstance(expected, (str, bool, int, float, NoneType)):
        raise ValueError(f"text, numbers, lists and tables, not a {type(expected).__name__}")


def _fits(expected: Any, value: Any) -> bool:
    """Return whether a value is as a rule expects: texts are patterns, lists match item by item, tables by their keys.

    It is looked at as a JSON value: tools also get paths, dates, members of enumerations and own objects.
    """
    if type(value) is not str and not isinstance(value, (bool, int, float, Mapping, list, tuple, NoneType)):
        from pydantic_core import to_jsonable_python  # heavy, and needed only here

        value = to_jsonable_python(value, fallback=str)
    if isinstance(expected, str):
        return isinstance(value, str) and _pattern(expected)(value)
    if isinstance(expected, Mapping):
        is_table = isinstance(value, Mapping)
        return is_table and all(key in value and _fits(part, value[key]) for key, part in expected.items())
    if isinstance(expected, (list, tuple)):
        is_as_long = isinstance(value, (list, tuple)) and len(value) == len(expected)
        return is_as_long and all(map(_fits, expected, value))
    # 1 and True are equal in Python, but not in JSON.
    return bool(value == expected) and isinstance(value, bool) == isinstance(expected, bool)


MOST: Final = 20_000  # runs and batches, more than there can be at once; the least recently used one is dropped first
_RESULT: Final[Path] = ("result",)
#: Kinds of the messages about a call that repeat its text: the words of its error, the parameters that people changed.
_ABOUT: Final[tuple[Path, ...]] = (("correction",), ("error",))
_EVERYTHING: Final[Path] = ()  # the beginning of every path


class Taint:
    """The tainted paths `of` the runs of one executor, by their ids; of batches without a run until these end, by key.

    A call that is untrusted itself, or whose tool says that it `brings_untrusted`, taints what it writes; a call that
    reads what is tainted is untrusted, and taints in turn. This holds for all cycles of a run, also of those that an
    earlier process made (`recall`). It errs on the safe side: a path stays tainted whatever is written there later, in
    any instance. Whatever stays outside of a run (a file, a row, a page) carries no mark: the tools that read it bring
    untrusted text.
    """

    __slots__ = ("of",)

    def __init__(self) -> None:
        self.of: BoundedDict[str, PathIndex[bool]] = BoundedDict(MOST)

    def of_plan(self, stated: Trust | None, trust: Trust, run_id: str | None) -> Trust:
        """Return the trust in the plan of one cycle: as the planner states it, else that of its perceptions (`trust`).

        A later cycle of a run has no perceptions of its own; those of the first cycle still count.
        """
        if stated is not None or run_id is None:
            return trust
        if trust == "untrusted":
            self.add(Scope("", run_id=run_id), [_EVERYTHING])
        tainted = self.of.get(run_id)
        return "untrusted" if tainted is not None and tainted.at(_EVERYTHING) else trust

    def recall(self, scope: Scope, earlier: Iterable[ActionResult], find: Callable[[str], BoundTool | None]) -> None:
        """Taint what the calls of a run's earlier batches tainted; everything, if a call cannot be read any more."""
        for batch in earlier:
            trust = trust_of(batch.action) if batch.action is not None else "untrusted"
            kinds: dict[str, list[str]] = {}
            for message in batch.messages:
                if message.get("type") == "data" and "_call" in message:
                    kinds.setdefault(str(message["_call"].get("_id")), []).append(str(message.get("kind")))
            for call in [result.call for result in batch.results if result.attempts]:
                try:
                    entry = find(call.tool)
                    self.judge(call, entry, "untrusted" if entry is None else trust_in(call, trust), scope)
                    self.wrote(call, entry, trust, scope, kinds.get(call.id, ()))
                except Exception:  # a call in the form of another version
                    self.add(scope, [_EVERYTHING])

    def judge(self, call: Call, entry: BoundTool | None, trust: Trust, scope: Scope) -> Trust:
        """Return the trust in a call by its own trust and the data that it reads; taint its output if untrusted."""
        if trust == "trusted" and self.reads(call, scope):
            trust = "untrusted"
        if trust == "untrusted" or (entry is not None and entry.terms.brings_untrusted):
            path = call.output_path
            self.add(scope, (*_ABOUT, *([_RESULT] if path is None else parse_write(path).paths)))
        return trust

    def wrote(self, call: Call, entry: BoundTool | None, trust: Trust, scope: Scope, kinds: Iterable[str]) -> None:
        """Taint the kinds of messages that an untrusted call, or one that brings such text, has written by itself."""
        if entry is None or entry.terms.brings_untrusted or trust_in(call, trust) == "untrusted":
            self.add(scope, [(kind,) for kind in kinds])

    def reads(self, call: Call, scope: Scope) -> bool:
        """Return whether a call reads tainted data."""
        tainted = self.of.get(scope.run_id or scope.key)
        if tainted is None:
            return False
        expressions = chain.from_iterable(references(call.params).values())
        read = [path for expression in expressions for path in expression.paths]
        scopes = call.meta.get("_scopes")
        read += [(kind,) for kind in scopes if isinstance(kind, str)] if isinstance(scopes, (list, tuple)) else []
        return any(map(tainted.over, read))

    def add(self, scope: Scope, paths: Iterable[Path]) -> None:
        """Taint these paths in the run of a scope, or in its batch."""
        key = scope.run_id or scope.key
        tainted = self.of[key] = self.of.get(key) or PathIndex(or_)
        for path in paths:
            if not tainted.at(path):
                tainted.add(path, True)
