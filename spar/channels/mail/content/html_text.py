"""Text of an HTML mail as a reader would see it. Quoted parts become lines that begin with ">", as in plain mail."""

from __future__ import annotations

from typing import Any, Final

from spar.net.html import tree_of

#: Bound of the characters of HTML, so that no mail blocks the interpreter for long.
LONGEST_HTML: Final = 128 * 1024
#: Bound of the characters of a link's address.
LONGEST_LINK: Final = 500
CUT: Final = "[the rest of this mail was not read: it is too long]"

#: Signs that are put into the tree: the end of a line, and the line between two paragraphs.
_END, _BLANK = "\x1e", "\x01"
#: Texts before and behind elements.
_MARKS: Final = {
    "address, article, aside, center, dd, div, dl, dt, fieldset, figure, footer, form, header, hr, main, nav, section, "
    "tbody, thead, tr": (_END, _END),
    "h1, h2, h3, h4, h5, h6, ol, p, pre, table, ul": (_END, f"{_END}{_BLANK}{_END}"),
    "li": (f"{_END}- ", _END), "br": ("", _END), "td, th": ("", " "),
}  # fmt: skip
#: Elements that a reader does not see: text that is hidden from people is hidden from models too.
_UNSEEN: Final = "head, script, style, title, template, noscript, object, svg, math, [hidden]"
_QUOTES: Final = "blockquote, .gmail_quote"


def text_of(html: str) -> str:
    """Return the text of HTML, one line for each block."""
    try:
        root = tree_of(html[:LONGEST_HTML].encode("utf-8", "replace")).root
    except ValueError:
        return "[this mail was not read: its HTML is nested too deeply]"
    lines = [] if root is None else _lines(root)
    return "\n".join(lines).strip() + (f"\n{CUT}" if len(html) > LONGEST_HTML else "")


def _lines(root: Any) -> list[str]:
    for node in root.css("[style]"):
        style = "".join((node.attributes["style"] or "").lower().split())
        if "display:none" in style or "visibility:hidden" in style:
            node.attrs["hidden"] = ""
    for node in _within(root, _UNSEEN):
        node.decompose()
    for node in root.css("a[href]"):
        if (link := _link(node)) and link not in node.text():
            node.insert_after(f" <{link}>")
    for selector, (before, behind) in _MARKS.items():
        for node in root.css(selector):
            node.insert_before(before)
            node.insert_after(behind)
    for node in _within(root, _QUOTES):
        quoted = (line if not line or line.startswith("> ") else f"> {line}" for line in _split(node.text()))
        node.replace_with(_END + _END.join(line or _BLANK for line in quoted) + _END)
    return _split(root.text())


def _within(root: Any, selector: str) -> list[Any]:
    """Return the chosen elements below the root, each once, inner ones first: with an element, all in it are freed."""
    chosen = {node.mem_id: node for node in root.css(selector) if node.mem_id != root.mem_id}
    return list(reversed(chosen.values()))


def _split(text: str) -> list[str]:
    """Return the lines of a marked text, without empty ones and rows of blank ones."""
    lines: list[str] = []
    for part in text.split(_END):
        line = " ".join(part.split())
        if line and (line != _BLANK or (lines and lines[-1])):
            lines.append("" if line == _BLANK else line)
    return lines


def _link(node: Any) -> str:
    address = (node.attributes["href"] or "").strip()
    is_useful = address.startswith(("http://", "https://")) and len(address) <= LONGEST_LINK
    return address if is_useful and not any(sign.isspace() for sign in address) else ""
