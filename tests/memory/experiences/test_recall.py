"""Ranking is pure: words, scores that are made comparable, neighbours, order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from memory.experiences.recall import (
    BESIDE,
    MAX_TERMS,
    Candidate,
    Pair,
    added,
    beside,
    order,
    standard,
    terms,
)


def test_a_query_becomes_words_without_the_common_ones() -> None:
    assert terms("is the Disk full on web-1?") == ("disk", "full", "web", "1")


def test_common_words_are_searched_for_when_there_are_no_others() -> None:
    assert terms("to be or not") == ("to", "be", "or", "not")


def test_a_query_without_words_matches_nothing_in_particular() -> None:
    assert terms(' "*(){}†:^-+\0 ') == ()


def test_text_without_spaces_is_searched_by_character() -> None:
    assert terms("磁盘") == ("磁", "盘")


@given(st.text(alphabet=st.characters(exclude_categories=()), max_size=200))
def test_no_query_has_a_quote_inside_a_word_or_too_many_words(query: str) -> None:
    words = terms(query)

    assert len(words) <= MAX_TERMS
    assert all(word and '"' not in word for word in words)


@given(st.dictionaries(st.integers(), st.floats(-1e6, 1e6), min_size=1, max_size=30))
def test_scores_become_deviations_from_their_mean(scores: dict[int, float]) -> None:
    found = standard(scores)

    assert abs(sum(found.values())) < 1e-3
    assert all(found[a] <= found[b] for a in scores for b in scores if scores[a] < scores[b])


def test_scores_that_are_all_the_same_say_nothing() -> None:
    assert standard({1: 7.0, 2: 7.0}) == {1: 0.0, 2: 0.0}
    assert standard({}) == {}


def test_kinds_of_scores_are_added_and_who_lacks_one_is_neutral() -> None:
    found = added([{1: 10.0, 2: 20.0, 3: 30.0}, {1: 0.9, 3: 0.1}], (1, 2, 3))

    assert found[2] == 0.0
    assert found[1] < found[3]


def test_what_stands_beside_a_hit_gains_a_share_of_its_score_and_the_next_but_one_half_of_that() -> None:
    found = beside({1: 4.0, 2: -2.0, 3: -2.0, 4: -2.0}, [Pair(1, 2, 1), Pair(1, 3, 2)])

    assert (found[2], found[3], found[4]) == (5 * BESIDE[0], 5 * BESIDE[1], 0.0)
    assert found[1] == 5.0, "what fits badly gives nothing"


def test_of_equal_fits_the_one_that_worked_comes_first_then_the_newer() -> None:
    same = {1: 1.0, 2: 1.0, 3: 1.0}

    worked = order({1: Candidate(9.0, False), 2: Candidate(9.0, True), 3: Candidate(9.0)}, same)
    newer = order({1: Candidate(1.0), 2: Candidate(3.0), 3: Candidate(2.0)}, same)

    assert worked[0] == 2
    assert newer == [2, 3, 1]


def test_of_equal_fits_what_helped_comes_before_what_harmed() -> None:
    tried = {1: Candidate(9.0, True, helped=0, harmed=4), 2: Candidate(1.0, True, helped=4), 3: Candidate(5.0, True)}

    assert order(tried, dict.fromkeys(tried, 1.0)) == [2, 3, 1]


def test_the_better_fit_stays_ahead_of_anything_that_is_merely_newer_or_more_useful() -> None:
    scores = {key: 10.0 - key / 100 for key in range(1, 9)}
    candidates = {key: Candidate(float(key), success=True, lesson=True, helped=key) for key in scores}

    assert order(candidates, scores) == [1, 2, 3, 4, 5, 6, 7, 8]
