"""The picture of `spar chat` in the documents shows what it looks like now."""

from __future__ import annotations

from tests.docs.chat_picture import PICTURE, drawn, words


def test_the_picture_is_what_it_looks_like_now() -> None:
    picture = PICTURE.read_text()

    assert words(picture) == words(drawn()), "run `make docs`"
    assert len(picture) < 100_000
    for shown in ("no such folder", "access.log", "waits for your decision", "Esc"):
        assert shown in "\n".join(words(picture))
