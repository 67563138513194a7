from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perception import Pipeline
from perception.stages import classify, intent
from perception.stages.dedup import StageResult
from spar.data.learning.situations import situation_of
from spar.errors import ConfigError
from spar.types import Perception
from tests.effort import growth, hang_guard
from tests.forced import forced

NOON = datetime(2026, 1, 3, 12, 0, tzinfo=UTC)


def unaccounted(pipeline: Pipeline, came_out: int) -> int:
    counts = pipeline.counts
    gone = sum(stage.get(fate, 0) for stage in counts.values() for fate in ("dropped", "merged", "cut", "measured"))
    added = sum(stage.get("added", 0) for stage in counts.values())
    return counts["intake"]["in"] + added - gone - came_out


def test_an_alert_four_hundred_lines_and_a_reading_become_one_incident_with_a_reason() -> None:
    pipeline = Pipeline()
    lines = [
        Perception(
            f"2026-01-03T12:00:{i % 60:02d}Z ERROR upstream timed out",
            source="log",
            subject="nginx",
            at=NOON + timedelta(milliseconds=i),
        )
        for i in range(400)
    ]
    alert = Perception({"status": "firing", "name": "NginxDown"}, source="webhook", subject="nginx", at=NOON)
    load = Perception("load 12", kind="host.load", subject="nginx", at=NOON, attributes={"level": "high"})

    (incident,) = pipeline.process([*lines[:200], alert, load, *lines[200:]])

    assert (incident.kind, incident.intent) == ("incident.opened", "report_problem")
    assert incident.attributes["count"] == 402
    assert {part.kind for part in incident.evidence} == {"alert", "host.load", "log.error"}
    assert incident.attributes["why"][0] == "alert starts at 0.7"
    assert pipeline.counts["dedup"]["dropped"] == 399
    assert pipeline.counts["fuse"]["merged"] == 2
    assert unaccounted(pipeline, 1) == 0


def test_a_perception_says_what_it_is_about_as_far_as_labels_and_attributes_name_it() -> None:
    labels = {"instance": "web1:9100", "service": "nginx", "pod": "nginx-7d9f8-x2x9z", "client_ip": "192.0.2.7"}
    batch = [
        Perception("disk of db7.example.org /var/lib/x is full", kind="alert.disk", attributes={"labels": labels}),
        Perception("Jan  3 12:00:00 web2 cron[812]: failed", kind="log.error"),
        Perception("Jan  3 12:00:00 web2 cron[812]: failed", kind="message"),
        Perception("own", kind="game", attributes={"entities": ["s14"], "service": "x1"}),
    ]

    found = Pipeline({"incidents": {"enabled": False}}).process(batch)

    about = {each.kind: each.attributes.get("entities") for each in found}
    assert about == {"alert.disk": ["nginx", "web1"], "log.error": ["cron", "web2"], "message": None, "game": ["s14"]}


def test_the_notice_of_an_incident_is_the_situation_of_what_caused_it() -> None:
    alert = Perception("down", kind="alert.down", source="s", attributes={"labels": {"service": "shop"}})

    [notice] = Pipeline().process([alert])

    assert notice.kind == "incident.opened"
    assert situation_of(notice) == "alert.down/inform[shop]"


def test_perceptions_come_out_by_priority_and_equal_ones_as_they_came() -> None:
    batch = [Perception(name, priority=priority) for name, priority in (("a", 0.2), ("b", 0.9), ("c", 0.2), ("d", 1))]

    assert [p.content for p in Pipeline().process(batch)] == ["d", "b", "a", "c"]


def test_what_the_limit_cuts_is_the_least_important_and_is_told() -> None:
    pipeline = Pipeline({"limit": 2})

    kept = pipeline.process([Perception(i, priority=i / 10) for i in (1, 9, 4)])

    assert [p.content for p in kept] == [9, 4]
    assert pipeline.counts["limit"] == {"in": 3, "touched": 0, "cut": 1}
    assert [(d.stage, d.reason) for d in pipeline.dropped] == [("limit", "priority 0.1 is not among the first 2")]


def test_a_flood_of_urgent_things_does_not_cut_off_what_people_say() -> None:
    flood = [Perception(f"alarm {i}", priority=1.0) for i in range(50)]

    kept = Pipeline({"limit": 3}).process([*flood, Perception("help", kind="message")])

    assert [p.content for p in kept] == ["alarm 0", "alarm 1", "help"]


