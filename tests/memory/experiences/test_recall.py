"""Ranking is pure: words, scores that are made comparable, neighbours, order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from memory.experiences.recall import (
    MAX_TERMS,
    standard,
    terms,
)


@given(st.text(alphabet=st.characters(exclude_categories=()), max_size=200))
def test_no_query_has_a_quote_inside_a_word_or_too_many_words(query: str) -> None:
    words = terms(query)

    assert len(words) <= MAX_TERMS
    assert all(word and '"' not in word for word in words)


def test_scores_that_are_all_the_same_say_nothing() -> None:
    assert standard({1: 7.0, 2: 7.0}) == {1: 0.0, 2: 0.0}
    assert standard({}) == {}
