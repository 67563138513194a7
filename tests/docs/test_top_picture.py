"""The picture of `spar top` in the documents shows what it looks like now."""

from __future__ import annotations

from tests.docs.top_picture import PICTURE, drawn, words


async def test_the_picture_is_what_it_looks_like_now() -> None:
    picture = PICTURE.read_text()
    assert words(picture) == words(await drawn()), "run `make docs`"
    assert len(picture) < 100_000
    for shown in ("house", "systemctl", "chat/anna", "hour.tokens"):
        assert shown in picture
