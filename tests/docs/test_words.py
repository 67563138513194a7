"""The pages together stay short enough to be read: a page says one thing, and each thing stands once."""

from __future__ import annotations

from tests.docs.programs import DOCUMENTS, name_of

#: Words of all pages together: what has a letter or a digit, so that the marks of a table are none.
MOST = 50_000


def test_all_pages_together_stay_within_their_bound() -> None:
    words = {name_of(page): sum(any(map(str.isalnum, word)) for word in page.read_text().split()) for page in DOCUMENTS}

    longest = sorted(words, key=lambda name: -words[name])[:10]
    assert sum(words.values()) <= MOST, {name: words[name] for name in longest}
