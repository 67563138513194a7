"""Command `new`: writes a package for a user's own part, with a test that checks it against its contract."""

from __future__ import annotations

import re
from pathlib import Path

import click
from msgspec import Struct

from spar.cli.context import Options, fail, file_errors, show
from spar.cli.templates import template
from spar.data.text import safe_line, unknown
from spar.parts.registry import Registry
from spar.service import exit_codes as exits

#: The form of a part's name, which config.toml, the package and, with underscores, its module use.
NAME = re.compile(r"[a-z](?:-?[a-z0-9]){0,39}", re.ASCII)


class _Kind(Struct, frozen=True):
    """Kind of part: its group of entry points, its lines for config.toml, and whether the part is a function."""

    group: str
    usage: str
    is_function: bool = False


KINDS = {
    "sensor": _Kind("spar.sensors", '[[sensors]]\nuse = "@name@"\noptions = { path = "watched.txt" }'),
    "tool": _Kind("spar.tools", '[[tools]]\nuse = "@name@"', is_function=True),
    "planner": _Kind("spar.planners", '[plan]\nuse = "@name@"\noptions = { tool = "note" }'),
}


_OF_CLASS = "Its options are the parameters of `@attribute@` in `@module@.py`; `spar config check` checks them."
_OF_FUNCTION = "A planner is told its parameters from the types and the docstring of `@attribute@` in `@module@.py`."


@click.command()
@click.argument("kind", metavar="sensor|tool|planner")
@click.argument("name")
@click.argument("folder", metavar="[DIR]", type=click.Path(path_type=Path), required=False)
@click.pass_obj
def new(options: Options, kind: str, name: str, folder: Path | None) -> None:
    """Write a package with a part of your own into DIR (./NAME): the part, its entry point, a test, a README.

    The test checks the part against its contract. DIR must be new or empty.

    \b
    Examples:
      spar new sensor tide
      spar new tool word-count ~/src/word-count
      spar new planner night-watch
    """
    if kind not in KINDS:
        fail(unknown("kind of part", safe_line(kind, 40), KINDS), exits.USAGE)
    _check_name(name, KINDS[kind].group)
    folder = folder or Path(name)
    files = texts(kind, name)
    _write(folder, files)
    usage = KINDS[kind].usage.replace("@name@", name)
    lines = [f"{folder} written: {', '.join(files)}", f"next: pip install -e '{folder}[test]' && pytest {folder}",
             "then, in config.toml:", *(f"  {line}" for line in usage.splitlines())]  # fmt: skip
    show(options, {"folder": str(folder), "files": list(files)}, "\n".join(lines))


def texts(kind: str, name: str) -> dict[str, str]:
    """Return the texts of a package's files, by file name."""
    module = f"spar_{name.replace('-', '_')}"
    title = "".join(word.capitalize() for word in name.split("-"))
    function = name.replace("-", "_")
    of_kind = KINDS[kind]
    words = {
        "usage": of_kind.usage,  # replaced first, because its text contains other placeholders
        "about": _OF_FUNCTION if of_kind.is_function else _OF_CLASS,
        "kind": kind,
        "name": name,
        "module": module,
        "group": of_kind.group,
        "class": f"{title}{kind.capitalize()}",
        "function": f"{function}_tool",
        "attribute": f"{function}_tool" if of_kind.is_function else f"{title}{kind.capitalize()}",
    }
    files = {
        "pyproject.toml": template("common", "pyproject.toml"),
        "README.md": template("common", "README.md"),
        f"{module}.py": template(kind, "module.py"),
        f"test_{module}.py": template(kind, "test.py"),
    }
    for word, text in words.items():
        files = {file: body.replace(f"@{word}@", text) for file, body in files.items()}
    return files


def _check_name(name: str, group: str) -> None:
    """End the command if a name is malformed or in use."""
    if not NAME.fullmatch(name):
        fail(f"name {safe_line(name, 60)!r}: must be small letters, digits and single hyphens between them, begin with "
             "a letter and have at most 40 characters, e.g. night-watch", exits.USAGE)  # fmt: skip
    if name in Registry().names(group):
        fail(f"name {name!r}: there is a part of this name under {group} already (spar config parts); choose another",
             exits.USAGE)  # fmt: skip


def _write(folder: Path, files: dict[str, str]) -> None:
    """Write the files into a new or empty folder. Any other folder ends the command."""
    with file_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            fail(f"{folder}: is there already and not empty, and stays as it is; name another folder",
                 exits.CANNOT_CREATE)  # fmt: skip
        for name, text in files.items():
            with (folder / name).open("x", encoding="utf-8") as file:
                file.write(text)
