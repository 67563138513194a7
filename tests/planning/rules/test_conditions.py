from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import convert

from planning.rules.conditions import Conditions, MatchInput, compile_conditions, sights
from planning.rules.parse import read_rules
from planning.rules.templates import AbsentError, Facts, brings_untrusted, parse, render
from spar.errors import ConfigError
from spar.types import Perception


def matches(conditions: dict[str, Any], **fields: Any) -> Any:
    matcher = compile_conditions(convert(conditions, Conditions), ("rules", 0, "when"))
    match, objection = (of(MatchInput(Perception(**fields))) for of in (matcher.match, matcher.objection))
    assert (match is None) == bool(objection[0]), objection
    return match


@pytest.mark.parametrize(
    ("conditions", "fields"),
    [
        ({}, {}),
        ({"kind": "file.*"}, {"kind": "file.new"}),
        ({"kind": ["a", "file.?ew"]}, {"kind": "file.new"}),
        ({"source": "inbox", "session": "m*"}, {"source": "inbox"}),
        ({"key": "*.txt", "subject": "disk"}, {"key": "a.txt", "subject": "disk"}),
        ({"trust": "trusted"}, {"trust": "trusted"}),
        ({"min_priority": 0.3, "min_confidence": 0.2}, {"priority": 0.3, "confidence": 0.2}),
        ({"count": {"at_least": 3}}, {"attributes": {"count": 3}}),
        ({"count": 2}, {"evidence": (Perception("a"), Perception("b"))}),
        ({"attributes": {"level": "hi*"}}, {"attributes": {"level": "high"}}),
        ({"attributes": {"code": "4??"}}, {"attributes": {"code": 404}}),
        ({"attributes": {"code": 404, "on": True}}, {"attributes": {"code": 404, "on": True}}),
        ({"attributes": {"v": {"above": 0.9, "at_most": 1}}}, {"attributes": {"v": 1}}),
        ({"attributes": {"v": [1, "x*", {"below": 0}]}}, {"attributes": {"v": -5}}),
        ({"attributes": {"host.load": {"above": 1}}}, {"attributes": {"host": {"load": 2}}}),
        ({"pattern": "disk"}, {"content": {"text": "disk full"}}),
    ],
)
def test_a_perception_matches_when_every_condition_holds(conditions: dict[str, Any], fields: dict[str, Any]) -> None:
    assert matches(conditions, **fields) == {}


@pytest.mark.parametrize(
    ("conditions", "fields"),
    [
        ({"kind": "file.*"}, {"kind": "File.new"}),
        ({"kind": "file.*"}, {"kind": "a file.new"}),
        ({"subject": "*"}, {}),
        ({"kind": "a", "source": "b"}, {"kind": "a"}),
        ({"trust": "trusted"}, {}),
        ({"min_priority": 0.6}, {}),
        ({"count": {"at_least": 2}}, {}),
        ({"attributes": {"level": "*"}}, {}),
        ({"attributes": {"on": 1}}, {"attributes": {"on": True}}),
        ({"attributes": {"on": True}}, {"attributes": {"on": 1}}),
        ({"attributes": {"v": {"above": 0.9}}}, {"attributes": {"v": 0.9}}),
        ({"attributes": {"v": {"above": 0.9}}}, {"attributes": {"v": "1"}}),
        ({"attributes": {"v": {"above": 0.9}}}, {"attributes": {"v": float("nan")}}),
        ({"pattern": "full$"}, {"content": "x" * 10_000 + "full"}),
    ],
)
def test_one_condition_that_does_not_hold_is_enough(conditions: dict[str, Any], fields: dict[str, Any]) -> None:
    assert matches(conditions, **fields) is None


def test_groups_of_the_pattern_that_took_part_become_slots() -> None:
    found = matches({"pattern": r"restart (?P<unit>\w+)( on (?P<host>\w+))?"}, content="please restart nginx now")

    assert found == {"unit": "nginx"}


@pytest.mark.parametrize(
    ("conditions", "path"),
    [
        ({"pattern": "("}, ("pattern",)),
        ({"kind": []}, ("kind",)),
        ({"attributes": {"v": {"abov": 1}}}, ("attributes", "v")),
        ({"attributes": {"v": {"above": "1"}}}, ("attributes", "v")),
        ({"attributes": {"v": {"above": float("nan")}}}, ("attributes", "v")),
        ({"attributes": {"v": {}}}, ("attributes", "v")),
        ({"attributes": {"v": []}}, ("attributes", "v")),
        ({"attributes": {"v": [{"x": 1}]}}, ("attributes", "v", 0)),
        ({"count": {"above": "many"}}, ("count",)),
    ],
)
def test_a_condition_that_cannot_be_read_is_refused_with_its_place(
    conditions: dict[str, Any], path: tuple[Any]
) -> None:
    with pytest.raises(ConfigError) as caught:
        matches(conditions)

    assert caught.value.path == ("rules", 0, "when", *path)


@given(st.text(), st.text())
def test_a_literal_text_matches_itself_only(wanted: str, found: str) -> None:
    literal = "".join(f"[{sign}]" if sign in "*?[" else sign for sign in wanted)

    assert (matches({"kind": literal}, kind=found) is not None) == (wanted == found)


@pytest.mark.parametrize(
    ("conditions", "fields", "sentence"),
    [
        ({"kind": ["alert*", "a\nb"]}, {"kind": "file"}, 'kind = ["alert*", "a b"] is not met: "file"'),
        ({"subject": "disk"}, {}, 'subject = "disk" is not met: nothing of that name is there'),
        ({"trust": "trusted"}, {}, 'trust = "trusted" is not met: "untrusted"'),
        ({"min_priority": 0.9}, {"priority": 0.7}, "min_priority = 0.9 is not met: 0.7"),
        ({"count": {"at_least": 3}}, {}, "count = { at_least = 3 } is not met: 1"),
        ({"attributes": {"host.load": {"above": 0.9}}}, {"attributes": {"host": {"load": 0.7}}},
         "attributes.host.load = { above = 0.9 } is not met: 0.7"),
        ({"attributes": {"on": True}}, {"attributes": {"on": {"a": {"b": {"c": {"d": {"e": 1}}}}}}},
         "attributes.on = true is not met: { a = { b = { c = { d = … } } } }"),
        ({"incident": {"severity": "critical"}}, {"kind": "file"},
         'incident = "a notice, of a kind incident.*" is not met: "file"'),
        ({"incident": {"severity": ["critical"]}}, {"kind": "incident.opened", "attributes": {"severity": "minor"}},
         'incident.severity = ["critical"] is not met: "minor"'),
        ({"pattern": "disk"}, {"content": "x" * 10_000}, f'pattern = "disk" is not found in "{"x" * 78}…'),
    ],
)  # fmt: skip
def test_the_first_condition_that_is_not_met_is_named_with_the_value(
    conditions: dict[str, Any], fields: dict[str, Any], sentence: str
) -> None:
    matcher = compile_conditions(convert(conditions, Conditions), ("rules", 0, "when"))
    assert matcher.objection(MatchInput(Perception(**fields)))[0] == sentence


# -- rules about incidents: what they match, and what their templates find


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


def is_met(conditions: dict[str, Any], perception: Perception = NOTICE) -> bool:
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
    assert is_met(conditions)


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
    assert not is_met(conditions)


def test_what_tells_of_no_incident_matches_no_condition_on_one() -> None:
    assert not is_met({}, ALERT)
    assert not is_met({}, Perception("linked", kind="alert", attributes={"incident": "I-3"}))


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
