"""Skills in the Agent Skills format: a folder with a `SKILL.md`, whose front matter states its purpose; pure.

The front matter is the subset of YAML that such files use: keys with a text (plain, quoted, folded, literal), a list or
a table of them. It is read line by line, in one pass; any other syntax is refused with its line.
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
#: Variables that every program gets anyway, with a value that no tool can change.
_OWN: Final = frozenset({"PATH", "HOME"})


class SkillText(Struct, frozen=True):
    """Skill as its file states it: `body` are the instructions, `environment` names the variables that it needs."""

    name: str
    description: str
    body: str
    environment: tuple[str, ...] = ()


def parse_skill(text: str, folder: str) -> SkillText:
    """Return the skill of a `SKILL.md`; `folder` is the name of its folder and must be the name of the skill.

    Raises: ValueError, with what is wrong and what is expected.
    """
    head, body = _split(text)
    table = _table(head, 2)
    name, description = table.get("name"), table.get("description")
    if not isinstance(name, str) or len(name) > _LONGEST_NAME or not _NAME.fullmatch(name):
        raise ValueError(
            f"its name is {_show(name)}, expected at most {_LONGEST_NAME} small letters, digits and single hyphens"
        )
    if name != folder:
        raise ValueError(f"its name is {name!r}, expected that of its folder, {folder!r:.100}")
    if not isinstance(description, str) or not description.strip():
        raise ValueError("it has no description, which says what it does and when to use it")
    if len(description) > _LONGEST_DESCRIPTION:
        raise ValueError(f"its description has {len(description)} characters, expected at most {_LONGEST_DESCRIPTION}")
    if not body.strip():
        raise ValueError("it says nothing after its front matter")
    return SkillText(name, description.strip(), body.strip(), _environment(table))


def _split(text: str) -> tuple[list[str], str]:
    """Return the lines of the front matter, and the text after it. Raises: ValueError."""
    lines = text.split("\n")
    if lines[0].rstrip() != "---":
        raise ValueError("it does not begin with front matter: a line '---', name and description, a line '---'")
    for at, line in enumerate(lines[1 : _MOST_LINES + 1], 1):
        if line.rstrip() == "---":
            return lines[1:at], "\n".join(lines[at + 1 :])
    raise ValueError(f"its front matter has no end: no line '---' among the first {_MOST_LINES}")


def _environment(table: dict[str, Any]) -> tuple[str, ...]:
    """Return the names of the needed variables. Raises: ValueError."""
    stated = table.get("metadata")
    metadata: dict[str, Any] = stated if isinstance(stated, dict) else {}
    names: list[str] = []
    for value in (table.get("environment"), metadata.get("environment"), _openclaw(metadata)):
        items = value.replace(",", " ").split() if isinstance(value, str) else value
        if not isinstance(items, (list, type(None))):
            raise ValueError("its environment is a list of names")
        names += items or []
    for name in names:
        if not isinstance(name, str) or not _VARIABLE.fullmatch(name):
            raise ValueError(f"its environment names {_show(name)}, which is no name of a variable")
        if name in _OWN:
            raise ValueError(f"its environment names {name!r}, which every program has as spar sets it")
    if len(names) > _MOST_VARIABLES:
        raise ValueError(f"its environment names {len(names)} variables, expected at most {_MOST_VARIABLES}")
    return tuple(dict.fromkeys(names))


def _openclaw(metadata: dict[str, Any]) -> Any:
    """Return the variables as skills written for OpenClaw list them."""
    for key in ("openclaw", "requires"):
        inner = metadata.get(key)
        metadata = inner if isinstance(inner, dict) else {}
    return metadata.get("env")


def _show(value: Any) -> str:
    return "missing" if value is None else f"{value!r:.100}"


# -- front matter


def _table(lines: Sequence[str], deepest: int) -> dict[str, Any]:
    """Return keys and values of lines that all begin at the left. Raises: ValueError."""
    table: dict[str, Any] = {}
    at = 0
    while at < len(lines):
        line = lines[at]
        at += 1
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        key, colon, first_text = line.partition(":")
        if line[:1].isspace() or not colon or not key.strip() or (first_text and not first_text[0].isspace()):
            raise ValueError(f"its front matter has a line that is no 'key: value': {line.strip()!r:.100}")
        begin = at
        while at < len(lines) and (not lines[at].strip() or lines[at][:1].isspace() or lines[at].startswith("- ")):
            at += 1
        table[_unquoted(key.strip())] = _value(first_text.strip(), _dedent(lines[begin:at]), deepest)
    return table


def _dedent(lines: Sequence[str]) -> list[str]:
    """Return the lines without the spaces that all of them begin with."""
    depth = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    return [line[depth:] for line in lines]


def _value(first: str, lines: list[str], deepest: int) -> Any:
    """Return the value that begins after a key and continues in the lines below. Raises: ValueError."""
    if first[:1] in ("|", ">") and len(first) <= 3:
        joint = "\n" if first[0] == "|" else " "
        return joint.join(line.strip() if joint == " " else line for line in lines).strip()
    if first.startswith("#"):
        first = ""
    if first:
        return _scalar(" ".join([first, *(line.strip() for line in lines if line.strip())]))
    entries = [line for line in lines if line.strip()]
    if not entries:
        return None
    if all(line.startswith("- ") for line in entries):
        return [_scalar(line[2:].strip()) for line in entries]
    if deepest <= 0:
        raise ValueError(f"its front matter is nested too deep at {entries[0]!r:.100}")
    return _table(lines, deepest - 1)


def _scalar(text: str) -> Any:
    """Return a text or a list that stands in one line. Raises: ValueError."""
    if text[:1] == "{" or text[:2] == '["':
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            raise ValueError(f"its front matter has a table in one line that is no JSON: {text!r:.100}") from None
    if text[:1] == "[":
        if not text.endswith("]"):
            raise ValueError(f"its front matter has a list without an end: {text!r:.100}")
        return [_unquoted(item.strip()) for item in text[1:-1].split(",") if item.strip()]
    return _unquoted(text)


def _unquoted(text: str) -> str:
    """Return a plain or quoted text without its quotes. Raises: ValueError."""
    if text[:1] == '"' and text[-1:] == '"' and len(text) > 1:
        try:
            return str(json.loads(text))
        except ValueError:
            raise ValueError(f"its front matter has a quoted text that cannot be read: {text!r:.100}") from None
    if text[:1] == "'" and text[-1:] == "'" and len(text) > 1:
        return text[1:-1].replace("''", "'")
    return text.partition(" #")[0].rstrip()
