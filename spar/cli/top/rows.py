"""Lists and texts of any length: only visible lines are drawn, and each line of a list is built when it is drawn; the
screen of one text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from rich.cells import cell_len as cell_len
from rich.cells import set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.geometry import Region, Size
from textual.message import Message
from textual.screen import ModalScreen
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widgets import Footer, TextArea

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
        Binding("enter", "choose", "Open", show=False),
    ]
    #: The text of an empty list; whether the last row stays in sight; whether new rows come first; whether rows can be
    #: opened.
    EMPTY, FOLLOWS, NEWEST_FIRST, OPENS = "", False, False, False

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
        """Return the pieces of a row for a width in cells."""
        return [(str(row), "plain")]

    # -- drawing

    def show(self, items: Sequence[Any]) -> None:
        """Show these rows; the cursor stays on its row, or near its place if that has gone."""
        was_last = self.is_at_end
        self.items = items
        if self.FOLLOWS and was_last:
            self.cursor = max(len(items) - 1, 0)
        elif self.NEWEST_FIRST and self.cursor == 0:
            pass  # it stays on the newest row
        elif self._key is not None and not self._is_at(self.cursor):
            near = range(max(0, self.cursor - 200), min(len(items), self.cursor + 200))
            self.cursor = next((at for at in near if self._is_at(at)), self.cursor)
        self.cursor = min(self.cursor, max(len(items) - 1, 0))
        self._key = self.key_of(items[self.cursor]) if items else None
        self._set_length(len(items))
        if self.FOLLOWS and was_last and items:
            self.call_after_refresh(self.scroll_end, animate=False)
        self._refresh_changed()

    def _set_length(self, length: int) -> None:
        """Set the number of lines; the screen is laid out and drawn again only if the scroll bar comes or goes."""
        height, before = self.size.height, self.virtual_size.height
        if height and (length > height) == (before > height):
            self.set_reactive(ScrollView.virtual_size, Size(0, length))
            self.vertical_scrollbar.window_virtual_size = length
        else:
            self.virtual_size = Size(0, length)

    def _refresh_changed(self) -> None:
        """Draw the visible lines again that differ from what is drawn."""
        top, (width, height) = self.scroll_offset.y, self.size
        drawn = [self.pieces(row, width) for row in self.items[top : top + height]]
        before, self._shown = self._shown, drawn
        changed = [at for at in range(max(len(drawn), len(before))) if drawn[at : at + 1] != before[at : at + 1]]
        if changed:
            self.refresh(Region(0, changed[0], width, changed[-1] - changed[0] + 1))

    @property
    def is_at_end(self) -> bool:
        """Return whether the cursor is on the last row, so that the list follows new rows."""
        return self.cursor >= len(self.items) - 1

    def _is_at(self, index: int) -> bool:
        return 0 <= index < len(self.items) and self.key_of(self.items[index]) == self._key

    @property
    def row(self) -> Any:
        """Return the row under the cursor, None in an empty list."""
        return self.items[self.cursor] if self.cursor < len(self.items) else None

    def render_line(self, y: int) -> Strip:
        """Draw one visible line."""
        width, index = self.size.width, y + self.scroll_offset.y
        base = self._tone("plain")  # the style of the widget takes longer to compute than a line to draw
        if not self.items and y == 0:
            return _strip([(self.EMPTY, self._tone("quiet"))], width, base)
        if index >= len(self.items):
            return Strip.blank(width, base)
        drawn = [(text, self._tone(tone)) for text, tone in self.pieces(self.items[index], width)]
        if index == self.cursor and self.has_focus and self.OPENS:
            base = self.get_component_rich_style("rows--cursor")
            drawn = [(text, base) for text, _ in drawn]
        return _strip(drawn, width, base)

    def _tone(self, tone: str) -> Style:
        return self.get_component_rich_style(f"rows--{tone}") if tone in TONES else self.rich_style

    # -- keys and the mouse

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
        if self.OPENS and self.row is not None:
            self.post_message(self.Chosen(self, self.row))

    def on_click(self, event: events.Click) -> None:
        """Move the cursor to the clicked row; a double click opens the row."""
        place = event.get_content_offset(self)
        at = -1 if place is None else self.scroll_offset.y + place.y
        if 0 <= at < len(self.items):
            self.action_move(at - self.cursor)
            if event.chain > 1:
                self.action_choose()


def _strip(pieces: Sequence[tuple[str, Style]], width: int, base: Style) -> Strip:
    """Return styled pieces as a line of exactly this width, cut or filled with blanks."""
    segments, room = [], width
    for text, style in pieces:
        size = cell_len(text)
        if size > room:
            text, size = set_cell_size(text, room), room
        segments.append(Segment(text, style))
        room -= size
    return Strip([*segments, Segment(" " * room, base)], width)


def columns(cells: Sequence[tuple[str, int, str]]) -> Pieces:
    """Return the pieces of a row. Args: cells: text, width (negative: aligned to the right) and tone of each cell."""
    drawn: Pieces = []
    for text, width, tone in cells:
        room = abs(width)
        text = cut(text, room)
        blank = " " * (room - cell_len(text))
        drawn.append((f"{blank}{text} " if width < 0 else f"{text}{blank} ", tone))
    return drawn


def cut(text: str, room: int) -> str:
    """Return a text in at most so many cells; a cut one ends with `…`."""
    if cell_len(text) <= room:
        return text
    return set_cell_size(text, room - 1) + "…" if room > 1 else set_cell_size(text, room)


class Page(TextArea):
    """Page with the whole of a text. Args: follows: keep the end in sight until somebody scrolls."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("k", "scroll_up", show=False), Binding("j", "scroll_down", show=False),
        Binding("g", "scroll_home", show=False), Binding("G", "scroll_end", show=False),
    ]  # fmt: skip

    def __init__(self, *, follows: bool = False, **options: Any) -> None:
        super().__init__(read_only=True, show_cursor=False, highlight_cursor_line=False, compact=True, **options)
        self._follows = follows

    def write(self, text: str) -> None:
        """Show a text, which must be escaped already."""
        was_at_end = self.scroll_offset.y >= self.max_scroll_y - 1
        if text.startswith(self.text):
            self.insert(text[len(self.text) :], self.document.end)
        else:
            self.load_text(text)
        if self._follows and was_at_end:
            self.scroll_end(animate=False)


class TextScreen(ModalScreen[None]):
    """Screen of one text, which has the focus, under a title. Args: follows: as for `Page`."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q", "dismiss", "Back")]

    def __init__(self, title: str, *, follows: bool = False) -> None:
        super().__init__()
        self._title = title
        self.page = Page(id="text", follows=follows)

    def compose(self) -> ComposeResult:
        with Vertical(id="record") as box:
            box.border_title = Content(self._title)
            yield self.page
        yield Footer(show_command_palette=False)
