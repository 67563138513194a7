from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spar.checks import shorten
from spar.data.paths import (
    MISSING,
    BadReferenceError,
    ValueTooLargeError,
    escape,
    get,
    is_reference,
    marked,
    merge,
    nest,
    overlaps,
    parse,
    parse_read,
    parse_write,
    put,
    reaches,
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


def test_an_output_path_names_places_apart_where_one_value_goes_to_several() -> None:
    assert parse_write("†s.a && †s.b || †s").alternatives == ((("s", "a"), ("s", "b")), (("s",),))
    for text in ("†s && †s.a", "†s.a.b && †s.c && †s.a", "†s.a-x && †s.a.y && †s.a"):
        with pytest.raises(BadReferenceError, match="write to one place twice"):
            parse_write(text)


def test_a_single_path_is_told_from_an_expression_of_several() -> None:
    assert parse_read("†a.b").only == ("a", "b")
    assert parse_read("†a || †a").only == ("a",)
    assert parse_read("†a || †b").only is None
    assert str(parse_read("†a||†b&&†c.0")) == "†a || †b && †c.0"
    with pytest.raises(BadReferenceError, match="names several paths"):
        parse("†a || †b")


def test_what_is_checked_before_a_write_is_what_the_write_would_refuse() -> None:
    for root, path in (({"a": [1]}, ("a", "5")), ([[]], ("0", "x")), ({"a": [[1]]}, ("a", "0", "2", "x"))):
        with pytest.raises(ValueError, match="to an array of"):
            reaches(root, path)
        with pytest.raises(ValueError, match="to an array of"):
            put(root, path, 1)
    reaches({"a": [1]}, ("a", "1", "x", "y"))
    reaches(MISSING, ("a", "b"))


def test_a_reference_has_a_bounded_number_of_segments() -> None:
    with pytest.raises(BadReferenceError, match="64 are allowed"):
        parse("†a" + ".b" * 64)


def test_references_are_found_anywhere_inside_nested_values_but_not_inside_text() -> None:
    params = {"a": "†x.a", "b": [{"c": ["†x.c", "see †x.d"]}], "e": "††x", "f": 5}

    found = {name: tuple(map(str, each)) for name, each in references(params).items()}
    assert found == {"a": ("†x.a",), "b": ("†x.c",), "e": ()}


def test_resolving_replaces_references_unescapes_literals_and_copies_containers() -> None:
    params = {"a": "†x.a", "b": [{"c": "††x"}], "d": (1, 2)}

    found = resolve(params, lambda expression: {"found": expression.only})

    assert found == {"a": {"found": ("x", "a")}, "b": [{"c": "†x"}], "d": [1, 2]}
    assert found["b"] is not params["b"]


def test_a_value_nested_too_deeply_or_holding_itself_is_refused_without_recursion() -> None:
    deep: Any = "†x"
    for _ in range(100_000):
        deep = [deep]
    wide: list[Any] = []
    wide += [wide, wide]

    for value in (deep, wide):
        with pytest.raises(ValueTooLargeError):
            references({"a": value})


def test_get_tells_absent_from_null_and_indexes_arrays_by_digits_only() -> None:
    value = {"a": [{"b": None}], "0": "zero"}

    assert get(value, ("a", "0", "b")) is None
    assert get(value, ("0",)) == "zero"
    for path in (("a", "1"), ("a", "-1"), ("a", "+0"), ("a", "x"), ("a", "0", "b", "c"), ("a", "٠"), ("a", "9" * 5000)):
        assert get(value, path) is MISSING


def test_put_makes_objects_on_the_way_and_replaces_scalars_that_stand_in_it() -> None:
    assert put({"a": 5, "keep": 1}, ("a", "b", "0"), "x") == {"a": {"b": {"0": "x"}}, "keep": 1}


def test_put_writes_into_an_array_that_is_there_and_appends_to_its_end() -> None:
    assert put({"a": [1, 2]}, ("a", "0"), 9) == {"a": [9, 2]}
    assert put({"a": [1]}, ("a", "1", "b"), 9) == {"a": [1, {"b": 9}]}
    for segment in ("3", "x", "-1"):
        with pytest.raises(ValueError, match="array of 1"):
            put({"a": [1]}, ("a", segment), 9)


def test_objects_merge_recursively_and_everything_else_is_replaced() -> None:
    assert merge({"a": {"b": 1, "c": [1]}, "d": 1}, {"a": {"c": [2]}, "d": {"e": 1}}) == {
        "a": {"b": 1, "c": [2]},
        "d": {"e": 1},
    }


def test_paths_overlap_when_one_leads_to_the_other() -> None:
    assert overlaps(("s", "a"), ("s", "a", "b"))
    assert overlaps(("s", "a", "b"), ("s",))
    assert not overlaps(("s", "a"), ("s", "b"))


def test_a_write_is_told_as_nested_objects() -> None:
    assert nest(("a", "0"), 5) == {"a": {"0": 5}}
    assert nest((), 5) == 5


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
