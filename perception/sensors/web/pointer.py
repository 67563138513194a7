"""JSON pointers (RFC 6901): from `/disks/0/name` to the value at that place."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final

from pydantic import AfterValidator

_FORM = re.compile(r"(?:/(?:[^~/]|~[01])*)*")
MISSING: Final[Any] = type("Missing", (), {"__repr__": lambda self: "MISSING", "__bool__": lambda self: False})()


def check_pointer(text: str) -> str:
    """Return the pointer. Raises: ValueError for an invalid one."""
    if len(text) > 1000 or not _FORM.fullmatch(text):
        raise ValueError(f'{text!r:.100} is no JSON pointer; an example: /data/0/name, and "" for the whole')
    return text


#: Type of an option that is a JSON pointer.
Pointer = Annotated[str, AfterValidator(check_pointer)]


def at_pointer(value: Any, pointer: str) -> Any:
    """Return the value at a pointer; MISSING when there is none."""
    for step in pointer.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict):
            value = value.get(name, MISSING)
        elif isinstance(value, list) and name.isascii() and name.isdigit() and len(name) < 10:
            value = value[int(name)] if int(name) < len(value) else MISSING
        else:
            return MISSING
    return value
