"""Text of a mail: of HTML as a reader would see it; and the new part of a text, without quotes and without the
signature; pure.

Quoted parts of HTML become lines that begin with ">", as in plain mail. One pass over the lines finds the new part.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

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


#: Beginnings of the lines that programs put above a complete earlier mail.
_CUTS: Final = ("original message", "ursprüngliche nachricht", "message d'origine", "mensaje original",
                "forwarded message", "weitergeleitete nachricht")  # fmt: skip
#: Words of the line that names the author of the quote below it.
_WROTE: Final = ("wrote", "schrieb", "écrit", "escribió", "ha scritto", "schreef", "napisał")
#: Beginnings of such a line that is broken in two.
_BROKEN: Final = ("on ", "am ", "le ")
_HEAD: Final = ("from:", "von:", "de :", "de:", "sent:", "gesendet:", "envoyé", "date:", "datum:", "to:", "an:", "à :",
                "cc:", "subject:", "betreff:", "objet")  # fmt: skip
_RULE: Final = "_____"


class NewText(Struct, frozen=True):
    """New text of a mail, and the number of lines that were quotes."""

    text: str
    quoted: int


def new_text(text: str) -> NewText:
    """Return the new text of a mail."""
    lines = text.split("\n")
    new_lines: list[str] = []
    quoted, is_signature = 0, False
    for index, line in enumerate(lines):
        if _is_cut(lines, index):
            quoted += sum(bool(later.strip()) for later in lines[index:])
            break
        if line.lstrip().startswith(">"):
            is_signature = False
            quoted += 1 + _drop_attribution(new_lines)
        elif is_signature or line in ("-- ", "--"):
            is_signature = True
        else:
            new_lines.append(line.rstrip())
    without_rows = [line for index, line in enumerate(new_lines) if line or (index > 0 and new_lines[index - 1])]
    return NewText("\n".join(without_rows).strip(), quoted)


def _is_cut(lines: list[str], index: int) -> bool:
    """Return whether an earlier mail begins at this line and reaches to the end."""
    line = lines[index].strip().lower()
    if line.startswith("--") and line.strip("- ").startswith(_CUTS):
        return True
    if line.startswith(_RULE) and not line.strip("_"):
        return _is_head(lines, index + 1)
    return index > 0 and not lines[index - 1].strip() and _is_head(lines, index)


def _is_head(lines: list[str], index: int) -> bool:
    """Return whether three lines in a row look like the head of a mail that begins with From."""
    head = [line.strip(" *").lower() for line in lines[index : index + 3]]
    is_head = len(head) == 3 and all(line.startswith(_HEAD) for line in head)
    return is_head and head[0].startswith(("from:", "von:", "de :"))


def _drop_attribution(new_lines: list[str]) -> int:
    """Remove the line that names the author of the following quote, which programs may break in two; return the number
    of removed lines."""
    while new_lines and not new_lines[-1]:
        new_lines.pop()
    if not new_lines or not _says_who_wrote(new_lines[-1]):
        new_lines.append("")
        return 0
    new_lines.pop()
    is_broken = new_lines[-1:] != [] and new_lines[-1].lower().startswith(_BROKEN) and not any(new_lines[-2:-1])
    if is_broken:
        new_lines.pop()
    return 1 + is_broken


def _says_who_wrote(line: str) -> bool:
    return line.endswith(":") and any(word in line.lower() for word in _WROTE)
