"""What `plain` promises of any value: JSON, bounded, a copy; and that its short way is the long one, faster."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spar.data.json_safe import NotJsonError, copied, plain, shortened, whole
from spar.data.json_safe.copier import Copier, ShowingCopier
from spar.data.json_safe.copies import _shortened, shown
from spar.data.json_safe.slices import Copying, copied_in_slices, weigh, whole_in_slices
from spar.data.paths import MAX_DEPTH, ValueTooLargeError
from spar.decoding import encode

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.text(min_size=250, max_size=300)
ODD = SCALARS | st.binary() | st.complex_numbers() | st.datetimes() | st.decimals() | st.frozensets(st.integers())
KEYS = st.text() | st.integers() | st.none() | st.tuples(st.integers())


def values(leaves: st.SearchStrategy[Any], keys: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=6) | st.tuples(inner, inner) | st.dictionaries(keys, inner, max_size=6),
        max_leaves=30,
    )


@given(values(ODD, KEYS), st.sampled_from([1, 50, 1000, 1 << 20]))
def test_whatever_comes_out_can_be_encoded_is_bounded_and_stays_as_it_is(value: Any, cap: int) -> None:
    encoded = json.dumps(plain(value, cap), allow_nan=False, ensure_ascii=False).encode()
    assert len(encoded) <= 3 * cap + 1000

    once = plain(value)
    assert plain(once) == once
    assert typed(copied(once)) == typed(once)


@given(values(SCALARS, st.text()), st.integers(1, 40))
def test_the_short_way_and_a_copy_in_slices_give_what_the_long_way_gives(value: Any, size: int) -> None:
    long = Copier(1 << 20, 1 << 20, 1 << 20, MAX_DEPTH).copy(value, 0)
    short = plain(value)

    assert typed(short) == typed(long)
    assert typed(counted(copied_in_slices(short, size))[0]) == typed(short)


@given(st.dictionaries(st.text(), st.lists(st.integers(), min_size=1), min_size=1))
def test_a_copy_shares_no_container_with_what_was_copied(value: dict[str, list[int]]) -> None:
    before = {key: list(items) for key, items in value.items()}

    for made in (plain(value), copied(value)):
        made["new"] = []
        for each in made.values():
            each.append(0)

    assert value == before


@given(st.integers(1, 400))
def test_no_depth_survives_that_an_encoder_could_not_bear(depth: int) -> None:
    value: Any = 1
    for _ in range(depth):
        value = [value]

    found, levels = plain(value), 0
    while isinstance(found, list):
        found, levels = found[0], levels + 1

    assert levels == min(depth, MAX_DEPTH + 1)


@given(st.integers(4300, 20_000), st.booleans())
def test_an_integer_that_cannot_be_printed_is_named_instead(digits: int, is_within: bool) -> None:
    found = plain([10**digits] if is_within else 10**digits)

    assert "an integer of" in json.dumps(found, ensure_ascii=False)


@given(values(ODD, KEYS), st.sampled_from([50, 1000, 1 << 20]), st.integers(1, 40))
def test_a_whole_copy_leaves_nothing_out_or_is_refused_in_slices_too(value: Any, limit: int, size: int) -> None:
    copies = []
    for copy in (lambda: whole(value, limit), lambda: in_slices(value, limit, size)[0]):
        with suppress(ValueTooLargeError, NotJsonError):
            copies.append(copy())

    assert len(copies) != 1 or limit < 1 << 20
    for found in copies:
        assert typed(found) == typed(plain(value, 1 << 40))
        assert shortened(value, 1 << 40)[1] is False
        assert len(json.dumps(found, ensure_ascii=False).encode()) <= 3 * limit + 100


@pytest.mark.parametrize("depth", [1, *range(MAX_DEPTH - 3, MAX_DEPTH + 3), 2 * MAX_DEPTH])
def test_a_copy_in_slices_is_refused_at_the_depth_at_which_a_whole_copy_is(depth: int) -> None:
    value: Any = [1, 1]
    for _ in range(depth):
        value = [1, value]

    copies = []
    for copy in (lambda: whole(value, 1 << 20), lambda: in_slices(value, 1 << 20, 2)[0]):
        with suppress(ValueTooLargeError):
            copies.append(copy())

    assert copies == ([value, value] if depth <= MAX_DEPTH else [])


def test_a_value_that_holds_another_many_times_is_refused_or_copied_in_slices_as_it_is_whole() -> None:
    many: list[Any] = []
    for _ in range(60):
        many = [many, many]
    rows = [{"number": number} for number in range(100)]

    slices: list[None] = []
    with pytest.raises(ValueTooLargeError, match="again and again"):
        slices.extend(whole_in_slices(many, 16 << 20))
    assert len(slices) < 200  # thousands without a count
    for shared in ([rows] * 40, {str(number): [rows, rows] for number in range(50)}):
        assert in_slices(shared, 1 << 20, 64)[0] == whole(shared, 1 << 20)


def test_a_value_that_contains_itself_is_refused_in_slices_too() -> None:
    value: list[Any] = [1, 2]
    value += [value, value]

    with pytest.raises(ValueTooLargeError):
        in_slices(value, 1 << 20, 2)


@pytest.mark.parametrize(
    "value",
    [["x"] * 10_000, [{"a": number} for number in range(5_000)], {"rows": {str(n): [n] * 9 for n in range(999)}}],
)
def test_each_slice_of_a_copy_has_no_more_than_its_size(value: Any) -> None:
    for copying in (whole_in_slices(value, 1 << 20, 100), copied_in_slices(value, 100)):
        slices = counted(copying)[1]

        assert slices >= weigh(value, 1 << 20) / 100
        assert slices <= weigh(value, 1 << 20) / 10


def in_slices(value: Any, limit: int, size: int) -> tuple[Any, int]:
    """The copy in slices of such a weight, and the number of slices."""
    return counted(whole_in_slices(value, limit, size))


def counted(copying: Copying) -> tuple[Any, int]:
    """The copy, and the number of its slices."""
    slices = 0
    while True:
        try:
            next(copying)
        except StopIteration as stop:
            return stop.value, slices
        slices += 1


@given(st.lists(st.text(), min_size=1), st.integers(1, 40))
def test_what_is_larger_than_its_limit_is_shown_short_and_says_so(items: list[str], limit: int) -> None:
    value = {"items": items * 50}

    found, is_cut = shortened(value, limit)

    assert is_cut
    assert found != value
    with pytest.raises(ValueTooLargeError):
        whole(value, limit)


def typed(value: Any) -> Any:
    """The value with the types told apart that compare as equal."""
    if isinstance(value, dict):
        return {key: typed(item) for key, item in value.items()}
    return [typed(item) for item in value] if isinstance(value, list) else (type(value).__name__, repr(value))


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"number": 2, "name": "a", "is_so": True, "none": None},
        {"url": "data:image/png;base64," + "A" * 100},
        {"type": "image", "mimeType": "image/png", "data": "AAAA"},
        {"type": "resource", "blob": "AAAA"},
        {"type": "image", "text": "no data"},
        {"text": "x" * 65, "half": "\ud800", "large": 1 << 300, "real": float("nan")},
        {7: "seven", "list": [1]},
    ],
)
def test_a_brief_object_is_shown_as_the_long_way_shows_it(value: dict[Any, Any]) -> None:
    found, is_cut = shown(value, 8_000)
    assert (found, is_cut) == _shortened(value, 8_000, ShowingCopier)
    assert found is not value


class Unreadable:
    def __repr__(self) -> str:
        raise RuntimeError("no")


@given(values(ODD | st.just("\ud800") | st.just(2**80) | st.builds(Unreadable), KEYS))
def test_an_answer_is_json_whatever_it_holds(value: Any) -> None:
    json.loads(encode({"answer": value}))


def test_what_the_encoder_refuses_is_the_only_part_with_a_mark() -> None:
    endless: list[Any] = [1]
    endless.append(endless)

    answer = json.loads(
        encode({"text": "\ud800", "number": 2**80, "huge": 10**5000, "odd": Unreadable(), "endless": endless})
    )

    assert (answer["text"], answer["number"]) == ("\ufffd", 2**80)
    assert answer["huge"].startswith("… an integer of 16610 bits")
    assert answer["odd"] == "… a Unreadable that cannot be read: RuntimeError …"
    assert answer["endless"][0] == 1