def test_what_was_taken_out_can_be_listed_with_its_reason_and_the_list_is_bounded() -> None:
    pipeline = Pipeline()
    first = Perception("x", source="s", at=NOON)
    again = Perception("x", source="s", at=NOON + timedelta(seconds=1))
    pipeline.process([first])
    pipeline.process([again])

    (decision,) = pipeline.dropped
    assert (decision.id, decision.source, decision.stage, decision.at) == (again.id, "s", "dedup", again.at)
    assert decision.reason == f"the same content as {first.id}"

    pipeline.process([Perception("x", source="s", at=NOON) for _ in range(5000)])
    assert len(pipeline.dropped) == 1000


@pytest.mark.parametrize(
    ("stage", "check"),
    [
        ("dedup", lambda kept: len(kept) == 2),
        ("classify", lambda kept: kept[0].kind == ""),
        ("intent", lambda kept: kept[0].intent == ""),
        ("priority", lambda kept: kept[0].priority is None),
        ("fuse", lambda kept: len(kept) == 2),
    ],
)
def test_each_stage_can_be_turned_off(stage: str, check: Any) -> None:
    batch = [Perception("[FIRING] a", subject="s"), Perception("[FIRING] b" if stage == "fuse" else "[FIRING] a")]
    if stage == "fuse":
        batch[1] = Perception("[FIRING] b", subject="s")
    pipeline = Pipeline({stage: {"enabled": False}})

    assert check(pipeline.process(batch))
    assert pipeline.counts[stage]["in"] == 0


def test_what_a_sensor_has_set_is_kept_through_all_stages() -> None:
    perception = Perception("urgent: restart nginx", kind="mail", intent="order", priority=0.1, key="k")

    (kept,) = Pipeline().process([perception])

    assert (kept.kind, kept.intent, kept.priority) == ("mail", "order", 0.1)


@pytest.mark.parametrize(
    ("junk", "reason"),
    [
        ("a text", "a perception is needed, found str"),
        (None, "a perception is needed, found NoneType"),
        (forced(Perception("x"), at="now"), r"Perception: at must be a datetime, found str .*"),
        (
            forced(Perception("x"), priority="high"),
            r"Perception: priority must be a number from 0 to 1 or None, found str .*",
        ),
        (forced(Perception("x"), subject=["s"]), "Perception: subject must be text or None, found list .*"),
        (forced(Perception("x"), attributes=None), "Perception: attributes must be an object .*, found NoneType .*"),
        (forced(Perception("x"), id=7), "Perception: id must be text, found int .*"),
        (forced(Perception("x"), confidence=float("nan")), "Perception: confidence must be a number from 0 to 1, .*"),
    ],
)
def test_what_is_no_sound_perception_is_dropped_with_the_reason_and_disturbs_no_other(junk: Any, reason: str) -> None:
    pipeline = Pipeline()

    kept = pipeline.process([junk, Perception("fine")])

    assert [p.content for p in kept] == ["fine"]
    (decision,) = pipeline.dropped
    assert decision.stage == "intake"
    assert re.fullmatch(reason, decision.reason)


def test_a_time_without_a_zone_is_taken_as_utc() -> None:
    (kept,) = Pipeline().process([Perception("b", at=NOON.replace(tzinfo=None))])

    assert kept.at == NOON


class Hostile:
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no equality")

    __hash__ = None  # type: ignore[assignment]


def deep(levels: int) -> list[Any]:
    nested: list[Any] = []
    for _ in range(levels):
        nested = [nested]
    return nested


CIRCULAR: dict[str, Any] = {}
CIRCULAR["self"] = CIRCULAR


@pytest.mark.parametrize(
    "content",
    [
        Hostile(),
        {"x": Hostile()},
        CIRCULAR,
        deep(100_000),
        {(1, 2): 3, None: 4},
        b"\xff\x00",
        float("nan"),
        10**5000,
        "\ud800 {brace} %s \x00\x1b[31m",
        "x" * 1_000_000,
        {"big": "y" * 1_000_000},
        None,
    ],
    ids=lambda content: type(content).__name__,
)
@pytest.mark.parametrize("kind", ["", "message"])
def test_no_content_makes_it_raise(content: Any, kind: str) -> None:
    pipeline = Pipeline()
    kept = pipeline.process([Perception(content, kind=kind), Perception(content, kind=kind, subject="\udcff")])

    assert 1 <= len(kept) <= 2
    assert not pipeline.errors


