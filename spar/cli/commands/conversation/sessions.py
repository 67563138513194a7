"""Commands for sessions: show, set titles and defaults; the parts of the next request to a model."""

from __future__ import annotations

from typing import Any

import click

from spar.cli import complete
from spar.cli.blocks import Block, Fields, table
from spar.cli.client import ask
from spar.cli.context import Options, fail, show
from spar.cli.tables import hook_line, local
from spar.data.text import one_line
from spar.operations import sessions as operations
from spar.service import exit_codes as exits
from spar.session.control.session_views import SessionView

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
    show(options, view, *(() if options.as_json else session_blocks(given, view)))


def _value(name: str, text: str) -> Any:
    """Return the value of an option; None, which removes it, for an empty text."""
    if not text:
        return None
    if name == "timeout":
        from spar.config.tables.fields import seconds

        number = seconds(text)
        return text if number is None else number
    return _FLAGS.get(text.lower(), text) if name == "verbose" else text


def session_blocks(given: object, session: SessionView) -> list[Fields]:
    """Return a session as fields."""
    origin = " ".join(filter(None, (session.origin.door, session.origin.channel, session.origin.sender)))
    lines = [
        ("session", session.key), ("id", session.id), ("title", session.title),
        ("defaults", ", ".join(f"{name} = {operations.word_of(value)}" for name, value in session.defaults.items())),
        ("origin", origin), ("begun", local(session.created_at)), ("conversation since", local(session.began_at)),
        ("last used", local(session.used_at)), ("state", session.state), ("runs", ", ".join(session.runs)),
        ("workspace", session.workspace),
    ]  # fmt: skip
    return [Fields("", tuple((name, value) for name, value in lines if value), width=19, indent=0)]


@click.command()
@click.argument("session", default="main", shell_complete=complete.sessions)
@click.option("--message", "-m", default="", help="The message of the request, if no run is open.")
@click.option("--full", is_flag=True, help="Print the texts as well.")
@click.pass_obj
def prompt(options: Options, session: str, message: str, full: bool) -> None:
    """Show the parts of the next request to the model, with size and origin; nothing is sent.

    Tokens are estimated. Hooks are called as for a request, with the reason "preview".

    \b
    Examples:
      spar sessions prompt
      spar sessions prompt alice --message "how is the weather?"
      spar sessions prompt --full
      spar --json sessions prompt alice
    """
    answer = ask(options, operations.prompt, operations.PromptChoice(session, message, full))
    show(options, answer, *_request_blocks(answer))


def _request_blocks(request: dict[str, Any]) -> list[Block]:
    """Return a request as blocks: the table of its parts, changes by hooks, problems, and texts if included."""
    parts = request["parts"]
    rows = [(part["part"], f"{part['chars']:,}", f"{part['tokens']:,}", _origin(part)) for part in parts]
    rows.append(("all", f"{request['chars']:,}", f"{request['tokens']:,}", _about_request(request)))
    blocks: list[Block] = [table(("part", ">chars", ">tokens", "origin"), rows)]
    blocks += [one_line(hook_line(changes)) for changes in request["hooks"]]
    blocks += [one_line(f"problem: {problem}") for problem in request["problems"]]
    for part in parts:
        if "text" in part:
            blocks += [f"\n--- {part['part']} ({one_line(part['origin'])})", part["text"]]
    return blocks


def _about_request(request: dict[str, Any]) -> str:
    return f"trust: {request['trust']}{', model: ' + request['model'] if request['model'] else ''}"


def _origin(part: dict[str, Any]) -> str:
    return f"{part['origin']} ({part['note']})" if part["note"] else str(part["origin"])
