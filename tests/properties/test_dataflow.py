"""The index of paths finds exactly what overlaps, and its work does not grow with the others that it holds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spar.data.paths import Path, PathIndex, overlaps
from tests.effort import growth

PATHS = st.lists(st.sampled_from("abc"), max_size=3).map(tuple)


@given(st.lists(PATHS), PATHS)
def test_the_summary_over_a_path_is_that_of_all_that_overlap_with_it(added: list[Path], path: Path) -> None:
    index: PathIndex[frozenset[Path]] = PathIndex(frozenset.union)
    for each in added:
        index.add(each, frozenset([each]))

    assert (index.over(path) or frozenset()) == {each for each in added if overlaps(each, path)}
    assert (index.at(path) or frozenset()) == {each for each in added if each == path}


def test_to_look_at_one_path_costs_the_same_however_many_others_there_are() -> None:
    def look(size: int) -> None:
        index: PathIndex[bool] = PathIndex(lambda one, other: one or other)
        for number in range(size):
            index.add(("state", f"a{number}"), True)
        for number in range(size):
            index.over(("state", f"b{number}"))
            index.over(("state",))

    assert growth(look, 500) <= 2.2
