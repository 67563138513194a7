"""HTML of strangers as a tree, within bounds; `selectolax` parses it.

The parser's time grows with the product of nesting depth and length: a caller bounds the length, this module the depth.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any, Final

#: Depth of nested elements.
DEEPEST: Final = 300
_TAG = re.compile(rb"<(/?)([a-zA-Z][a-zA-Z0-9]{0,20})")
_EMPTY: Final = frozenset(b"area base br col embed hr img input link meta source track wbr".split())
#: Elements that in practice end the previous one of their name.
_SIBLINGS: Final = frozenset(b"p li td tr th dd dt option".split())


def tree_of(html: bytes) -> Any:
    """Return the tree of HTML. Raises: ImportError without the library; ValueError for HTML that is nested too deeply.

    It blocks, so call it in a thread.
    """
    from selectolax.lexbor import LexborHTMLParser

    if _depth(html) > DEEPEST:
        raise ValueError(f"nested deeper than {DEEPEST} elements")
    return LexborHTMLParser(html)


def _depth(html: bytes) -> int:
    """Return approximately the largest depth of nested elements."""
    open_, depth, deepest = Counter[bytes](), 0, 0
    for end, name in _TAG.findall(html):
        tag = name.lower()
        if end:
            if open_[tag]:
                open_[tag] -= 1
                depth -= 1
        elif tag not in _EMPTY and not (tag in _SIBLINGS and open_[tag]):
            open_[tag] += 1
            depth += 1
            deepest = max(deepest, depth)
    return deepest
