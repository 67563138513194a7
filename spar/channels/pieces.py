"""Pieces of a text that is longer than one message of a channel; pure."""

from __future__ import annotations

from typing import Final

#: Signs behind which a text is cut, the best first.
ENDS: Final = ("\n\n", "\n", ". ", " ")


def pieces(text: str, most: int) -> list[str]:
    """Return a text in pieces of at most `most` characters, which together are the whole. A piece ends at a paragraph,
    a line, a sentence or a word, if one ends in its second half."""
    parts: list[str] = []
    start = 0
    while len(text) - start > most:
        end = start + most
        for sign in ENDS:
            at = text.rfind(sign, start + most // 2, end)
            if at >= 0:
                end = at + len(sign)
                break
        parts.append(text[start:end])
        start = end
    parts.append(text[start:])
    return parts
