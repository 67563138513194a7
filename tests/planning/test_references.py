from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planning.references import alternatives, can_be_read, colliding, escape, is_reference, overlap, references_in

PLACES = st.lists(st.sampled_from("abc"), max_size=3).map(lambda steps: ".".join(["†state", *steps]))


def test_alternatives_bind_looser_than_and() -> None:
    assert alternatives("†state.a && †input.b || †state.c") == (("†state.a", "†input.b"), ("†state.c",))


@pytest.mark.parametrize("text", ["†", "†state.", "†state..a", "†state.a ||", "state.a", "†state.a †state.b", "†1"])
def test_what_is_no_reference_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a place"):
        alternatives(text)


def test_one_alternative_that_is_written_is_enough() -> None:
    assert can_be_read("†state.x || †state.a.b", ["†state.a"])
    assert can_be_read("†state.x || †input.y", [])
    assert not can_be_read("†state.x && †state.a", ["†state.a"])


def test_references_are_found_at_any_depth() -> None:
    assert list(references_in({"a": ["†x.y", {"b": "††no", "c": "†z"}], "n": 3})) == ["†x.y", "†z"]


@given(st.text())
def test_escaped_text_is_never_a_reference_and_loses_nothing(text: str) -> None:
    escaped = escape(text)

    assert not is_reference(escaped)
    assert (escaped[1:] if escaped.startswith("††") else escaped) == text


@given(st.lists(st.lists(PLACES, max_size=3), max_size=6))
def test_groups_collide_exactly_when_two_of_their_places_overlap(groups: list[list[str]]) -> None:
    wanted = {
        number
        for (one, a), (other, b) in combinations(enumerate(groups), 2)
        if any(overlap(x, y) for x in a for y in b)
        for number in (one, other)
    }

    assert colliding(groups) == wanted
