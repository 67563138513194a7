"""Text of an HTML mail as a reader would see it. Quoted parts become lines that begin with ">", as in plain mail."""

from __future__ import annotations

from typing import Any, Final

from spar.net.html import tree_of

#: Bound of the characters of HTML, so that no mail blocks the interpreter for long.
LONGEST_HTML: Final = 128 * 1024
#: Bound of the characters of a link's address.
LONGEST_LINK: Final = 500
CUT: Final = "[the rest of this mail was not read: it is too long]"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_UNSEEN: Final = _words("head script style title template noscript object svg math -comment")
_BLOCKS: Final = _words(
    "address article aside blockquote center dd div dl dt fieldset figure footer form h1 h2 h3 h4 h5 h6 header hr li "
    "main nav ol p pre section table tbody thead tr ul"
)
_APART: Final = _words("p h1 h2 h3 h4 h5 h6 table ul ol pre")


def text_of(html: str) -> str:
    """Return the text of HTML, one line for each block."""
    try:
        body = tree_of(html[:LONGEST_HTML].encode("utf-8", "replace")).body
    except ValueError:
        return "[this mail was not read: its HTML is nested too deeply]"
    lines = _Lines()
    waiting: list[tuple[Any, bool]] = [(body, True)] if body is not None else []
    while waiting:
        node, is_beginning = waiting.pop()
        if not is_beginning:
            lines.leave(node)
        elif node.tag == "-text":
            lines.add(node.text_content or "")
        elif node.tag not in _UNSEEN and not _is_hidden(node):
            lines.enter(node)
            waiting.append((node, False))
            waiting += [(child, True) for child in reversed(list(node.iter(include_text=True)))]
    lines.flush()
    return "\n".join(lines.done).strip() + (f"\n{CUT}" if len(html) > LONGEST_HTML else "")


class _Lines:
    """Lines of text that grow while the tree is walked."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self._line: list[str] = []
        self._quotes = 0

    def add(self, text: str) -> None:
        self._line.append(text)

    def flush(self) -> None:
        text = " ".join("".join(self._line).split())
        if text:
            self.done.append(f"> {text}" if self._quotes else text)
        self._line = []

    def enter(self, node: Any) -> None:
        if node.tag in _BLOCKS or node.tag == "br":
            self.flush()
        if node.tag == "li":
            self.add("- ")
        self._quotes += _is_quote(node)

    def leave(self, node: Any) -> None:
        link = _link(node)
        if link and link not in "".join(self._line):
            self.add(f" <{link}>")
        if node.tag in _BLOCKS:
            self.flush()
        elif node.tag in ("td", "th"):
            self.add(" ")
        if node.tag in _APART and self.done and self.done[-1]:
            self.done.append("")
        self._quotes -= _is_quote(node)


def _attribute(node: Any, name: str) -> str:
    return str(node.attributes.get(name) or "")


def _is_quote(node: Any) -> bool:
    return node.tag == "blockquote" or "gmail_quote" in _attribute(node, "class").split()


def _is_hidden(node: Any) -> bool:
    """Return whether a reader would not see an element: text that is hidden from people is hidden from models too."""
    style = "".join(_attribute(node, "style").lower().split())
    return "display:none" in style or "visibility:hidden" in style or "hidden" in node.attributes


def _link(node: Any) -> str:
    address = _attribute(node, "href").strip() if node.tag == "a" else ""
    is_useful = address.startswith(("http://", "https://")) and len(address) <= LONGEST_LINK
    return address if is_useful and not any(sign.isspace() for sign in address) else ""
