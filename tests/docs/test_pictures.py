"""The pictures of `spar top` and of `spar chat` in the documents show what these look like now."""

from __future__ import annotations

import pytest

from tests.docs import chat_picture, top_picture
from tests.docs.top_picture import words


@pytest.mark.parametrize("name", top_picture.PICTURES)
async def test_a_picture_of_spar_top_is_what_it_looks_like_now(name: str) -> None:
    picture = (top_picture.FOLDER / name).read_text()
    assert words(picture) == words(await top_picture.drawn(top_picture.PICTURES[name])), "run `make docs`"
    assert len(picture) < 100_000
    for shown in ("house", "chat/anna", *(("systemctl", "hour.tokens") if name == "top.svg" else ("report.txt", "✗"))):
        assert shown in picture


def test_the_picture_of_spar_chat_is_what_it_looks_like_now() -> None:
    picture = chat_picture.PICTURE.read_text()

    assert chat_picture.words(picture) == chat_picture.words(chat_picture.drawn()), "run `make docs`"
    assert len(picture) < 100_000
    for shown in ("no such folder", "access.log", "waits for your decision", "Esc"):
        assert shown in "\n".join(chat_picture.words(picture))
