"""Whether a call runs, is asked about or refused: rules, the tool's own terms, and trust."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from acting import Executor
from acting.approvals.policy import Policy, trust_in
from acting.tooling.bound_tool import entry_of
from spar.errors import ConfigError
from spar.protocols.tools import ToolTerms
from spar.types import Call, Trust


def decided(
    policy: Policy,
    tool: str = "shell",
    params: dict[str, Any] | None = None,
    *,
    trust: Trust = "trusted",
    session: str = "main",
    **terms: Any,
) -> str:
    own = ToolTerms(name=tool, **terms)
    return policy.decide(own, own.effect, Call(tool, params or {}), params or {}, trust, session).decision


def one_rule(**rule: Any) -> Policy:
    return Policy(rules=[rule])


def test_without_rules_the_tools_own_terms_decide_and_no_setting_or_rule_loosens_its_deny() -> None:
    assert [decided(Policy(), approval=each) for each in ("auto", "ask", "deny")] == ["auto", "ask", "deny"]
    assert decided(Policy("auto"), trust="untrusted", approval="ask") == "ask"
    assert decided(Policy("ask"), trust="untrusted", approval="deny") == "deny"
    assert decided(one_rule(decision="auto"), approval="deny") == "deny"


@pytest.mark.parametrize("setting", ["auto", "ask", "deny"])
def test_a_call_from_untrusted_text_is_held_to_the_setting_unless_its_tool_is_safe(setting: Any) -> None:
    policy = Policy(setting)

    assert decided(policy, trust="untrusted") == setting
    assert decided(policy, trust="untrusted", safe_with_untrusted=True) == "auto"
    assert decided(policy, trust="trusted") == "auto"


def test_the_first_rule_that_matches_decides() -> None:
    policy = Policy(rules=[{"tool": "shell", "params": {"argv": ["ls", "*"]}, "decision": "auto"},
                           {"tool": "sh*", "decision": "deny"}, {"decision": "ask"}])  # fmt: skip

    assert decided(policy, params={"argv": ["ls", "-l"]}, approval="ask") == "auto"
    assert decided(policy, params={"argv": ["rm", "-r"]}) == "deny"
    assert decided(policy, tool="note") == "ask"


def test_a_rule_loosens_the_watch_on_untrusted_text_only_if_it_names_trust() -> None:
    assert decided(one_rule(tool="shell", decision="auto"), trust="untrusted") == "ask"
    assert decided(one_rule(tool="shell", trust="untrusted", decision="auto"), trust="untrusted") == "auto"


@pytest.mark.parametrize(
    ("rule", "matching", "other"),
    [
        ({"effect": "once"}, {"effect": "once"}, {"effect": "read"}),
        ({"effect": ["read", "once"]}, {"effect": "read"}, {"effect": "idempotent"}),
        ({"session": "web*"}, {"session": "web1"}, {"session": "main"}),
        ({"tool": "Shell"}, {"tool": "Shell"}, {"tool": "shell"}),
        ({"trust": "untrusted"}, {"trust": "untrusted", "safe_with_untrusted": True}, {"trust": "trusted"}),
        ({"params": {"op": "delete"}}, {"params": {"op": "delete", "more": 1}}, {"params": {"op": "undelete"}}),
        ({"params": {"op": "delete"}}, {"params": {"op": "delete"}}, {"params": {}}),
        ({"params": {"path": "a/*.txt"}}, {"params": {"path": "a/b/\n.txt"}}, {"params": {"path": "b/a/x.txt"}}),
        ({"params": {"path": "[*]"}}, {"params": {"path": "*"}}, {"params": {"path": "x"}}),
        ({"params": {"n": 1}}, {"params": {"n": 1.0}}, {"params": {"n": True}}),
        ({"params": {"n": None}}, {"params": {"n": None}}, {"params": {"n": 0}}),
        ({"params": {"argv": ["git", "*"]}}, {"params": {"argv": ["git", "push"]}}, {"params": {"argv": ["git"]}}),
        ({"params": {"a": {"b": "x*"}}}, {"params": {"a": {"b": "xy", "c": 1}}}, {"params": {"a": "xy"}}),
        ({"params": {"text": "\ud800*"}}, {"params": {"text": "\ud800!"}}, {"params": {"text": 5}}),
    ],
)  # fmt: skip
def test_a_rule_matches_by_all_that_it_names(
    rule: dict[str, Any], matching: dict[str, Any], other: dict[str, Any]
) -> None:
    policy = Policy(rules=[{**rule, "decision": "deny"}])

    assert decided(policy, **matching) == "deny"
    assert decided(policy, **other) == "auto"


def test_a_pattern_takes_no_longer_than_it_is_long() -> None:
    policy = one_rule(params={"text": "*a" * 400 + "b"}, decision="deny")

    assert decided(policy, params={"text": "a" * 100_000}) == "auto"


@pytest.mark.parametrize(
    ("settings", "sentence", "path"),
    [
        ({"untrusted": "maybe"}, "approval.untrusted is 'maybe', expected 'auto' or 'ask' or 'deny'", ("untrusted",)),
        ({"rules": {}}, "approval.rules is {}, expected a list of tables", ("rules",)),
        ({"rules": [5]}, "approval.rules[0] is 5, expected a table", ("rules", 0)),
        ({"rules": [{"tool": "x"}]}, "rules[0].decision is None, expected 'auto' or", ("rules", 0, "decision")),
        ({"rules": [{"decision": "ask"}, {"tol": "x", "decision": "ask"}]},
         "no setting 'tol' for approval rule 2; known: decision, tool, effect", ("rules", 1, "tol")),
        ({"rules": [{"effect": "never", "decision": "ask"}]}, "effect is 'never', expected one or a list of read, ",
         ("rules", 0, "effect")),
        ({"rules": [{"effect": [], "decision": "ask"}]}, "expected one or a list", ("rules", 0, "effect")),
        ({"rules": [{"tool": 5, "decision": "ask"}]}, "tool is 5, expected a pattern", ("rules", 0, "tool")),
        ({"rules": [{"params": [], "decision": "ask"}]}, "expected a table of parameters", ("rules", 0, "params")),
        ({"rules": [{"params": {"x": "y" * 2000}, "decision": "ask"}]}, "patterns of at most", ("rules", 0, "params")),
        ({"rules": [{"params": {"x": float("nan")}, "decision": "ask"}]}, "finite numbers", ("rules", 0, "params")),
    ],
)  # fmt: skip
def test_what_is_no_rule_is_refused_by_name(settings: dict[str, Any], sentence: str, path: tuple[Any, ...]) -> None:
    with pytest.raises(ConfigError) as caught:
        Executor(settings={"approval": settings})

    assert sentence in str(caught.value)
    assert caught.value.path == ("approval", *path)


def test_each_decision_but_the_tools_own_yes_says_why() -> None:
    policy = one_rule(tool="b", decision="ask")
    terms, safe = ToolTerms(name="a"), ToolTerms(name="b")

    why = policy.decide(terms, "once", Call("a"), {}, "untrusted", "main").why
    assert why == "it follows from untrusted text and 'a' is not declared safe with it"
    assert (
        policy.decide(safe, "once", Call("b"), {}, "trusted", "main").why
        == "rule 1 of the approval rules asks about it"
    )
    assert policy.decide(terms, "once", Call("a"), {}, "trusted", "main").why == ""


def test_a_call_can_only_lower_the_trust_of_its_action() -> None:
    assert trust_in(Call("a", meta={"_trust": "untrusted"}), "trusted") == "untrusted"
    assert trust_in(Call("a", meta={"_trust": "trusted"}), "untrusted") == "untrusted"
    assert trust_in(Call("a"), "trusted") == "trusted"


class Op(Enum):
    DELETE = "delete"


def test_a_rule_sees_parameters_as_json_says_them_also_where_the_tool_is_given_objects_of_its_own() -> None:
    async def tidy(path: Path, op: Op, tags: frozenset[str]) -> None: ...

    entry = entry_of(tidy)
    params = entry.parameters.validate({"path": "reports/x", "op": "delete", "tags": ["a"]})
    for shape in ({"path": "reports/*"}, {"op": "del*"}, {"tags": ["a"]}):
        policy = one_rule(params=shape, decision="deny")
        assert policy.decide(entry.terms, "once", Call("tidy", {}), params, "trusted", "main").decision == "deny", shape
