"""Text of HTML and of parts of it, within bounds. Blocking."""

from __future__ import annotations

from typing import Any, Final

from spar.errors import ConfigError, TransientError
from spar.net.html import tree_of

#: Bounds: bytes of HTML, elements that a selector may choose.
LONGEST: Final = 1 << 20
_MOST_CHOSEN: Final = 1000
_UNSEEN: Final = ["script", "style", "template", "noscript", "svg"]


def check_selector(selector: str) -> None:
    """Check that the library is installed and the selector can be read. Raises: ConfigError."""
    tree = _tree(b"<p>", "")
    try:
        tree.css(selector)
    except ValueError as error:
        raise ConfigError(f"{selector!r:.200} is no CSS selector: {error}", path=("selector",)) from None


def selected(html: bytes, selector: str, url: str) -> str:
    """Return the text of the elements that a selector chooses, one line for each. Raises: TransientError when there is
    none."""
    chosen = _tree(html, url).css(selector)
    if not chosen:
        raise TransientError(f"{url} has no element {selector!r}")
    if len(chosen) > _MOST_CHOSEN:
        raise TransientError(f"{url} has {len(chosen)} elements {selector!r}, at most {_MOST_CHOSEN} are read")
    return "\n".join(" ".join(str(element.text(separator=" ")).split()) for element in chosen)


def text_of(html: str) -> str:
    """Return the text of HTML with single blanks. HTML that cannot be read becomes a note in brackets."""
    if "<" not in html and "&" not in html:
        return " ".join(html.split())
    try:
        body = _tree(html.encode("utf-8", "replace"), "this text").body
    except TransientError as error:
        return f"[not read: {error}]"
    return "" if body is None else " ".join(str(body.text(separator=" ")).split())


def _tree(html: bytes, url: str) -> Any:
    if len(html) > LONGEST:
        raise TransientError(f"{url} has more than {LONGEST} bytes of HTML")
    try:
        tree = tree_of(html)
    except ValueError as error:
        raise TransientError(f"{url} has HTML that is {error}") from None
    except ImportError:
        raise ConfigError("selectors need selectolax: pip install 'spar-agent[feeds]'", path=("selector",)) from None
    tree.strip_tags(_UNSEEN)
    return tree
