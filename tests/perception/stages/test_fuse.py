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


def test_the_whole_is_trusted_only_if_every_part_is_and_what_people_say_is_never_fused() -> None:
    first = about("a", 1, 0, 0.9, trust="trusted")

    for trust in ("trusted", "untrusted"):
        (whole,) = fuse(FuseWindow(), FuseSettings(), [first, about("a", 2, trust=trust)]).perceptions
        assert whole.trust == trust
    said = [about("ticket 7", text, kind="message") for text in ("yes", "and no")]
    assert fuse(FuseWindow(), FuseSettings(), said).perceptions == said


def test_what_was_passed_on_earlier_still_counts_within_the_window_and_not_after_it() -> None:
    window, settings = FuseWindow(), FuseSettings(seconds=60)

    def count(second: float) -> Any:
        return fuse(window, settings, [about("a", second, second)]).perceptions[0].attributes.get("count")

    assert [count(0), count(20), count(40), count(61), count(70)] == [None, 2, 3, None, 2]


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
