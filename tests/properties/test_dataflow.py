"""The index of paths finds exactly what overlaps, and its work does not grow with the others that it holds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spar.data.dataflow import PathIndex, Readers, dependants
from spar.data.paths import Path, overlaps
from tests.effort import growth

PATHS = st.lists(st.sampled_from("abc"), max_size=3).map(tuple)
CALLS = st.lists(
    st.tuples(
        st.lists(st.integers(0, 7), max_size=2),
        st.lists(PATHS.filter(bool), max_size=2),
        st.lists(PATHS.filter(bool), max_size=2),
    ),
    max_size=8,
)


@given(st.lists(PATHS), PATHS)
def test_the_summary_over_a_path_is_that_of_all_that_overlap_with_it(added: list[Path], path: Path) -> None:
    index: PathIndex[frozenset[Path]] = PathIndex(frozenset.union)
    for each in added:
        index.add(each, frozenset([each]))

    assert (index.over(path) or frozenset()) == {each for each in added if overlaps(each, path)}
    assert (index.at(path) or frozenset()) == {each for each in added if each == path}


@given(st.lists(PATHS), st.lists(PATHS))
def test_each_reader_is_handed_out_once_to_the_first_that_writes_where_it_reads(
    read: list[Path], written: list[Path]
) -> None:
    readers: Readers[int] = Readers()
    for number, path in enumerate(read):
        readers.add(path, number)
    left = dict(enumerate(read))
    for path in written:
        due = {number for number, each in left.items() if overlaps(each, path)}
        assert set(readers.take(path)) == due
        for number in due:
            del left[number]


@given(CALLS, st.sets(st.integers(0, 7)))
def test_dependants_are_those_that_follow_or_read_directly_or_through_others(
    calls: list[tuple[list[int], list[Path], list[Path]]], begun: set[int]
) -> None:
    found: set[int] = set()
    while True:
        known = begun | found
        more = {
            number
            for number, (after, read, _) in enumerate(calls)
            if number not in known
            and (
                known & set(after)
                or any(
                    overlaps(path, place)
                    for other in known
                    if other < len(calls)
                    for place in calls[other][2]
                    for path in read
                )
            )
        }
        if not more:
            break
        found |= more

    wire = [(str(number), map(str, after), read, written) for number, (after, read, written) in enumerate(calls)]
    assert dependants(map(str, begun), wire) == set(map(str, found))


def test_to_look_at_one_path_costs_the_same_however_many_others_there_are() -> None:
    def look(size: int) -> None:
        index: PathIndex[bool] = PathIndex(lambda one, other: one or other)
        for number in range(size):
            index.add(("state", f"a{number}"), True)
        for number in range(size):
            index.over(("state", f"b{number}"))
            index.over(("state",))

    assert growth(look, 500) <= 2.2


def test_who_depends_on_whom_is_found_in_time_proportional_to_the_calls() -> None:
    def follow(size: int) -> None:
        writers = [(f"w{n}", (), (), (("state", "list"),)) for n in range(size)]
        readers = [(f"r{n}", (), (("state", "list", "0"),), (("state", f"b{n}"),)) for n in range(size)]
        assert len(dependants([f"w{n}" for n in range(size)], [*writers, *readers])) == size

    assert growth(follow, 300) <= 2.2
