"""Canonical JSON and the hash that binds a call."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spar.data.json_safe.canonical import canonical


@pytest.mark.parametrize(
    ("number", "text"),
    [
        # RFC 8785, appendix B
        (0.0, "0"), (-0.0, "0"), (5e-324, "5e-324"), (-5e-324, "-5e-324"),
        (1.7976931348623157e308, "1.7976931348623157e+308"),
        (9007199254740992.0, "9007199254740992"), (-9007199254740992.0, "-9007199254740992"),
        (295147905179352830000.0, "295147905179352830000"), (9.999999999999997e22, "9.999999999999997e+22"),
        (1e23, "1e+23"),
        (1.0000000000000001e23, "1.0000000000000001e+23"), (999999999999999700000.0, "999999999999999700000"),
        (999999999999999900000.0, "999999999999999900000"), (1e21, "1e+21"),
        (9.999999999999997e-7, "9.999999999999997e-7"),
        (0.000001, "0.000001"), (333333333.3333332, "333333333.3333332"), (333333333.33333325, "333333333.33333325"),
        (-0.0000033333333333333333, "-0.0000033333333333333333"), (1424953923781206.2, "1424953923781206.2"),
    ],
)  # fmt: skip
def test_numbers_are_written_as_rfc_8785_says(number: float, text: str) -> None:
    assert canonical(number).decode() == text


def test_keys_are_sorted_by_utf_16_units_as_rfc_8785_says() -> None:
    names = {"\u20ac": "Euro Sign", "\r": "Carriage Return", "\ufb33": "Hebrew Letter Dalet With Dagesh", "1": "One"}
    names |= {"\U0001f600": "Emoji: Grinning Face", "\x80": "Control", "\xf6": "Latin Small Letter O With Diaeresis"}

    assert list(json.loads(canonical(names)).values()) == [
        "Carriage Return", "One", "Control", "Latin Small Letter O With Diaeresis", "Euro Sign", "Emoji: Grinning Face",
        "Hebrew Letter Dalet With Dagesh",
    ]  # fmt: skip


def test_integers_stay_exact_and_lone_surrogates_what_they_are() -> None:
    assert canonical([2**53, 2**53 + 1]) == b"[9007199254740992,9007199254740993n]"
    assert canonical("\ud800") != canonical("\ud801")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1: 2}, {"a": {1, 2}}, object(), b"x"])
def test_what_json_has_no_word_for_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"exactly|keys are text"):
        canonical(value)


def test_what_is_nested_without_end_is_refused() -> None:
    value: list[Any] = []
    value.append(value)

    with pytest.raises(ValueError, match="nested more than"):
        canonical(value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(JSON, JSON)
def test_two_values_with_one_text_are_one_value(one: Any, other: Any) -> None:
    assert canonical(one) == canonical(json.loads(json.dumps(one)))
    if canonical(one) == canonical(other):
        assert one == other


def test_a_large_integer_is_not_taken_for_the_float_that_is_written_like_it() -> None:
    assert canonical(52004777913797550) != canonical(5.200477791379755e16)