#: Attributes that stages read or write.
READ = ("anomaly", "count", "error", "fingerprint", "incident", "labels", "level", "novelty", "path", "reading",
        "resolved", "series", "service", "severity", "slots", "state", "status", "template", "template_id", "unit",
        "value", "why")  # fmt: skip


@pytest.mark.parametrize("kind", ["", "message", "alert", "alert.opened", "anomaly.opened", "log.line", "host.load"])
def test_no_attribute_makes_it_raise(kind: str) -> None:
    plain = [Hostile(), {1: 2}, [1], [Hostile()], b"\xff", 10**400, 10**5000, float("nan"), "\ud800", CIRCULAR,
             deep(3_000), datetime.max]  # fmt: skip
    tables = [{inner: value} for inner in ("state", "level", "severity", "alertname") for value in plain]
    usual = {"value": 1.0, "series": "a", "reading": True}
    pipeline = Pipeline()

    for name in READ:
        for value in [*plain, *tables]:
            attributes = {**usual, name: value}
            pipeline.process([Perception("valve", kind=kind, attributes=attributes),
                              Perception("valve", kind=kind, subject="valve", attributes=attributes)])  # fmt: skip
            assert not pipeline.errors, name


@pytest.mark.parametrize("place", range(11))
def test_a_stage_that_raises_loses_nothing_and_is_told(place: int) -> None:
    pipeline, first, later = Pipeline(), Perception("disk is full", kind="alert"), Perception("door", kind="alert")

    def broken(batch: Sequence[Perception]) -> StageResult:
        if first.id in [each.id for each in batch]:
            raise RuntimeError("it is broken")
        return stage(batch)

    stages = list(pipeline._stages)
    name, is_on, fate, stage = stages[place]
    stages[place] = name, is_on, fate, broken
    pipeline._stages = tuple(stages)

    assert [one.id for one in pipeline.process([first])] == [first.id]
    assert [one.id for one in pipeline.process([later])] == [later.id]
    assert [(failed, str(error)) for failed, error in pipeline.errors] == [(name, "it is broken")]
    assert {name for name, counts in pipeline.counts.items() if counts.get("failed")} == {name}


@pytest.mark.parametrize(
    "text",
    ["a" * 10_000, " " * 10_000, "? " * 5_000, "no error " * 1_100, "can you " * 1_250, "1 1" * 3_000, "[(" * 5_000],
    ids=lambda text: text[:9],
)
def test_no_text_makes_the_built_in_patterns_hang(text: str) -> None:
    patterns = [rule.pattern for rule in (*classify._built_in(), *intent._built_in()) if rule.pattern is not None]
    assert patterns
    with hang_guard(30):
        Pipeline().process([Perception(text), Perception(text, kind="message")])
        for pattern in patterns:  # more than they are ever given: a pattern that goes by the square takes minutes
            pattern.search(text * 10)


