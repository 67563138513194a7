"""Pieces of a text that is longer than one message of a channel may be; pure."""

from __future__ import annotations

from typing import Final

#: Where a text is cut, the best place first; the sign stays with what is before it.
ENDS: Final = ("\n\n", "\n", ". ", " ")


def pieces(text: str, most: int) -> list[str]:
    """Return a text in pieces of at most `most` characters, together the whole; cut at a paragraph, a line, a sentence
    or a word in the second half of a piece where there is one."""
    found: list[str] = []
    start = 0
    while len(text) - start > most:
        end = start + most
        for sign in ENDS:
            at = text.rfind(sign, start + most // 2, end)
            if at >= 0:
                end = at + len(sign)
                break
        found.append(text[start:end])
        start = end
    found.append(text[start:])
    return found
