from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perception.pipeline import read_settings
from perception.stages.priority import BASE, KEYWORDS_CAP, Scale, prioritise
from spar.errors import ConfigError
from spar.types import Perception

NOON = datetime(2026, 1, 3, 12, 0, tzinfo=UTC)


def scale(**priority: Any) -> Scale:
    return Scale(read_settings({"priority": priority}).priority)


def scored(content: Any = "", of: Scale | None = None, **fields: Any) -> Perception:
    return prioritise(of or scale(), [Perception(content, **fields)]).perceptions[0]


def test_every_summand_leaves_a_sentence_and_the_sentences_add_up() -> None:
    perception = scored(
        "this is URGENT", kind="mail", intent="request", trust="trusted", attributes={"count": 400, "other": 1}
    )

    assert perception.attributes["why"] == [
        "mail starts at 0.4",
        "it says 'urgent' (+0.2)",
        "it asks for something to be done (+0.1)",
        "it was seen 400 times (+0.2)",
        "its source is trusted (+0.05)",
    ]
    assert perception.priority == pytest.approx(0.95)
    assert perception.attributes["other"] == 1


@pytest.mark.parametrize("priority", [0.2, 0.5])
def test_a_priority_that_the_sensor_has_set_stays_and_is_explained_unless_it_came_with_reasons(priority: float) -> None:
    perception = scored("urgent: outage", kind="alert", priority=priority)

    assert perception.priority == priority
    assert perception.attributes["why"] == [f"its sensor set it to {priority}"]
    assert scored("x", priority=priority, attributes={"why": ["so"]}).attributes["why"] == ["so"]


def test_an_exact_kind_goes_before_a_pattern_and_the_configuration_before_the_built_in() -> None:
    own = scale(base={"host.*": 0.9, "host.disk": 0.1, "odd": 0.3})

    assert scored("tick", kind="schedule.tick").priority == BASE["schedule.tick"]
    kinds = ("host.load", "host.disk", "odd", "file.added")
    assert [scored("", own, kind=kind).priority for kind in kinds] == [0.9, 0.1, 0.3, 0.4]


def test_the_longest_phrase_counts_once_and_only_as_a_whole_word() -> None:
    assert scored("it is not urgent").attributes["why"][1:] == ["it says 'not urgent' (-0.1)"]
    assert scored("urgent urgent Urgent").attributes["why"][1:] == ["it says 'urgent' (+0.2)"]
    assert scored("insurgents").attributes["why"][1:] == []
    assert scored("data loss", scale(keywords={"data": -0.1})).attributes["why"][1:] == ["it says 'data loss' (+0.25)"]


def test_words_of_the_configuration_add_to_the_built_in_ones_zero_turns_one_off_and_many_are_capped() -> None:
    own = scale(keywords={"Urgent": 0, "c++!": 0.3})

    assert scored("urgent", own).attributes["why"][1:] == []
    assert scored("about C++! now", own).attributes["why"][1:] == ["it says 'c++!' (+0.3)"]
    loud = scored("urgent emergency critical outage breach fatal").priority
    assert loud - scored("nothing").priority == pytest.approx(KEYWORDS_CAP)


def test_rules_match_on_source_kind_intent_and_pattern_together_and_all_that_fit_add_up() -> None:
    own = scale(
        rules=[
            {"source": "db*", "kind": "log.*", "intent": "report_*", "pattern": "lock", "add": 0.2, "because": "locks"},
            {"source": "db*", "add": -0.1},
        ]
    )
    fits = {"source": "db1", "kind": "log.line", "intent": "report_x"}

    assert scored("a lock", own, **fits).attributes["why"][1:] == ["locks (+0.2)", "a rule says so (-0.1)"]
    for miss in ({"source": "web"}, {"kind": "mail"}, {"intent": "inform"}):
        assert "locks (+0.2)" not in scored("a lock", own, **{**fits, **miss}).attributes["why"]
    assert "locks (+0.2)" not in scored("a door", own, **fits).attributes["why"]


def test_a_doubtful_reading_counts_for_less_but_never_for_nothing() -> None:
    sure, unsure, blind = (scored("x", kind="alert", confidence=c).priority for c in (1.0, 0.5, 0.0))

    assert sure > unsure > blind == pytest.approx(sure / 2)
    assert scored("x", kind="alert", confidence=0.4).attributes["why"][-1] == "its sensor is only 40% sure (×0.7)"


