from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from perception.stages.fuse import EVIDENCE, SUBJECTS, FuseSettings, FuseWindow, fuse
from spar.types import Perception
from tests.effort import growth

NOON = datetime(2026, 1, 3, 12, 0, tzinfo=UTC)


def about(subject: str | None, content: Any, seconds: float = 0, priority: float = 0.5, **fields: Any) -> Perception:
    return Perception(content, subject=subject, at=NOON + timedelta(seconds=seconds), priority=priority, **fields)


def test_perceptions_of_one_subject_become_the_strongest_with_the_parts_as_evidence() -> None:
    parts = [
        about("nginx", "line", 2, 0.2),
        about("nginx", "alert", 1, 0.9, attributes={"why": ["alert starts at 0.9"], "level": "high"}),
        about("nginx", "load", 3, 0.6),
    ]

    sifted = fuse(FuseWindow(), FuseSettings(), parts)

    (whole,) = sifted.perceptions
    assert (whole.content, whole.priority, whole.id) == ("alert", 0.9, parts[1].id)
    assert [part.content for part in whole.evidence] == ["alert", "line", "load"]
    assert whole.attributes["count"] == 3
    assert whole.attributes["level"] == "high"
    assert whole.attributes["why"] == [
        "alert starts at 0.9",
        "3 perceptions of 'nginx' stand together; this is the strongest",
    ]
    assert {decision.id for decision in sifted.decisions} == {parts[0].id, parts[2].id}
    assert all(decision.into == whole.id and decision.stage == "fuse" for decision in sifted.decisions)


def test_of_equally_strong_parts_the_newest_speaks() -> None:
    whole = fuse(FuseWindow(), FuseSettings(), [about("a", "new", 5), about("a", "old", 1)]).perceptions[0]

    assert whole.content == "new"


def test_other_subjects_sessions_and_things_without_a_subject_stand_alone() -> None:
    batch = [about("a", 1), about("b", 2), about("a", 3, session="x"), about(None, 4), about(None, 5), about("", 6)]

    sifted = fuse(FuseWindow(), FuseSettings(), batch)

    assert sifted.perceptions == batch
    assert not sifted.decisions


def test_what_people_say_is_never_fused() -> None:
    batch = [about("ticket 7", "yes", kind="message"), about("ticket 7", "and no", kind="message")]

    assert fuse(FuseWindow(), FuseSettings(), batch).perceptions == batch


def test_parts_belong_together_only_within_the_window_counted_from_the_first() -> None:
    batch = [about("a", second, second) for second in (0, 40, 80, 130)]

    kept = fuse(FuseWindow(), FuseSettings(seconds=60), batch).perceptions

    assert [[part.content for part in whole.evidence] for whole in kept] == [[0, 40], [80, 130]]


def test_the_whole_stands_where_its_first_part_stood() -> None:
    batch = [about(None, "x"), about("a", 1), about(None, "y"), about("a", 2, 1, 0.9)]

    assert [p.content for p in fuse(FuseWindow(), FuseSettings(), batch).perceptions] == ["x", 2, "y"]


def test_the_whole_is_trusted_only_if_every_part_is() -> None:
    trusted, untrusted = about("a", 1, 0, 0.9, trust="trusted"), about("a", 2)

    assert fuse(FuseWindow(), FuseSettings(), [trusted, untrusted]).perceptions[0].trust == "untrusted"
    assert (
        fuse(FuseWindow(), FuseSettings(), [trusted, about("a", 3, trust="trusted")]).perceptions[0].trust == "trusted"
    )


def test_repetitions_of_the_parts_add_up() -> None:
    batch = [about("a", 1, attributes={"count": 399}), about("a", 2)]

    assert fuse(FuseWindow(), FuseSettings(), batch).perceptions[0].attributes["count"] == 400


def test_what_was_passed_on_earlier_still_counts_within_the_window_and_not_after_it() -> None:
    window, settings = FuseWindow(), FuseSettings(seconds=60)

    def count(second: float) -> Any:
        return fuse(window, settings, [about("a", second, second)]).perceptions[0].attributes.get("count")

    assert [count(0), count(20), count(40), count(61), count(70)] == [None, 2, 3, None, 2]


