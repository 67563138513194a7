"""Ten thousand lines of one kind are one perception; one of a kind never seen is noticed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from perception import Pipeline
from perception.stages.templates.collapse import TemplateSettings, collapse
from perception.stages.templates.tree import TemplateTree
from spar.types import Perception, replace
from tests.effort import growth, hang_guard

NOON = datetime(2026, 1, 3, 12, 0, tzinfo=UTC)


def nobody(rows: Any) -> None:
    """Keep no rows."""


def line(text: str, seconds: float = 0.0, **given: Any) -> Perception:
    return Perception(text, source="log", at=NOON + timedelta(seconds=seconds), **{"kind": "log.line", **given})


def lines_of(batch: list[Perception], pipeline: Pipeline | None = None) -> list[Perception]:
    return (pipeline or Pipeline()).process(batch)


def test_ten_thousand_lines_of_one_kind_are_one_perception_with_count_rate_and_three_examples() -> None:
    batch = [line(f"accepted connection {i} from 10.0.{i % 200}.7 after {i % 90}ms", i / 100) for i in range(10_000)]

    (one,) = lines_of(batch)

    assert one.content == batch[0].content
    assert one.attributes["template"] == "accepted connection <number> from <address> after <duration>"
    assert one.attributes["count"] == 10_000
    assert one.attributes["rate"] == pytest.approx(100, rel=0.01)
    assert one.attributes["examples"] == [perception.content for perception in batch[:3]]


def test_one_strange_line_among_ten_thousand_is_noticed_as_never_seen() -> None:
    pipeline = Pipeline()
    lines_of([line(f"request {i} served") for i in range(100)], pipeline)

    batch = [line(f"request {i} served", 70) for i in range(5_000)]
    batch.insert(2_500, line("EXT4-fs error: remounting filesystem read-only", 70))
    kept = {perception.content: perception for perception in lines_of(batch, pipeline)}

    assert len(kept) == 2
    assert kept["EXT4-fs error: remounting filesystem read-only"].attributes["novelty"] == "template"
    assert "novelty" not in kept["request 0 served"].attributes


def test_a_template_that_goes_on_is_told_again_after_the_time_with_what_came_since() -> None:
    pipeline = Pipeline()
    assert len(lines_of([line("job 1 done")], pipeline)) == 1
    assert lines_of([line(f"job {i} done", i) for i in range(2, 60)], pipeline) == []

    (again,) = lines_of([line("job 99 done", 61)], pipeline)

    assert again.attributes["count"] == 59
    assert pipeline.counts["templates"]["dropped"] == 58
    assert pipeline.counts["templates"]["new"] == 1
    assert pipeline.dropped[-1].reason.startswith("a line of template 1, told as ")


def test_a_word_that_has_taken_several_values_varies_and_a_telling_one_never_does() -> None:
    users = ["alice", "bob", "carol", "dave", "erin"]
    batch = [line(f"session {state} for user {user}") for user in users for state in ("opened", "closed")]

    kept = lines_of(batch)

    assert sorted(perception.attributes["template"] for perception in kept) == [
        "session closed for user <*>",
        "session opened for user <*>",
    ]
    assert [perception.attributes["count"] for perception in kept] == [5, 5]


@pytest.mark.parametrize(
    "perception",
    [
        Perception("backup 1 finished", kind="mail"),
        Perception("backup 1 finished", kind="message"),
        Perception("backup 1 finished"),
        Perception('{"backup": 1}', kind="log.line"),
        Perception('["backup", 1]', kind="log.line"),
        Perception({"backup": 1}, kind="log.line"),
        Perception("backup 1 finished", kind="log.line", attributes={"lines": "each"}),
    ],
    ids=lambda perception: f"{perception.kind} {str(perception.content)[:9]}",
)
def test_prose_data_and_messages_go_other_ways(perception: Perception) -> None:
    result = collapse(TemplateTree(TemplateSettings().most), TemplateSettings(), [perception])

    assert result.perceptions == [perception]
    assert result.touched == 0


def test_a_sensor_may_ask_for_templates_and_a_kind_may_be_named_in_the_settings() -> None:
    asked = [Perception(f"tick {i}", attributes={"lines": "templates"}) for i in range(9)]
    named = [Perception(f"tick {i}", kind="syslog") for i in range(9)]

    assert len(lines_of(asked)) == 1
    assert len(lines_of(named, Pipeline({"templates": {"kinds": ["syslog"]}}))) == 1


def test_lines_of_other_sessions_sources_subjects_and_trust_never_meet() -> None:
    others: list[dict[str, Any]] = [{"session": "b"}, {"subject": "db"}, {"trust": "trusted"}, {"kind": "log.error"}]
    batch = [line("job 1 done"), *(line("job 2 done", **other) for other in others)]

    assert len(lines_of(batch, Pipeline({"fuse": {"enabled": False}}))) == 5


def test_what_was_learnt_survives_a_restart() -> None:
    before, after = Pipeline(), Pipeline()
    rows: dict[str, Any] = {}
    before.restore({}, rows.update)
    lines_of([line(f"user {name} logged in") for name in ("ann", "ben", "cid", "dan")], before)
    lines_of([line("job 1 done"), line("job 2 done", 1)], before)
    stored = {key: row for key, row in rows.items() if row is not None}
    rows.clear()
    before.settle()
    assert rows == {}

    after.restore(stored, nobody)

    assert lines_of([line("user eve logged in", 5), line("job 3 done", 5)], after) == []
    told = {
        perception.attributes["template_id"]: perception for perception in lines_of([line("job 4 done", 70)], after)
    }
    assert [perception.attributes["count"] for perception in told.values()] == [2]
    assert all("novelty" not in perception.attributes for perception in told.values())


def test_a_row_that_cannot_be_read_is_left_out() -> None:
    pipeline = Pipeline()

    pipeline.restore({"template/1": "nonsense", "template/x": [], "template/2": [["a"], ["b"], [1, 2], "", ""]}, nobody)

    assert len(lines_of([line("job 1 done")], pipeline)) == 1


def test_the_number_of_templates_is_bounded_and_what_is_forgotten_is_counted() -> None:
    window, settings = TemplateTree(10), TemplateSettings(most=10)
    words = [f"{chr(97 + i % 26)}{chr(97 + i // 26)}" for i in range(200)]

    result = collapse(window, settings, [line(f"{word} {word} {word} {word}") for word in words])

    assert len(window.templates) == 10
    assert result.notes["forgotten"] == 190
    assert len(window._of_line) <= 80
    assert len(result.perceptions) == 200  # each was new, none disappears for want of room


def test_a_template_in_use_is_not_the_one_that_is_forgotten() -> None:
    window, settings = TemplateTree(3), TemplateSettings(most=3, seconds=0)
    for i in range(20):
        collapse(window, settings, [line("steady as she goes", i), line(f"{chr(97 + i)} odd one out", i)])

    assert any(template.words[0] == "steady" for template in window.templates.values())


def test_a_flood_of_one_source_forgets_no_template_of_another() -> None:
    window, settings = TemplateTree(20), TemplateSettings(most=20, seconds=0)
    known = [line(f"{word} as she goes", i) for i, word in enumerate(("steady", "slow", "fast"))]
    collapse(window, settings, known)
    words = [f"{chr(97 + i % 26)}{chr(97 + i // 26 % 26)}{chr(97 + i // 676)}" for i in range(2_000)]
    collapse(window, settings, [replace(line(f"{word} {word} {word} {word}"), source="web") for word in words])

    again = collapse(window, settings, known)
    assert again.notes["new"] == 0
    assert [each.attributes["template_id"] for each in again.perceptions] == [1, 2, 3]


def test_each_minute_of_a_template_that_has_ended_is_a_reading_and_silence_is_one_too() -> None:
    window, settings = TemplateTree(TemplateSettings().most), TemplateSettings()
    batch = [line(f"job {i} done", i) for i in range(60)] + [line("job 99 done", 300)]

    result = collapse(window, settings, batch)

    assert [reading.attributes["value"] for reading in result.added] == [60, 0]
    assert all(reading.attributes["reading"] for reading in result.added)
    assert result.added[0].at == NOON + timedelta(seconds=60)


def test_clocks_that_jump_neither_lose_a_line_nor_break_the_count() -> None:
    pipeline = Pipeline()
    times = [0, 86_400, -86_400, 1, 10**9, 2, -(10**9)]
    kept = [perception for at in times for perception in lines_of([line("job 1 done", at)], pipeline)]

    counted = sum(perception.attributes.get("count", 1) for perception in kept)
    assert counted == len(times)


@pytest.mark.parametrize(
    "text",
    ["", " ", "\x00", "\ud800 lone 1", "a" * 100_000, " ".join("word" for _ in range(50_000)), "[" * 9, "0" * 5_000],
    ids=lambda text: text[:6].encode("ascii", "backslashreplace").decode(),
)
def test_no_line_makes_it_raise_or_hang(text: str) -> None:
    pipeline = Pipeline()
    rows: dict[str, Any] = {}
    pipeline.restore({}, rows.update)
    with hang_guard(30):
        assert len(lines_of([line(text), line(text, 1)], pipeline)) == 1
        assert all(str(row).encode() for row in rows.values())


def test_new_lines_cost_as_much_as_they_are_many() -> None:
    def run(size: int) -> None:
        window, settings = TemplateTree(TemplateSettings().most), TemplateSettings()
        batch = [line(f"{i % 7} of {chr(97 + i % 26)} {hash(str(i))} is {'x' * (i % 50)} at {i}") for i in range(size)]
        collapse(window, settings, batch)

    assert growth(run, 500) < 3
