"""Reads the descriptions of a function and its parameters from a docstring: Google, numpy and Sphinx styles.

Read by `docstring-parser`; of the styles, the one that finds most is taken. (`griffe`, which other agent libraries
use, has to be told the style and costs ten times as much to import.) Never raises: a docstring that cannot be read
describes nothing.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

_TITLES = "Args|Arguments|Parameters|Params"
_OTHERS = "Return|Returns|Yield|Yields|Raises|Example|Examples|Note|Notes|Attributes|See Also|Source"
# Our own short form, `Args: city: its name`: the parser wants a line break behind the title.
_ONE_LINE = re.compile(rf"^({_TITLES}|{_OTHERS}):[ \t]+(?=\S)", re.MULTILINE)
_BARE = re.compile(rf"({_TITLES}):\n(?=\S)(?!(?:{_TITLES}|{_OTHERS}):$)", re.MULTILINE)


def read_docstring(function: Any, names: Iterable[str]) -> tuple[str, dict[str, str]]:
    """The description (what stands before the first section) and a text for each documented parameter of `names`."""
    try:
        text = inspect.getdoc(function) or ""
        if _BARE.match(text):  # the first line is a title, and what stands below lost its indentation with it
            text = text.replace("\n", "\n    ")
        text = _ONE_LINE.sub(r"\1:\n    ", text)
    except Exception:  # a __doc__ that is no text
        return "", {}
    if not text:
        return "", {}
    known, best = set(names), (0, 0)
    description, texts = text.strip(), {}
    for parse in _styles():
        try:
            found = parse(f"\n{text}")  # so that its first line counts when it looks for indentation
            told = {each.arg_name.lstrip("*"): " ".join((each.description or "").split()) for each in found.params}
        except Exception:  # this style cannot read it
            continue
        told = {name: text for name, text in told.items() if text and name in known}
        if (len(told), len(found.meta)) > best:
            best, description, texts = (len(told), len(found.meta)), (found.description or "").strip(), told
    return description, texts


@cache
def _styles() -> tuple[Callable[[str], Any], ...]:
    from docstring_parser import google, numpydoc, rest  # 4 ms

    # Only the parameters are taken apart: in the other sections anything may be written.
    titles = [*((title, google.SectionType.MULTIPLE) for title in _TITLES.split("|")),
              *((title, google.SectionType.SINGULAR) for title in _OTHERS.split("|"))]  # fmt: skip
    sections = [google.Section(title, "param" if kind else "examples", kind) for title, kind in titles]
    return rest.parse, google.GoogleParser(sections).parse, numpydoc.parse
