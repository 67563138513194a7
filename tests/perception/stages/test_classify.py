from __future__ import annotations

from typing import Any

import pytest

from perception.pipeline import read_settings
from perception.stages.classify import TEXT_LIMIT, ClassifySettings, classify, text_of
from spar.data.patterns import Glob
from spar.types import Perception


def settings(*rules: dict[str, Any]) -> ClassifySettings:
    return read_settings({"classify": {"rules": list(rules)}}).classify


def kind_of(content: Any, *rules: dict[str, Any], **fields: Any) -> str:
    return classify(settings(*rules), [Perception(content, **fields)]).perceptions[0].kind


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        ("[FIRING] HighLoad on alpha", "alert"),
        ({"status": "resolved", "alerts": []}, "alert"),
        ("2026-01-03 10:00:01,123 ERROR worker: no answer", "log.error"),
        ("Traceback (most recent call last):\n  File", "log.error"),
        ("Jan  3 10:00:01 alpha WARNING slow", "log.warning"),
        ("2026-01-03T10:00:01Z INFO: started", "log.line"),
        (" https://example.com/a?b=c ", "link"),
        ("what does this error mean?", ""),
        ("the disk is full", ""),
        ("", ""),
    ],
)
def test_a_kind_is_found_where_the_form_leaves_no_doubt(content: Any, kind: str) -> None:
    assert kind_of(content) == kind


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("2026-01-03 10:00:01,123 ERROR worker: no answer", "log.error"),
        ("Jan  3 10:00:01 alpha WARNING slow", "log.warning"),
        ("2026-01-03T10:00:01Z INFO: started", "log.line"),
        ("[FIRING] HighLoad on alpha", "log"),
        ("https://example.com", "log"),
        ("GET / 200", "log"),
    ],
)
def test_a_line_of_a_log_is_told_by_its_level_and_is_nothing_else(text: str, kind: str) -> None:
    assert kind_of(text, kind="log") == kind


def test_rules_of_the_configuration_go_before_the_built_in_ones_and_the_first_that_fits_decides() -> None:
    rules = ({"kind": "page", "source": "pager"}, {"kind": "late", "pattern": "FIRING"})

    assert kind_of("[FIRING] x", *rules, source="pager") == "page"
    assert kind_of("[FIRING] x", *rules, source="mail") == "late"
    assert kind_of("RESOLVED", *rules, source="mail") == "alert"


def test_a_source_is_a_shell_pattern_or_a_list_of_them_and_a_rule_without_a_condition_catches_the_rest() -> None:
    rules = ({"kind": "log", "source": ["syslog.*", "journal"]}, {"kind": "other"})
    kinds = {source: kind_of("x", *rules, source=source) for source in ("syslog.auth", "journal", "journald")}

    assert kinds == {"syslog.auth": "log", "journal": "log", "journald": "other"}


def test_a_glob_of_nothing_fits_nothing_and_an_empty_one_fits_what_is_empty() -> None:
    assert not Glob().fits("")
    assert Glob("").fits("")
    assert not Glob("").fits("x")
    assert Glob("[ab]?").fits("ax")


def test_patterns_see_only_the_beginning_of_a_long_text() -> None:
    needle = {"kind": "found", "pattern": "needle"}

    assert kind_of("x" * (TEXT_LIMIT - 6) + "needle", needle) == "found"
    assert kind_of("x" * TEXT_LIMIT + "needle", needle) == ""


class Unreadable:
    def __str__(self) -> str:
        raise RuntimeError("no")

    __repr__ = __str__


def test_content_that_is_no_json_is_read_as_far_as_it_can_be() -> None:
    circular: list[Any] = []
    circular.append(circular)

    assert text_of(Perception({"a": Unreadable()})).startswith("{'a': <Unreadable instance")
    assert text_of(Perception(circular)) == "[[[[[...]]]]]"
    assert text_of(Perception({(1, 2): 3})) == "{(1, 2): 3}"
