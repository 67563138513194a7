"""The profiles of `spar init`: selections of blocks of the shipped configuration, so that its comments exist once.

`make docs` writes them to `spar/cli/templates/profile`, a test compares them. A block is a table with its comments;
`[[rules.calls]]` belongs to its rule. Settings that are commented out there are in force where a selection names their
block with "# " before it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct, field

from spar.cli import templates
from spar.cli.commands.config import PROFILES
from spar.config.lines import PACKAGED

FOLDER = Path(templates.__file__).parent / "profile"
_HEADER = re.compile(r"(?:# )?\[\[?([a-z_.]+)\]\]?(?:\s|$)")
_NAMED = re.compile(r'(?:# )?(name|use) = "([^"]+)"')
#: Beginning of a section's heading, which is copied above the first selected block of the section.
_PART = "# ---"


class Selection(Struct, frozen=True):
    """Selection of blocks. `changes` has new values by block and key."""

    blocks: tuple[str, ...]
    changes: dict[tuple[str, str], str] = field(default_factory=dict)


_COMMON_BLOCKS = ("acting", "approval", "budgets", "memory", "service", "log")
SELECTIONS = {
    "watch": Selection(
        ("agent", "health", "sensors.inbox", "sensors.host", "sensors.messages", "sensors.daily", "perception", "plan",
         "rules.file what was dropped", "rules.note high load", "rules.how is the host", "rules.take a note",
         "rules.a new day", "rules.answer the rest", "tools.note", "tools.files", "tools.notify", *_COMMON_BLOCKS),
        {("agent", "loop_interval"): '"adaptive"', ("log", "file"): '"spar.log"'},
    ),
    "assistant": Selection(
        ("agent", "runs", "sessions", "sensors.messages", "# plan", "rules.take a note", "rules.answer the rest",
         "tools.note", "tools.files", "tools.shell", "tools.http", *_COMMON_BLOCKS),
        {("agent", "loop_interval"): '"adaptive"', ("agent", "min_interval"): "0", ("plan", "use"): '"llm"',
         ("runs", "queue_mode"): '"steer"', ("sessions", "commands"): "true"},
    ),
    "bare": Selection(
        ("agent", "sensors.messages", "plan", "rules.take a note", "rules.answer the rest", "tools.note", "memory",
         "service", "log"),
    ),
}  # fmt: skip


def profile_text(name: str, whole: str) -> str:
    """Return the configuration of a profile.

    Args: whole: the text of the shipped `config.toml`.
    Raises: LookupError for a block or key that the file does not have.
    """
    selection = SELECTIONS[name]
    head, *blocks = _blocks(whole)
    first = f'# spar, profile "{name}": {PROFILES.get(name, "")}.\n'
    second = "# What is not here has its default; all settings with their comments come from: spar init all.toml\n"
    selected = [first, second, head[1].partition("\n")[2]]
    missing, changes, part = set(selection.blocks), dict(selection.changes), ""
    for key, text in blocks:
        if key == _PART:
            part = text
        elif names := missing & {key, f"# {key}"}:
            missing -= names
            text = text if key in names else _in_force(text)
            selected += [part, _with_changes(text, key, changes)]
            part = ""
    if missing or changes:
        raise LookupError(f"config.toml has no {sorted(missing) or sorted(changes)} for profile {name!r}")
    return "".join(selected).rstrip("\n") + "\n"


def _blocks(text: str) -> Iterator[tuple[str, str]]:
    """Yield the key and the text of each block; the first one is the head of the file, with the key ""."""
    key, lines, is_open = "", list[str](), False
    for line in text.splitlines(keepends=True):
        header = _HEADER.match(line)
        begins = line.startswith(_PART) or (header is not None and "." not in header[1]) or (
            header is not None and header[1].startswith("agent."))  # fmt: skip
        if begins:
            yield key, "".join(lines)
            key = _PART if header is None else f"{'# ' if line.startswith('# ') else ''}{header[1]}"
            lines, is_open = [], header is not None and "[[" in line.partition("#  ")[0][:5]
        elif is_open and (label := _NAMED.match(line)) and (label[1] == "name" or "." not in key):
            key = f"{key.partition('.')[0]}.{label[2]}"
            is_open = label[1] == "use"
        lines.append(line)
    yield key, "".join(lines)


def _in_force(text: str) -> str:
    """Return a block with its commented-out settings in force."""
    return "".join(line.removeprefix("# ") for line in text.splitlines(keepends=True))


def _with_changes(text: str, key: str, changes: dict[tuple[str, str], str]) -> str:
    """Return a block with the new values of its keys, also of commented-out ones. Applied changes are removed from
    `changes`."""
    for block, name in [place for place in changes if place[0] == key]:
        line = re.compile(rf"^(?:# )?({re.escape(name)} = )(\"[^\"]*\"|[^\s#]+)( *)", re.MULTILINE)
        if not line.search(text):
            continue
        value = changes.pop((block, name))

        def put(match: re.Match[str], value: str = value) -> str:
            blanks = max(len(match[2]) + len(match[3]) - len(value), 1)
            return f"{match[1]}{value}{' ' * blanks}"

        text = line.sub(put, text, count=1)
    return text


def write() -> None:
    """Write the files of all profiles."""
    for name in SELECTIONS:
        (FOLDER / f"{name}.toml.in").write_text(profile_text(name, PACKAGED.read_text(encoding="utf-8")), "utf-8")
