"""Pages of text: a text of any length, folded to the width; only its visible lines are drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from textual import events

from spar.cli.top.rows import Pieces, RowList, folded

#: A line of a text, and the tone in which it is drawn.
Line = tuple[str, str]


class Page(RowList):
    """Page with the whole of a text. Args: follows: keep the end in sight until somebody scrolls."""

    def __init__(self, *, follows: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self.follows = follows
        self._lines: Sequence[Line] = ()

    def write(self, lines: Sequence[Line]) -> None:
        """Show these lines, which must be escaped already."""
        self._lines = lines
        self._fold()

    def on_resize(self, event: events.Resize) -> None:
        self._fold()

    def _fold(self) -> None:
        width = max(self.size.width, 8)
        self.show([(part, tone) for text, tone in self._lines for part in folded(text, width)])

    @property
    def is_at_end(self) -> bool:
        """Return whether the end of the text is visible."""
        return self.scroll_offset.y >= self.max_scroll_y - 1

    def key_of(self, row: Line) -> int:
        return id(row)

    def pieces(self, row: Line, width: int) -> Pieces:
        return [row]

    def action_move(self, lines: int) -> None:
        """Scroll by lines; a page has no cursor."""
        self.scroll_relative(y=lines, animate=False)

    def action_page(self, pages: int) -> None:
        """Scroll by the visible height."""
        self.action_move(pages * max(self.size.height - 1, 1))
