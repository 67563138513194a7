"""The pictures of `spar top` in the documents show what it looks like now."""

from __future__ import annotations

import pytest

from tests.docs.top_picture import FOLDER, PICTURES, drawn, words


@pytest.mark.parametrize("name", PICTURES)
async def test_a_picture_is_what_it_looks_like_now(name: str) -> None:
    picture = (FOLDER / name).read_text()
    assert words(picture) == words(await drawn(PICTURES[name])), "run `make docs`"
    assert len(picture) < 100_000
    for shown in ("house", "chat/anna", *(("systemctl", "hour.tokens") if name == "top.svg" else ("report.txt", "✗"))):
        assert shown in picture
