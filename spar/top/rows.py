"""List of any length, of which only visible lines are drawn, each built when it is drawn."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from rich.cells import cell_len as cell_len
from rich.cells import set_cell_size
from rich.segment import Segment
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

#: Pieces of a line: each an escaped text, and the tone in which it is drawn.
Pieces = list[tuple[str, str]]
TONES = ("plain", "quiet", "good", "warn", "bad", "busy", "name")


class RowList(ScrollView, can_focus=True):
    """List with a cursor, which stays on its row while other rows come and go."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {*(f"rows--{tone}" for tone in TONES), "rows--cursor"}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Up", show=False),
        Binding("down,j", "move(1)", "Down", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("pagedown", "page(1)", "Page down", show=False),
        Binding("home,g", "move(-1000000000)", "First", show=False),
        Binding("end,G", "move(1000000000)", "Last", show=False),
        Binding("enter", "choose", "Open"),
    ]
    #: The text of an empty list; whether the cursor stays on the last row, or on the first; whether rows can be opened.
    empty, follows, newest_first, opens = "", False, False, False

    class Chosen(Message):
        """Message that a row was opened."""

        def __init__(self, rows: RowList, row: Any) -> None:
            super().__init__()
            self.rows, self.row = rows, row

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.items: Sequence[Any] = ()
        self.cursor = 0
        self._key: Any = None
        self._shown: list[Pieces] = []  # the visible lines as they were drawn last

    # -- methods to override

    def key_of(self, row: Any) -> Any:
        """Return the key that identifies a row."""
        return row

    def pieces(self, row: Any, width: int) -> Pieces:
        """Return the pieces of a row for a width in cells; what is longer is cut."""
        return [(str(row), "plain")]

    # -- drawing

    def show(self, items: Sequence[Any]) -> None:
        """Show these rows; the cursor stays on its row, or near its place if that has gone."""
        was_last, last = self.cursor >= len(self.items) - 1, max(len(items) - 1, 0)
        self.items = items
        if self.follows and was_last:
            self.cursor = last
        elif self._key is not None and not (self._is_at(self.cursor) or (self.newest_first and self.cursor == 0)):
            near = range(max(0, self.cursor - 200), min(len(items), self.cursor + 200))
            self.cursor = next((at for at in near if self._is_at(at)), self.cursor)
        self.cursor = min(self.cursor, last)
        self._key = self.key_of(items[self.cursor]) if items else None
        self._set_length(len(items))
        if self.follows and was_last and items:
            self.call_after_refresh(self.scroll_end, animate=False)
        top, (width, height) = self.scroll_offset.y, self.size
        before, self._shown = self._shown, [self.pieces(row, width) for row in items[top : top + height]]
        changed = [at for at in range(max(len(self._shown), len(before)))
                   if self._shown[at : at + 1] != before[at : at + 1]]  # fmt: skip
        if changed:
            self.refresh(Region(0, changed[0], width, changed[-1] - changed[0] + 1))

    def _set_length(self, length: int) -> None:
        """Set the number of lines; the screen is laid out and drawn again only if the scroll bar comes or goes."""
        height, before = self.size.height, self.virtual_size.height
        if height and (length > height) == (before > height):
            self.set_reactive(ScrollView.virtual_size, Size(0, length))
            self.vertical_scrollbar.window_virtual_size = length
        else:
            self.virtual_size = Size(0, length)

    def _is_at(self, index: int) -> bool:
        return 0 <= index < len(self.items) and self.key_of(self.items[index]) == self._key

    def render_line(self, y: int) -> Strip:
        """Draw one visible line."""
        width, index, looks = self.size.width, y + self.scroll_offset.y, self.get_component_rich_style
        base = looks("rows--plain")
        if index < len(self.items):
            pieces = self.pieces(self.items[index], width)
        else:
            pieces = [(self.empty, "quiet")] if not (self.items or y) else []
        is_chosen = index == self.cursor and self.has_focus and self.opens and bool(self.items)
        base = looks("rows--cursor") if is_chosen else base
        strip = Strip(Segment(text, base if is_chosen else looks(f"rows--{tone}")) for text, tone in pieces)
        if strip.cell_length > width > 0:
            strip = Strip([*strip.crop(0, width - 1), Segment("…", base)])
        return strip.adjust_cell_length(width, base)

    # -- keys and the mouse

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return whether a key has an effect."""
        return action != "choose" or self.opens

    def action_move(self, lines: int) -> None:
        """Move the cursor and scroll to it."""
        self.cursor = min(max(self.cursor + lines, 0), max(len(self.items) - 1, 0))
        self._key = self.key_of(self.items[self.cursor]) if self.items else None
        self.scroll_to_region(Region(0, self.cursor, 1, 1), animate=False, force=True)
        self.refresh()

    def action_page(self, pages: int) -> None:
        """Move the cursor by the visible height."""
        self.action_move(pages * max(self.size.height - 1, 1))

    def action_choose(self) -> None:
        """Open the row under the cursor."""
        if self.opens and self.items:
            self.post_message(self.Chosen(self, self.items[self.cursor]))

    def on_click(self, event: events.Click) -> None:
        """Move the cursor to the clicked row; a double click opens the row."""
        place = event.get_content_offset(self)
        at = -1 if place is None else self.scroll_offset.y + place.y
        if 0 <= at < len(self.items):
            self.action_move(at - self.cursor)
            if event.chain > 1:
                self.action_choose()


def columns(cells: Iterable[tuple[str, int, str]]) -> Pieces:
    """Return the pieces of a row. Args: cells: text, width (negative: aligned to the right; 0: as long as it is) and
    tone of each cell."""
    drawn: Pieces = []
    for text, width, tone in cells:
        room = abs(width)
        text = cut(text, room) if room else text
        blank = " " * (room - cell_len(text))
        drawn.append((f"{blank}{text} " if width < 0 else f"{text}{blank} ", tone))
    return drawn


def cut(text: str, room: int) -> str:
    """Return a text in at most so many cells; a cut one ends with `…`."""
    return text if cell_len(text) <= room else f"{set_cell_size(text, room - 1)}…"
