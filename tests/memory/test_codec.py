"""Any value becomes ASCII JSON, bounded, and reads back as what it was where JSON can say it."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory import codec
from memory.codec import MAX_BYTES, MAX_DEPTH, decode, encode, safe
from spar.types import Call, CallResult, Experience, Fault, Perception
from tests.forced import forced

SURROGATE = "\ud800"


class Stranger:
    def __repr__(self) -> str:
        raise RuntimeError("cannot be shown")


def nested(depth: int) -> Any:
    value: Any = "deep"
    for _ in range(depth):
        value = {"a": value}
    return value


CIRCLE: dict[str, Any] = {"name": "circle"}
CIRCLE["self"] = CIRCLE

STRANGE = {
    "surrogate": SURROGATE,
    "surrogate in a key": {SURROGATE: 1},
    "control characters": "\0\x01\x1b\x7f\u2028",
    "braces": "}{ {x} %s",
    "keys of all kinds": {1: "a", None: "b", (1, 2): "c", 1.5: "d"},
    "nan": [math.nan, math.inf, -math.inf],
    "bytes": b"\xff\x00",
    "set": {1},
    "time": datetime(2026, 1, 2, tzinfo=UTC),
    "stranger": Stranger(),
    "error": ValueError("x"),
    "large integer": 10**5000,
    "circle": CIRCLE,
    "deep": nested(5000),
    "ten megabytes": "†" * 10_000_000,
    "many": list(range(1_000_000)),
    "text of a class of its own": type("Text", (str,), {})("x"),
}


@pytest.mark.parametrize("name", STRANGE)
def test_whatever_comes_is_written_as_ascii_json_of_bounded_size(name: str) -> None:
    text = encode({"value": STRANGE[name]})

    assert text.isascii()
    assert len(text) < 8 * MAX_BYTES
    json.loads(text)


@pytest.mark.parametrize("name", STRANGE)
def test_a_struct_with_whatever_in_it_reads_back_as_that_struct(name: str) -> None:
    perception = Perception(STRANGE[name], attributes={"x": STRANGE[name]})

    back = decode(encode(perception), Perception)

    assert back.id == perception.id
    assert back.at == perception.at


def test_text_reads_back_equal_lone_surrogates_included() -> None:
    fault = Fault("error", f"a{SURROGATE}b\0†{{}}")

    assert decode(encode(fault), Fault) == fault


def test_nan_and_infinity_are_null_and_a_number_field_reads_null_as_nan() -> None:
    text = encode(CallResult(Call("x"), "ok", duration=math.nan))
    back = decode(text, CallResult)

    assert "NaN" not in text
    assert math.isnan(back.duration)
    assert decode(encode([math.nan]), list[Any]) == [None]


def test_a_row_of_a_version_that_bounded_no_numbers_reads_within_the_bounds_of_today() -> None:
    evidence = (forced(Perception("y"), confidence=math.inf), forced(Perception("z"), confidence=-1.0))
    back = decode(encode(forced(Perception("x"), priority=5.0, evidence=evidence)), Perception)

    assert (back.priority, [each.confidence for each in back.evidence]) == (1.0, [1.0, 0.0])


def test_what_is_too_large_is_cut_and_marked_and_the_rest_is_kept() -> None:
    plain = json.loads(encode(Perception("x" * 2_000_000, kind="log", attributes={"why": "short"})))

    assert plain["truncated"] is True
    assert plain["content"].endswith("truncated, 2000000 characters")
    assert plain["kind"] == "log"
    assert plain["attributes"] == {"why": "short"}


def test_what_is_too_deep_is_cut_and_marked() -> None:
    text = encode(nested(MAX_DEPTH + 20))

    assert "truncated" in text
    assert text.count("{") <= MAX_DEPTH + 1


def test_brackets_in_a_text_are_not_depth() -> None:
    value = {"text": "[" * 1000, "more": "{" * 1000}

    assert decode(encode(value), dict[str, Any]) == value


@pytest.mark.parametrize("value", [Stranger(), "x" * (MAX_BYTES + 1), nested(MAX_DEPTH + 5), CIRCLE])
def test_what_must_be_kept_exactly_is_refused_when_it_cannot_be(value: Any) -> None:
    with pytest.raises(ValueError, match="kept"):
        encode({"value": value}, exact=True)


def test_what_must_be_kept_exactly_is_walked_through_once_however_large_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    walks, begin = list[int](), codec.BoundedWalk.__init__

    def counted(self: Any, unknown: Any, max_text: int, limit: int) -> None:
        walks.append(max_text)
        begin(self, unknown, max_text, limit)

    monkeypatch.setattr(codec.BoundedWalk, "__init__", counted)
    with pytest.raises(ValueError, match="kept"):
        encode(["value"] * MAX_BYTES, exact=True)
    assert walks == [MAX_BYTES]


@settings(max_examples=40)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
    )
)
def test_json_reads_back_equal(value: Any) -> None:
    assert decode(encode(value, exact=True), object) == value


@given(st.text(alphabet=st.characters(exclude_categories=())))
def test_text_for_a_column_can_always_be_bound(text: str) -> None:
    kept = safe(text)

    kept.encode()
    assert "\0" not in kept
    assert kept == text or any(character == "\0" or 0xD800 <= ord(character) <= 0xDFFF for character in text)


def test_an_experience_with_a_wrong_field_is_refused_with_its_place() -> None:
    with pytest.raises(ValueError, match=r"situation"):
        decode('{"situation": 5}', Experience)
