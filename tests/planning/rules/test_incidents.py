"""Rules about incidents: what they match, and what their templates find."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import convert

from planning.rules.conditions import Conditions, MatchInput, compile_conditions, sights
from planning.rules.parse import read_rules
from planning.rules.templates import AbsentError, Facts, brings_untrusted, parse, render
from spar.errors import ConfigError
from spar.types import Perception

LINE = Perception("no connection to db1", source="log", kind="log.error", attributes={"told": "I-3"})
ALERT = Perception("ShopDown", id="a", source="am", kind="alert")
NOTICE = Perception(
    "ShopDown",
    id="a",
    kind="incident.opened",
    evidence=(ALERT, LINE),
    attributes={
        "incident": "I-3", "severity": "critical", "count": 4, "things": 2, "ordinal": 1, "sources": ["am", "log"],
        "entities": {"service": ["shop", "pay"], "host": ["web1"]}, "reason": "because", "state": "open",
    },
)  # fmt: skip


def matches(conditions: dict[str, Any], perception: Perception = NOTICE) -> bool:
    matcher = compile_conditions(convert({"incident": conditions}, Conditions), ("rules", 0, "when"))
    return matcher.match(MatchInput(perception)) is not None


@pytest.mark.parametrize(
    "conditions",
    [
        {},
        {"severity": ["error", "critical"], "source": "log"},
        {"count": 4, "things": {"at_least": 2}, "ordinal": 1},
        {"entities": {"service": "pay", "host": ["db*", "web*"]}},
        {"evidence": {"kind": "log.*", "pattern": "no connection"}},
    ],
)
def test_a_notice_matches_by_what_it_says_of_its_incident(conditions: dict[str, Any]) -> None:
    assert matches(conditions)


@pytest.mark.parametrize(
    "conditions",
    [
        {"severity": "warning"},
        {"source": "host"},
        {"count": {"above": 4}},
        {"entities": {"file": "*"}},
        {"evidence": {"kind": "alert", "pattern": "no connection"}},
    ],
)
def test_a_notice_matches_no_other_conditions(conditions: dict[str, Any]) -> None:
    assert not matches(conditions)


def test_what_tells_of_no_incident_matches_no_condition_on_one() -> None:
    assert not matches({}, ALERT)
    assert not matches({}, Perception("linked", kind="alert", attributes={"incident": "I-3"}))


def test_a_rule_for_the_cause_sees_it_in_the_notice_and_nothing_that_was_told_before() -> None:
    assert [each.perception.kind for each in sights(NOTICE)] == ["incident.opened", "alert"]


def test_templates_name_what_is_known_of_the_incident() -> None:
    template = parse("{incident.id} {incident.severity} {incident.entities.service} {incident.entities.file|no file}")

    assert render(template, Facts(NOTICE)) == "I-3 critical shop no file"
    with pytest.raises(AbsentError):
        render(parse("{incident.id}"), Facts(ALERT))


def test_what_a_stranger_named_is_a_strangers_text() -> None:
    (placeholder,) = parse("{incident.entities.service}").placeholders

    assert brings_untrusted(placeholder, Facts(NOTICE))


def test_a_wrong_key_is_refused_with_those_that_are_known() -> None:
    for table, known in (({"severty": "error"}, "severity"), ({"evidence": {"knd": "x"}}, "kind")):
        with pytest.raises(ConfigError, match=f"known: .*{known}"):
            read_rules([{"name": "r", "when": {"incident": table}}])
