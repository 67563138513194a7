from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from planning.dataflow import can_be_read, colliding, reads_any
from spar.data.paths import Path, overlaps, parse_read

PLACES = st.lists(st.sampled_from("abc"), max_size=3).map(lambda steps: ("state", *steps))


def test_one_alternative_that_is_written_is_enough() -> None:
    assert can_be_read(parse_read("†state.x || †state.a.b"), [("state", "a")])
    assert can_be_read(parse_read("†state.x || †input.y"), [])
    assert not can_be_read(parse_read("†state.x && †state.a"), [("state", "a")])


def test_what_holds_a_place_or_stands_in_it_is_read_with_it() -> None:
    assert reads_any(parse_read("†input.x || †state.a"), [("state", "a", "b")])
    assert not reads_any(parse_read("†input.x || †state.a"), [("state", "ab")])


@given(st.lists(st.lists(PLACES, max_size=3), max_size=6))
def test_groups_collide_exactly_when_two_of_their_places_overlap(groups: list[list[Path]]) -> None:
    wanted = {
        number
        for (one, a), (other, b) in combinations(enumerate(groups), 2)
        if any(overlaps(x, y) for x in a for y in b)
        for number in (one, other)
    }

    assert colliding(groups) == wanted
