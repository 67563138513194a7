"""Commands for experiences beyond those that follow from the table: show, export, import, forget."""

from __future__ import annotations

from pathlib import Path

import click

from spar.cli.blocks import counted
from spar.cli.client import ask
from spar.cli.context import Options, fail, file_errors, show
from spar.cli.offline import from_store
from spar.operations import memory as operations
from spar.service import exit_codes as exits

#: Largest part of an import that is sent to the running service at once, in bytes.
_PART = 512 * 1024


@click.command("export")
@click.argument("file", type=click.Path(dir_okay=False, writable=True))
@click.pass_obj
def export(options: Options, file: str) -> None:
    """Write all experiences to a file, one JSON object a line.

    \b
    Example:
      spar memory export experiences.jsonl
    """
    with file_errors(file):
        number = from_store(options, lambda store: store.export(file))
    show(options, {"exported": number}, f"{number} experiences written to {file}")


@click.command("import")
@click.argument("file", type=click.Path(dir_okay=False, exists=True))
@click.option("--trust", is_flag=True, help="Accept the trust, the counts and the benefits that the file claims.")
@click.pass_obj
def import_(options: Options, file: str, trust: bool) -> None:
    """Import the experiences of a file of JSON lines. They are untrusted, unless you trust the file; existing ones
    stay as they are.

    \b
    Examples:
      spar memory import experiences.jsonl
      spar memory import --trust my-own-export.jsonl
    """
    try:
        lines = Path(file).read_text("utf-8").splitlines(keepends=True)
    except OSError as error:
        fail(f"{file}: cannot be read: {error}", exits.FAILED)
    except UnicodeDecodeError as error:
        fail(f"{file}: cannot be read: {error}", exits.DAMAGED)

    try:
        bodies = [operations.ImportBody(part, trust) for part in _parts(lines)]
        number = sum(ask(options, operations.import_, body)["imported"] for body in bodies)
    except click.ClickException as error:
        if error.exit_code == exits.USAGE:  # the lines were refused
            fail(error.message, exits.DAMAGED)
        raise
    total = sum(not line.isspace() for line in lines)
    here = f"; {total - number} of {total} were here already, and stay as they are" if number < total else ""
    how = "as the file says" if trust else "untrusted"
    show(options, {"imported": number}, f"{counted(number, 'new experience')}, {how}{here}")


def _parts(lines: list[str]) -> list[str]:
    """Join lines to parts of a size that one request can have."""
    parts, size = [""], 0
    for line in lines:
        if size and size + len(line.encode()) > _PART:
            parts, size = [*parts, ""], 0
        parts[-1] += line
        size += len(line.encode())
    return parts
