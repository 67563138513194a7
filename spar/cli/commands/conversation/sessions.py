"""Command that sets the title and the defaults of a session."""

from __future__ import annotations

from typing import Any

import click

from spar.cli import complete
from spar.cli.client import ask
from spar.cli.context import Options, fail, show
from spar.cli.tables import record
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
