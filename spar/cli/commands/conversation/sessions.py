"""Commands for sessions: set titles and defaults; the parts of the next request to a model."""

from __future__ import annotations

from typing import Any

import click
from msgspec import UNSET

from spar.cli import complete
from spar.cli.blocks import Block, table
from spar.cli.client import ask
from spar.cli.context import Options, fail, show
from spar.cli.nouns import record
from spar.cli.tables import hook_line
from spar.data.text import one_line
from spar.operations import sessions as operations
from spar.service import exit_codes as exits

#: The options of runs for which a session may have defaults.
DEFAULTS = ("model", "thinking", "timeout", "verbose", "instructions")
_FLAGS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


@click.command("set")
@click.argument("session", shell_complete=complete.sessions)
@click.argument("values", nargs=-1, required=True, metavar="NAME=VALUE...")
@click.pass_obj
def set_session(options: Options, session: str, values: tuple[str, ...]) -> None:
    """Set a session's title, or default options of its runs; an empty value removes one.

    \b
    Examples:
      spar sessions set alice thinking=high
      spar sessions set alice title="Holidays" model= timeout=120
    """
    body: dict[str, Any] = {}
    for assignment in values:
        name, equals, value = assignment.partition("=")
        if not equals or name not in ("title", *DEFAULTS):
            known = ", ".join(("title", *DEFAULTS))
            fail(f"{assignment!r}: must be NAME=VALUE; names: {known}", exits.USAGE)
        if name == "title":
            body["title"] = value
        else:
            body.setdefault("defaults", {})[name] = _value(name, value)
    given = operations.SessionBody(session, **body)
    view = ask(options, operations.change, given, is_typed=not options.as_json)
    show(options, view, *(() if options.as_json else [record(operations.FIELDS, view)]))


def _value(name: str, text: str) -> Any:
    """Return the value of an option; None, which removes it, for an empty text."""
    if not text:
        return None
    if name == "timeout":
        from spar.config.tables.fields import seconds

        number = seconds(text)
        return text if number is None else number
    return _FLAGS.get(text.lower(), text) if name == "verbose" else text


def prompt_blocks(given: object, request: operations.Prompt) -> list[Block]:
    """Return a request as blocks: the table of its parts, changes by hooks, problems, and texts if included."""
    rows = [(part.part, f"{part.chars:,}", f"{part.tokens:,}", f"{part.origin}{f' ({part.note})' if part.note else ''}")
            for part in request.parts]  # fmt: skip
    about = f"trust: {request.trust}{f', model: {request.model}' if request.model else ''}"
    rows.append(("all", f"{request.chars:,}", f"{request.tokens:,}", about))
    blocks: list[Block] = [table(("part", ">chars", ">tokens", "origin"), rows)]
    blocks += [one_line(hook_line(changes)) for changes in request.hooks]
    blocks += [one_line(f"problem: {problem}") for problem in request.problems]
    for part in request.parts:
        if part.text is not UNSET:
            blocks += [f"\n--- {part.part} ({one_line(part.origin)})", part.text]
    return blocks