def test_parts_with_one_and_the_same_id_are_each_accounted_for() -> None:
    twin = about("a", 1)

    sifted = fuse(FuseWindow(), FuseSettings(), [twin, twin, twin])

    assert len(sifted.perceptions) + len(sifted.decisions) == 3


def test_evidence_and_remembered_subjects_are_bounded_and_the_strongest_are_kept() -> None:
    window = FuseWindow()
    batch = [about("a", i, priority=1 - i / 10_000) for i in range(EVIDENCE + 100)]
    (whole,) = fuse(window, FuseSettings(), batch).perceptions
    fuse(window, FuseSettings(), [about(f"s{i}", i) for i in range(SUBJECTS + 10)])

    assert len(whole.evidence) == EVIDENCE
    assert whole.evidence[-1].content == EVIDENCE - 1
    assert whole.attributes["count"] == EVIDENCE + 100
    assert len(window.counts) == SUBJECTS


def firing(status: str, second: float, priority: float, name: str = "HighLoad", **fields: Any) -> Perception:
    return about("h1", f"[{status}] {name} on h1", second, priority, kind="alert", source="prom", **fields)


def test_the_newest_state_of_one_thing_speaks_and_the_older_one_names_it() -> None:
    before, after = firing("FIRING", 1, 0.9), firing("RESOLVED", 2, 0.6)

    (whole,) = fuse(FuseWindow(), FuseSettings(), [after, before]).perceptions

    assert (whole.content, whole.id, whole.priority) == (after.content, after.id, 0.6)
    assert [part.attributes.get("superseded") for part in whole.evidence] == [after.id, None]
    assert whole.attributes["why"][-1] == "2 perceptions of 'h1' stand together; this is the newest state"


def test_data_that_differs_in_its_state_only_is_of_one_thing() -> None:
    common = {"labels": {"alertname": "Load"}, "startsAt": "2026-01-03T12:00:00Z"}
    before = about("fp1", {**common, "status": "firing", "value": 9.7}, 0, 0.9)
    after = about("fp1", {**common, "status": "resolved", "value": 0.1, "endsAt": "2026-01-03T12:05:00Z"}, 1, 0.3)

    (whole,) = fuse(FuseWindow(), FuseSettings(), [before, after]).perceptions

    assert whole.content == after.content
    assert whole.evidence[0].attributes["superseded"] == after.id


def test_the_newest_reading_speaks_and_ends_nothing_that_its_number_may_name() -> None:
    nine, one = about("h1", "load is 9", 0, 0.9), about("h1", "load is 1", 1, 0.3)

    (whole,) = fuse(FuseWindow(), FuseSettings(), [nine, one]).perceptions

    assert whole.content == "load is 1"
    assert not any("superseded" in part.attributes for part in whole.evidence)


def test_what_is_newer_of_the_whole_subject_speaks_but_ends_nothing_else() -> None:
    disk, back = firing("FIRING", 1, 0.9, "DiskFull"), about("h1", "h1 is up", 2, 0.4, kind="alert", source="prom")

    (whole,) = fuse(FuseWindow(), FuseSettings(), [disk, back]).perceptions

    assert (whole.content, whole.priority) == ("h1 is up", 0.9)
    assert not any("superseded" in part.attributes for part in whole.evidence)


def test_different_things_of_one_subject_and_lines_of_logs_end_one_another_never() -> None:
    disk, load = firing("FIRING", 1, 0.9, "DiskFull"), firing("RESOLVED", 2, 0.6)
    error, warning = (
        about("h1", f"{level} timeout", s, 0.5, kind=f"log.{level}") for s, level in ((3, "error"), (4, "warning"))
    )
    other = about("h1", "[RESOLVED] DiskFull on h1", 5, 0.1, kind="alert", source="another")

    (whole,) = fuse(FuseWindow(), FuseSettings(), [disk, load, error, warning, other]).perceptions

    assert whole.id == disk.id
    assert not any("superseded" in part.attributes for part in whole.evidence)


def test_fusing_many_parts_costs_in_proportion_to_their_number() -> None:
    def work(size: int) -> None:
        fuse(FuseWindow(), FuseSettings(seconds=1e6), [about("h1", f"alert number{i} of many", i) for i in range(size)])

    assert growth(work, 400) <= 2.2
