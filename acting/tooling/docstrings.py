"""Reader of docstrings: the descriptions of a function and its parameters, in the Google, numpy and Sphinx styles.

The library `docstring-parser` reads the docstring in each style; the style that finds most parameters counts.
(`griffe`, which other agent libraries use, must be given the style and takes ten times as long to import.) Nothing here
raises: a docstring that cannot be read gives no descriptions.
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
    """Return the description (the text before the first section) and the text of each parameter in `names`."""
    try:
        text = inspect.getdoc(function) or ""
        if _BARE.match(text):  # the first line is a title: `getdoc` removed the indentation of the lines below it
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
            parsed = parse(f"\n{text}")  # with the line break, the parser counts the indentation of the first line too
            by_name = {
                param.arg_name.lstrip("*"): " ".join((param.description or "").split()) for param in parsed.params
            }
        except Exception:  # this style cannot read it
            continue
        by_name = {name: text for name, text in by_name.items() if text and name in known}
        if (len(by_name), len(parsed.meta)) > best:
            best, description, texts = (len(by_name), len(parsed.meta)), (parsed.description or "").strip(), by_name
    return description, texts


@cache
def _styles() -> tuple[Callable[[str], Any], ...]:
    from docstring_parser import google, numpydoc, rest  # 4 ms

    # The parser splits only the sections of parameters into entries; other sections may hold any text.
    titles = [*((title, google.SectionType.MULTIPLE) for title in _TITLES.split("|")),
              *((title, google.SectionType.SINGULAR) for title in _OTHERS.split("|"))]  # fmt: skip
    sections = [google.Section(title, "param" if kind else "examples", kind) for title, kind in titles]
    return rest.parse, google.GoogleParser(sections).parse, numpydoc.parse
