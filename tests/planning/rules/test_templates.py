from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planning.rules.templates import AbsentError, Facts, compile_value, fill, parse, render
from spar.types import Perception

ANY_TEXT = st.text(st.characters(exclude_categories=()))


def facts(content: Any = "hello", **fields: Any) -> Facts:
    slots = fields.pop("slots", {})
    return Facts(Perception(content, **fields), slots=slots, goal=None, now=datetime(2026, 1, 2, tzinfo=UTC))


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("I filed {content:.3}!", "I filed hel!"),
        ("{{{kind}}} {{}}", "{file.new} {}"),
        ("{slots.unit|none}", "none"),
        ("{slots.unit|see http://a:80}", "see http://a:80"),
        ("{slots.unit|abcdef:.3}", "abc"),
        ("{attributes.host.load}", "0.5"),
        ("{attributes.flag} {attributes.list.1} {attributes.host}", 'true b {"load": 0.5}'),
        ("{attributes.a.dotted}", "key"),
        ("{intent|nothing}", "nothing"),
        ("{now}", "2026-01-02T00:00:00+00:00"),
        ("{subject|}", ""),
    ],
)
def test_a_template_reads_as_written(template: str, text: str) -> None:
    attributes = {"host": {"load": 0.5}, "flag": True, "list": ["a", "b"], "a.dotted": "key"}

    assert render(parse(template), facts(kind="file.new", attributes=attributes)) == text


@pytest.mark.parametrize(
    "template",
    [
        "{",
        "}",
        "a { b",
        "{}",
        "{foo}",
        "{content!r}",
        "{content:>10}",
        "{at.year}",
        "{run.id}",
        "{run}",
        "{a b}",
        "{0}",
    ],
)
def test_a_template_that_cannot_be_read_is_refused(template: str) -> None:
    with pytest.raises(ValueError, match=r"\{|\}"):
        parse(template)


def test_a_lone_placeholder_keeps_the_type_and_does_not_share_the_value() -> None:
    content = {"labels": ["x"], "n": 3}
    made = fill(compile_value({"all": "{content}", "n": "{content.n}", "cut": "{content.n:.5}", "deep": [["{count}"]]}),
                facts(content))  # fmt: skip

    assert made == {"all": content, "n": 3, "cut": "3", "deep": [[1]]}
    assert made["all"]["labels"] is not content["labels"]


def test_an_absent_value_without_default_is_an_error_that_names_it() -> None:
    with pytest.raises(AbsentError, match=r"\{attributes.level\}"):
        fill(compile_value("{attributes.level}"), facts())


def test_foreign_text_never_becomes_a_reference() -> None:
    made = fill(
        compile_value(
            {"lone": "{content}", "text": "{content} there", "nested": "{attributes}", "gap": "{subject|}†x"}
        ),
        facts("†state.secret", attributes={"a": ["†state.secret", "plain"]}),
    )

    assert made == {
        "lone": "††state.secret",
        "text": "††state.secret there",
        "nested": {"a": ["††state.secret", "plain"]},
        "gap": "††x",
    }


def test_a_reference_and_an_escaped_dagger_pass_untouched() -> None:
    assert fill(compile_value("†state.kept || †input.x"), facts()) == "†state.kept || †input.x"
    assert fill(compile_value("††{content}"), facts()) == "††hello"
    assert fill(compile_value("††plain"), facts()) == "††plain"


def test_python_attributes_cannot_be_reached() -> None:
    with pytest.raises(AbsentError):
        fill(compile_value("{content.__class__}"), facts())


@given(ANY_TEXT)
def test_any_text_passes_through_a_placeholder_unless_it_looks_like_a_reference(text: str) -> None:
    wanted = f"†{text}" if text.startswith("†") else text

    assert fill(compile_value("{content}"), facts(text)) == wanted
    assert fill(compile_value("<{content}>"), facts(text)) == f"<{text}>"


@given(ANY_TEXT)
def test_any_text_is_a_template_or_a_clear_error(text: str) -> None:
    with contextlib.suppress(ValueError):
        template = parse(text)
        assert template.placeholders or render(template, facts()) == text.replace("{{", "{").replace("}}", "}")
