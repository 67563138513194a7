from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spar.checks import shorten
from spar.data.paths import (
    BadReferenceError,
    ValueTooLargeError,
    escape,
    is_reference,
    marked,
    parse,
    parse_read,
    references,
    render,
    resolve,
)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("†state", ("state",)),
        ("†state.a.b.0", ("state", "a", "b", "0")),
        ("†input.naïve-key", ("input", "naïve-key")),
        ("†my_kind.x", ("my_kind", "x")),
    ],
)
def test_a_reference_is_its_kind_and_what_leads_into_it(text: str, path: tuple[str, ...]) -> None:
    assert parse(text) == path
    assert render(path) == text


@pytest.mark.parametrize(
    "text", ["†", "†.a", "†a..b", "†a.", "† a", "†a b", "†a.b c", "†1a", "†a.†b", "state.a", "†a\n"]
)
def test_what_begins_with_the_sign_and_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(BadReferenceError, match="not a reference"):
        parse(text)


@pytest.mark.parametrize(
    ("text", "alternatives"),
    [
        ("†a.x", ((("a", "x"),),)),
        ("†a || †b", ((("a",),), (("b",),))),
        ("†a.x&&†a.y", ((("a", "x"), ("a", "y")),)),
        ("†a||†b  &&\t†c || †d", ((("a",),), (("b",), ("c",)), (("d",),))),
        ("†a && †b && †a || †b && †a || †a", ((("b",), ("a",)), (("a",),))),
    ],
)
def test_alternatives_are_parted_by_the_looser_sign_and_what_belongs_together_by_the_tighter(
    text: str, alternatives: Any
) -> None:
    assert parse_read(text).alternatives == alternatives


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("†a || b", "'b' in '†a || b' does not begin with †"),
        ("†a && state.b", "'state.b' in .* does not begin with †"),
        ("†a ||", "names nothing beside one of its signs"),
        ("†a &&& †b", "'& †b' in .* does not begin"),
        ("†a || && †b", "names nothing beside"),
        ("†a | †b", "is not a reference"),
        ("†a || (†b)", "does not begin with †"),
        ("†a || ††b", "'††b' in .* is not a path"),
        ("†a || †b\n", "is not a reference"),
        ("†a || †a.\ud800", "lone surrogate"),
        ("||".join(["†a"] * 257), "more paths than the 256"),
        ("†a ||" + " " * 1_000_000 + "|", "names nothing|does not begin"),
    ],
)
def test_what_cannot_be_read_as_an_expression_is_refused_and_told(text: str, what: str) -> None:
    with pytest.raises(BadReferenceError, match=what):
        parse_read(text)


def test_a_reference_has_a_bounded_number_of_segments() -> None:
    with pytest.raises(BadReferenceError, match="64 are allowed"):
        parse("†a" + ".b" * 64)


def test_a_value_nested_too_deeply_or_holding_itself_is_refused_without_recursion() -> None:
    deep: Any = "†x"
    for _ in range(100_000):
        deep = [deep]
    wide: list[Any] = []
    wide += [wide, wide]

    for value in (deep, wide):
        with pytest.raises(ValueTooLargeError):
            references({"a": value})


def test_texts_that_were_data_are_escaped_before_they_could_become_references() -> None:
    shown = {"a": "†state.secret", "b": ["†x"]}

    handed_back = escape({"a": "†state.secret", "c": "†state.new"}, frozenset(marked(shown)))

    assert handed_back == {"a": "††state.secret", "c": "†state.new"}


@given(st.text() | st.text("†a. "))
def test_escaped_text_is_never_a_reference_and_loses_nothing(text: str) -> None:
    escaped = escape(text)

    assert not is_reference(escaped)
    assert resolve(escaped, lambda expression: None) == text


def test_a_value_is_shown_short_whatever_it_is() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]

    assert len(shorten("x" * 10_000_000)) < 100
    assert shorten(deep) == "[[[[[...]]]]]"