def test_age_is_counted_from_the_newest_of_the_batch() -> None:
    ages = (0, 700, 4000, 90_000)
    kept = prioritise(scale(), [Perception("x", at=NOON - timedelta(seconds=age)) for age in ages]).perceptions

    assert [p.priority for p in kept] == [0.4, 0.35, 0.3, 0.25]  # in the order of the batch
    assert kept[3].attributes["why"][-1] == "it is more than a day older than the newest (-0.15)"


@given(
    content=st.text(st.characters()),
    kind=st.text(max_size=8),
    confidence=st.floats(0, 1),
    count=st.integers(),
    weight=st.floats(-1, 1),
    at=st.datetimes(timezones=st.just(UTC)),
)
def test_a_score_stays_between_0_and_1_for_anything(
    content: str, kind: str, confidence: float, count: int, weight: float, at: datetime
) -> None:
    own = scale(rules=[{"add": weight}], keywords={content.strip() or "x": weight})
    perception = Perception(content, kind=kind, confidence=confidence, attributes={"count": count}, at=at)

    for p in prioritise(own, [perception, Perception("x", at=NOON)]).perceptions:
        assert 0 <= p.priority <= 1
        assert all(isinstance(sentence, str) for sentence in p.attributes["why"])


# -- severity, deadline, novelty, sources, weights


def why(perception: Perception, newest: datetime | None = None, **table: Any) -> str:
    """The sentences of a perception; the newest of its batch says what time it is."""
    scale = Scale(read_settings({"priority": table}).priority)
    batch = [perception, Perception("now", at=newest)] if newest else [perception]
    return "\n".join(prioritise(scale, batch).perceptions[0].attributes["why"])


AT = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        ({"severity": "Critical"}, "its severity is critical (+0.25)"),
        ({"level": "warning"}, "its level is warning (+0.05)"),
        ({"severity": "odd", "level": "high"}, "its level is high (+0.1)"),
        ({"deadline": AT + timedelta(minutes=20)}, "less than an hour is left until its deadline (+0.2)"),
        ({"deadline": "2026-05-04T11:00:00"}, "its deadline is over (+0.25)"),
        ({"deadline": "2026-05-05T11:00:00+00:00"}, "less than a day is left until its deadline (+0.1)"),
        ({"novelty": "template"}, "a line like it was never seen (+0.1)"),
        ({"novelty": "value"}, "such a value is rare at this time (+0.1)"),
    ],
)
def test_each_term_that_speaks_for_it_is_explained(attributes: dict[str, Any], words: str) -> None:
    assert words in why(Perception("x", kind="log.line", at=AT, attributes=attributes), AT)


@pytest.mark.parametrize(
    "attributes",
    [
        {"severity": 3},
        {"level": ["x"]},
        {"deadline": "soon"},
        {"deadline": "9" * 1000},
        {"novelty": {}},
        {"deadline": 7},
    ],
)
def test_a_term_that_cannot_be_read_says_nothing(attributes: dict[str, Any]) -> None:
    plain = why(Perception("x", kind="log.line", at=AT), AT)

    assert why(Perception("x", kind="log.line", at=AT, attributes=attributes), AT) == plain


def test_sources_add_what_the_settings_say_the_first_that_fits() -> None:
    table: dict[str, Any] = {"sources": {"mail": 0.2, "m*": -0.3}}

    assert "it comes from 'mail' (+0.2)" in why(Perception("x", source="mail", kind="a"), **table)
    assert "it comes from 'mqtt' (-0.3)" in why(Perception("x", source="mqtt", kind="a"), **table)
    assert "it comes from" not in why(Perception("x", source="host", kind="a"), **table)


def test_weights_double_a_term_or_turn_it_off_and_messages_of_people_have_them_too() -> None:
    perception = Perception(
        "restart nginx", kind="message", intent="request", at=AT, attributes={"severity": "critical"}
    )

    assert "its severity is critical (+0.25)" in why(perception)
    assert "its severity is critical (+0.5)" in why(perception, weights={"severity": 2})
    assert "severity" not in why(perception, weights={"severity": 0})
    assert "it asks for something to be done" not in why(perception, weights={"intent": 0})


def test_a_wrong_weight_is_refused_by_its_name() -> None:
    with pytest.raises(ConfigError, match=r"perception\.priority\.weights has no setting named 'sevrity'"):
        read_settings({"priority": {"weights": {"sevrity": 1}}})
    with pytest.raises(ConfigError, match=r"perception\.priority\.sources\.mail"):
        read_settings({"priority": {"sources": {"mail": 3}}})
