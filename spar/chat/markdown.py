"""Drawing of Markdown on a terminal, as a whole or block by block while it is still written.

A text from a model or a stranger cannot act on the terminal: what would is escaped (`spar.data.text.printable`), HTML
is shown as it stands, and a link shows its address.
"""

from __future__ import annotations

from collections.abc import Iterable
from io import StringIO
from typing import ClassVar, Final

import click
from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import Heading, Markdown, MarkdownElement
from rich.theme import Theme

from spar.cli.screen import console_of
from spar.data.text import printable

#: Characters of a block after which its written part is drawn before the block ends.
LONGEST_BLOCK: Final = 8_000
#: Lines at the beginning of a block that its other parts need, too: the opening of a fence, the head of a table.
_OPENING: Final = {"fence": 1, "table_open": 2}
#: Code without a background, which is not that of every terminal.
_THEME: Final = Theme({"markdown.code": "bold cyan"})
_PARSER: Final = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"]).disable("image")


class _Heading(Heading):
    """Heading at the left edge, as all the other text."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        text = self.text.copy()
        text.justify = "left"
        yield text


class _Harmless(Markdown):
    """Markdown whose texts are escaped after they have been parsed: an entity (`&#x202e;`) is a character only then."""

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {**Markdown.elements, "heading_open": _Heading}

    def __init__(self, text: str) -> None:
        super().__init__("", code_theme="ansi_dark", hyperlinks=False)
        self.parsed = _PARSER.parse(text)
        _disarm(self.parsed)


def _disarm(tokens: Iterable[Token]) -> None:
    for token in tokens:
        token.content = printable(token.content)
        token.attrs = {name: printable(str(value)) for name, value in token.attrs.items()}
        _disarm(token.children or ())


def drawn(text: str, width: int) -> str:
    """Return Markdown as lines for a terminal of this width, with colour unless NO_COLOR is set."""
    target = StringIO()
    console = console_of(target, max(width, 2))
    console.push_theme(_THEME)
    console.print(_Harmless(text))
    lines = [line.rstrip() for line in target.getvalue().split("\n")]
    drawn_at = [at for at, line in enumerate(lines) if click.unstyle(line).strip()]
    return "\n".join(lines[drawn_at[0] : drawn_at[-1] + 1]) if drawn_at else ""


def settled(text: str) -> tuple[str, str]:
    """Return the blocks of a text that no further text changes, and the rest, which is the beginning of a block.

    Of a block that becomes too long, the written lines are settled; the rest repeats its opening.
    """
    blocks = [token for token in _PARSER.parse(text) if token.level == 0 and token.map is not None]
    lines = text.splitlines(keepends=True)
    if len(blocks) > 1:
        begin = (blocks[-1].map or [0])[0]
        return "".join(lines[:begin]), "".join(lines[begin:])
    if len(text) <= LONGEST_BLOCK or not blocks:
        return "", text
    opening = lines[: _OPENING.get(blocks[0].type, 0)]
    cut = max(text.rfind("\n"), text.rfind(" ")) + 1 or len(text)
    return text[:cut], "".join(opening) + text[cut:]
