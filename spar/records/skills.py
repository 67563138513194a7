"""Skills in the Agent Skills format: a folder with a `SKILL.md`, whose front matter says what it is for; pure.

The front matter is the YAML that such files hold: keys with a text (plain, quoted, folded, literal), a list or a table
of them. It is read line by line, in one pass, and what is more than that is refused with its line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Final

from msgspec import Struct

FILE: Final = "SKILL.md"
_MOST_LINES: Final = 200
_LONGEST_NAME, _LONGEST_DESCRIPTION, _MOST_VARIABLES = 64, 1_024, 20
_NAME: Final = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
#: What every program is given anyway, in a form that no tool can have changed.
_OWN: Final = frozenset({"PATH", "HOME"})


class SkillText(Struct, frozen=True):
    """A skill as its file says: `body` are the instructions, `environment` names the variables that it needs."""

    name: str
    description: str
    body: str
    environment: tuple[str, ...] = ()


def parse_skill(text: str, folder: str) -> SkillText:
    """Read a `SKILL.md`; `folder` is the name of its folder, which is its own as well.

    Raises: ValueError, with what is wrong and what is expected.
    """
    head, body = _parted(text)
    found = _table(head, 2)
    name, description = found.get("name"), found.get("description")
    if not isinstance(name, str) or len(name) > _LONGEST_NAME or not _NAME.fullmatch(name):
        raise ValueError(
            f"its name is {_shown(name)}, expected at most {_LONGEST_NAME} small letters, digits and single hyphens"
        )
    if name != folder:
        raise ValueError(f"its name is {name!r}, expected that of its folder, {folder!r:.100}")
    if not isinstance(description, str) or not description.strip():
        raise ValueError("it has no description, which says what it does and when to use it")
    if len(description) > _LONGEST_DESCRIPTION:
        raise ValueError(f"its description has {len(description)} characters, expected at most {_LONGEST_DESCRIPTION}")
    if not body.strip():
        raise ValueError("it says nothing after its front matter")
    return SkillText(name, description.strip(), body.strip(), _environment(found))


def _parted(text: str) -> tuple[list[str], str]:
    """Return the lines of the front matter and what follows it. Raises: ValueError."""
    lines = text.split("\n")
    if lines[0].rstrip() != "---":
        raise ValueError("it does not begin with front matter: a line '---', name and description, a line '---'")
    for at, line in enumerate(lines[1 : _MOST_LINES + 1], 1):
        if line.rstrip() == "---":
            return lines[1:at], "\n".join(lines[at + 1 :])
    raise ValueError(f"its front matter has no end: no line '---' among the first {_MOST_LINES}")


def _environment(found: dict[str, Any]) -> tuple[str, ...]:
    """Return the variables that are needed. Raises: ValueError."""
    told = found.get("metadata")
    metadata: dict[str, Any] = told if isinstance(told, dict) else {}
    names: list[str] = []
    for given in (found.get("environment"), metadata.get("environment"), _openclaw(metadata)):
        listed = given.replace(",", " ").split() if isinstance(given, str) else given
        if not isinstance(listed, (list, type(None))):
            raise ValueError("its environment is a list of names")
        names += listed or []
    for name in names:
        if not isinstance(name, str) or not _VARIABLE.fullmatch(name):
            raise ValueError(f"its environment names {_shown(name)}, which is no name of a variable")
        if name in _OWN:
            raise ValueError(f"its environment names {name!r}, which every program has as spar sets it")
    if len(names) > _MOST_VARIABLES:
        raise ValueError(f"its environment names {len(names)} variables, expected at most {_MOST_VARIABLES}")
    return tuple(dict.fromkeys(names))


def _openclaw(metadata: dict[str, Any]) -> Any:
    """Return the variables as skills written for OpenClaw name them."""
    for key in ("openclaw", "requires"):
        inner = metadata.get(key)
        metadata = inner if isinstance(inner, dict) else {}
    return metadata.get("env")


def _shown(value: Any) -> str:
    return "missing" if value is None else f"{value!r:.100}"


# -- front matter


def _table(lines: Sequence[str], deepest: int) -> dict[str, Any]:
    """Return keys and values of lines that all begin at the left. Raises: ValueError."""
    found: dict[str, Any] = {}
    at = 0
    while at < len(lines):
        line = lines[at]
        at += 1
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        key, colon, rest = line.partition(":")
        if line[:1].isspace() or not colon or not key.strip() or (rest and not rest[0].isspace()):
            raise ValueError(f"its front matter has a line that is no 'key: value': {line.strip()!r:.100}")
        begin = at
        while at < len(lines) and (not lines[at].strip() or lines[at][:1].isspace() or lines[at].startswith("- ")):
            at += 1
        found[_unquoted(key.strip())] = _value(rest.strip(), _dedented(lines[begin:at]), deepest)
    return found


def _dedented(lines: Sequence[str]) -> list[str]:
    """Return lines without the spaces that all of them begin with."""
    depth = min((len(each) - len(each.lstrip()) for each in lines if each.strip()), default=0)
    return [each[depth:] for each in lines]


def _value(first: str, rest: list[str], deepest: int) -> Any:
    """Return the value that begins behind a key and goes on in the lines below it. Raises: ValueError."""
    if first[:1] in ("|", ">") and len(first) <= 3:
        joint = "\n" if first[0] == "|" else " "
        return joint.join(each.strip() if joint == " " else each for each in rest).strip()
    if first.startswith("#"):
        first = ""
    if first:
        return _scalar(" ".join([first, *(each.strip() for each in rest if each.strip())]))
    said = [each for each in rest if each.strip()]
    if not said:
        return None
    if all(each.startswith("- ") for each in said):
        return [_scalar(each[2:].strip()) for each in said]
    if deepest <= 0:
        raise ValueError(f"its front matter is nested too deep at {said[0]!r:.100}")
    return _table(rest, deepest - 1)


def _scalar(text: str) -> Any:
    """Return a text or a list in one line. Raises: ValueError."""
    if text[:1] == "{" or text[:2] == '["':
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            raise ValueError(f"its front matter has a table in one line that is no JSON: {text!r:.100}") from None
    if text[:1] == "[":
        if not text.endswith("]"):
            raise ValueError(f"its front matter has a list without an end: {text!r:.100}")
        return [_unquoted(each.strip()) for each in text[1:-1].split(",") if each.strip()]
    return _unquoted(text)


def _unquoted(text: str) -> str:
    """Return a plain or quoted text as it is meant. Raises: ValueError."""
    if text[:1] == '"' and text[-1:] == '"' and len(text) > 1:
        try:
            return str(json.loads(text))
        except ValueError:
            raise ValueError(f"its front matter has a quoted text that cannot be read: {text!r:.100}") from None
    if text[:1] == "'" and text[-1:] == "'" and len(text) > 1:
        return text[1:-1].replace("''", "'")
    return text.partition(" #")[0].rstrip()
