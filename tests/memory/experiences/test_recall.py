"""Ranking is pure: words, places, fusion, order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from memory.experiences.recall import MAX_TERMS, Candidate, fuse, match, order, ranks, terms


def test_a_query_becomes_quoted_words_without_the_common_ones() -> None:
    assert match("is the Disk full on web-1?") == '"disk" OR "full" OR "web" OR "1"'


def test_common_words_are_searched_for_when_there_are_no_others() -> None:
    assert terms("to be or not") == ("to", "be", "or", "not")


def test_a_query_without_words_matches_nothing_in_particular() -> None:
    assert match(' "*(){}†:^-+\0 ') == ""


def test_text_without_spaces_is_searched_by_character() -> None:
    assert terms("磁盘") == ("磁", "盘")


@given(st.text(alphabet=st.characters(exclude_categories=()), max_size=200))
def test_no_query_has_a_quote_inside_a_word_or_too_many_words(query: str) -> None:
    words = terms(query)

    assert len(words) <= MAX_TERMS
    assert all(word and '"' not in word for word in words)


def test_equal_scores_share_a_place() -> None:
    assert ranks({1: 5.0, 2: 7.0, 3: 5.0, 4: 1.0}) == {2: 1, 1: 2, 3: 2, 4: 4}


def test_fusion_adds_what_each_ranking_says_and_misses_are_no_error() -> None:
    fused = fuse([(1.0, {1: 1, 2: 2}), (1.0, {2: 1})])

    assert fused[2] > fused[1]


def test_of_equal_texts_the_one_that_worked_comes_first_then_the_newer() -> None:
    same = {1: 1.0, 2: 1.0, 3: 1.0}

    worked = order({1: Candidate(9.0, False), 2: Candidate(9.0, True), 3: Candidate(9.0)}, [same])
    newer = order({1: Candidate(1.0), 2: Candidate(3.0), 3: Candidate(2.0)}, [same])

    assert worked[0] == 2
    assert newer == [2, 3, 1]


def test_the_best_text_stays_ahead_of_one_that_is_merely_newer() -> None:
    scores = {key: 10.0 - key for key in range(1, 9)}
    candidates = {key: Candidate(float(key)) for key in scores}

    assert order(candidates, [scores])[0] == 1


def test_a_second_way_of_searching_is_one_more_ranking() -> None:
    candidates = {1: Candidate(1.0), 2: Candidate(1.0), 3: Candidate(1.0)}

    assert order(candidates, [{1: 2.0, 2: 1.0}, {3: 2.0, 2: 1.0}])[0] == 2
