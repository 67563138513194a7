"""Command `prompt`: shows the parts of a session's next request to a model."""

from __future__ import annotations

from typing import Any

import click

from spar.cli import complete
from spar.cli.blocks import Block, table
from spar.cli.context import Options, show
from spar.cli.nouns import ask
from spar.cli.tables import hook_line
from spar.data.text import one_line
from spar.operations.sessions import PromptChoice
from spar.operations.sessions import prompt as show_prompt


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
    answer = ask(options, show_prompt, PromptChoice(session, message, full))
    show(options, answer, *_blocks(answer))


def _blocks(request: dict[str, Any]) -> list[Block]:
    """Return a request as blocks: the table of its parts, changes by hooks, problems, and texts if included."""
    parts = request["parts"]
    rows = [(part["part"], f"{part['chars']:,}", f"{part['tokens']:,}", _origin(part)) for part in parts]
    rows.append(("all", f"{request['chars']:,}", f"{request['tokens']:,}", _about(request)))
    blocks: list[Block] = [table(("part", ">chars", ">tokens", "origin"), rows)]
    blocks += [one_line(hook_line(changes)) for changes in request["hooks"]]
    blocks += [one_line(f"problem: {problem}") for problem in request["problems"]]
    for part in parts:
        if "text" in part:
            blocks += [f"\n--- {part['part']} ({one_line(part['origin'])})", part["text"]]
    return blocks


def _about(request: dict[str, Any]) -> str:
    return f"trust: {request['trust']}{', model: ' + request['model'] if request['model'] else ''}"


def _origin(part: dict[str, Any]) -> str:
    return f"{part['origin']} ({part['note']})" if part["note"] else str(part["origin"])
