"""What a docstring says of a function and of each of its parameters: Google, numpy and reST styles. Pure."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from typing import Any

_SECTION = re.compile(
    r"^(Args|Arguments|Parameters|Params|Returns?|Yields?|Raises|Examples?|Notes?|Source|Attributes|See Also)(:.*)?$"
)
_PARAMETERS = ("Args", "Arguments", "Parameters", "Params")
_ENTRY = re.compile(r"^\s*\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$")
_REST = re.compile(r"^\s*:param\s+(?:[^:]*\s)?\*{0,2}(\w+)\s*:\s*(.*)$")


def read(function: Any, names: Iterable[str]) -> tuple[str, dict[str, str]]:
    """The description (what stands before the first section) and a text for each documented parameter of `names`."""
    try:
        lines = (inspect.getdoc(function) or "").splitlines()
    except Exception:  # a __doc__ that is no text
        return "", {}
    known = set(names)
    summary: list[str] = []
    found: dict[str, list[str]] = {}
    section, current = "", ""
    for line in lines:
        heading = _SECTION.match(line)
        entry = _REST.match(line)
        if entry is None and heading:
            section, current = heading[1], ""
            line = (heading[2] or "").removeprefix(":")  # `Args: city: its name` on one line
        elif entry is None and line.startswith(":"):
            section, current = "Returns", ""
        if entry is None and section in _PARAMETERS:
            entry = _ENTRY.match(line)
        if entry and entry[1] in known:
            section, current = "Args", entry[1]
            found[current] = [_text(entry[2], numpy=_is_underlined(lines))]
        elif current and line.startswith((" ", "\t")):
            found[current].append(line.strip())
        elif not section:
            summary.append(line)
        elif line.strip():
            current = ""
    return "\n".join(summary).strip(), {name: " ".join(parts).strip() for name, parts in found.items() if any(parts)}


def _is_underlined(lines: list[str]) -> bool:
    return any(line.startswith("---") for line in lines)


def _text(rest: str, *, numpy: bool) -> str:
    # In numpy's style the colon is followed by the type, and the text stands below.
    return "" if numpy else rest.strip()