def test_a_flood_costs_as_much_as_it_is_long_and_comes_out_cut() -> None:
    def process(size: int) -> None:
        pipeline = Pipeline({"limit": 100})
        flood = [Perception(f"reading {i} of sensor {i * 31} at host {i % 17}", at=NOON) for i in range(size)]
        kept = pipeline.process(flood)

        assert len(kept) == min(size, 100)
        assert unaccounted(pipeline, len(kept)) == 0

    assert growth(process, 400) < 2.3


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()) | st.binary(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
few = st.sampled_from(["", "a", "message", "host.load", "\ud800"])
zones = st.one_of(st.none(), st.just(UTC), st.just(timezone(timedelta(hours=14))))
perceptions = st.builds(
    Perception,
    content=st.one_of(anything, st.sampled_from(["same", "the same words again and again"])),
    source=few,
    kind=few,
    key=st.none() | few,
    subject=st.none() | few,
    session=st.sampled_from(["main", "b"]),
    intent=few,
    priority=st.floats(0, 1) | st.just(0.5),
    confidence=st.floats(0, 1),
    trust=st.sampled_from(["trusted", "untrusted"]),
    at=st.datetimes(datetime(1, 1, 2), timezones=zones)
    | st.datetimes(NOON.replace(tzinfo=None), datetime(2026, 1, 3, 12, 5)),
    attributes=st.dictionaries(st.sampled_from(["count", "why", "slots", "level", "x"]), anything, max_size=3),
)


@settings(deadline=None)
@given(st.lists(st.lists(perceptions, max_size=12), max_size=3), st.integers(1, 8))
def test_anything_comes_out_in_order_within_the_limit_and_nothing_is_lost_uncounted(
    batches: list[list[Perception]], limit: int
) -> None:
    pipeline = Pipeline({"limit": limit})
    came_out = 0
    for batch in batches:
        kept = pipeline.process(batch)
        came_out += len(kept)

        assert len(kept) <= limit
        assert [p.priority for p in kept] == sorted((p.priority for p in kept), reverse=True)
        assert all(0 <= p.priority <= 1 and 0 <= p.confidence <= 1 for p in kept)
        assert all(isinstance(p.attributes["why"], list) for p in kept)
    assert unaccounted(pipeline, came_out) == 0
    assert len(pipeline.dropped) == sum(map(len, batches)) - came_out


def test_settings_may_be_any_mapping() -> None:
    assert Pipeline(MappingProxyType({"limit": 5, "fuse": MappingProxyType({"seconds": 1})})).settings.fuse.seconds == 1


@pytest.mark.parametrize(
    ("given_settings", "path", "words"),
    [
        ({"limit": 0}, ("limit",), "perception.limit: expected a whole number >= 1, found 0"),
        ({"limt": 3}, ("limt",), "no setting named 'limt', found 3; known: limit, templates"),
        ({"dedup": {"windw": 1}}, ("dedup", "windw"), "'windw', found 1; known: enabled, window, seconds, similarity"),
        ({"dedup": {"similarity": 1.5}}, ("dedup", "similarity"), "expected a number <= 1.0, found 1.5"),
        ({"dedup": {"seconds": float("nan")}}, ("dedup", "seconds"), "expected a number >= 0.0, found nan"),
        ({"fuse": {"seconds": -1}}, ("fuse", "seconds"), "found -1"),
        ({"fuse": {"enabled": "yes"}}, ("fuse", "enabled"), "expected true or false, got text, found 'yes'"),
        ({"fuse": []}, ("fuse",), "expected a table, got a list, found []"),
        (
            {"classify": {"rules": [{"kind": "a"}, {"kind": "b", "pattern": "("}]}},
            ("classify", "rules", 1, "pattern"),
            "perception.classify.rules[1].pattern: cannot be read as a regular expression (missing )",
        ),
        (
            {"intent": {"rules": [{"intent": "a", "pattern": "a(?!b)"}]}},
            ("intent", "rules", 0, "pattern"),
            "no look-around",
        ),
        ({"classify": {"rules": [{"source": "a"}]}}, ("classify", "rules", 0, "kind"), "needs 'kind'"),
        (
            {"classify": {"rules": [{"kind": "a", "source": 3}]}},
            ("classify", "rules", 0, "source"),
            "expected a shell pattern or a list of them, found 3",
        ),
        (
            {"intent": {"rules": [{"intent": "a", "patern": "b"}]}},
            ("intent", "rules", 0, "patern"),
            "known: source, pattern, intent, kind, confidence",
        ),
        ({"priority": {"base": {"host.load": 3}}}, ("priority", "base", "host.load"), "found 3"),
        ({"priority": {"base": {"a": 0.1, "b.c": -0.1}}}, ("priority", "base", "b.c"), ">= 0.0, found -0.1"),
        ({"priority": {"keywords": {"x": True}}}, ("priority", "keywords", "x"), "found True"),
        ({"priority": {"rules": [{"add": 2}]}}, ("priority", "rules", 0, "add"), "found 2"),
        (3, (), "perception: expected a table, got a whole number, found 3"),
        ({1: 1}, (), "expected text"),
    ],
)
def test_settings_that_cannot_be_used_are_refused_with_key_value_and_what_is_allowed(
    given_settings: Any, path: tuple[str | int, ...], words: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        Pipeline(given_settings)

    assert refused.value.path == ("perception", *path)
    assert words in str(refused.value)


def test_importing_the_package_loads_no_part_of_it() -> None:
    code = "import sys, perception; print([n for n in sys.modules if n.startswith(('perception.', 'msgspec', 'spar'))])"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)

    assert done.stdout.strip() == "[]"


def test_a_name_that_the_package_does_not_have_is_an_attribute_error() -> None:
    import perception

    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = perception.Nothing
