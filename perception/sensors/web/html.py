"""Text of HTML and of parts of it, within bounds; `selectolax` parses it. Blocking.

The parser's time grows with the product of nesting depth and length, so both are bounded before.
"""

from __future__ import annotations

import re
from typing import Any, Final

from spar.errors import ConfigError, TransientError

#: Bounds: bytes of HTML, depth of nested elements, elements that a selector may choose.
LONGEST: Final = 1 << 20
DEEPEST: Final = 300
_MOST_CHOSEN: Final = 1000
_TAG = re.compile(rb"<(/?)([a-zA-Z][a-zA-Z0-9]{0,20})")
_EMPTY: Final = frozenset(b"area base br col embed hr img input link meta source track wbr p li td tr th dd dt".split())
_UNSEEN: Final = ["script", "style", "template", "noscript", "svg"]


def check_selector(selector: str) -> None:
    """Check that the library is installed and the selector can be read. Raises: ConfigError."""
    parser = _parser()
    try:
        parser(b"<p>").css(selector)
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
    if _depth(html) > DEEPEST:
        raise TransientError(f"{url} has HTML that is nested deeper than {DEEPEST} elements")
    tree = _parser()(html)
    tree.strip_tags(_UNSEEN)
    return tree


def _parser() -> Any:
    try:
        from selectolax.lexbor import LexborHTMLParser
    except ImportError:
        raise ConfigError("selectors need selectolax: pip install 'spar-agent[feeds]'", path=("selector",)) from None
    return LexborHTMLParser


def _depth(html: bytes) -> int:
    depth = deepest = 0
    for end, name in _TAG.findall(html):
        if name.lower() in _EMPTY:
            continue
        depth = max(depth - 1, 0) if end else depth + 1
        deepest = max(deepest, depth)
    return deepest
