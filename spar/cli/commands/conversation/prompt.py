"""Command for what a model is told: the parts of a session's next request."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import click

from spar.cli import complete
from spar.cli.blocks import Block, table
from spar.cli.client import service
from spar.cli.context import Options, show
from spar.cli.tables import hook_line
from spar.data.text import one_line


@click.command()
@click.argument("session", default="main", shell_complete=complete.sessions)
@click.option("--message", "-m", default="", help="The message that the request is about, if no run goes on.")
@click.option("--full", is_flag=True, help="Print the texts as well.")
@click.pass_obj
def prompt(options: Options, session: str, message: str, full: bool) -> None:
    """Show what stands in the next request to the model, by part, size and origin; nothing is sent.

    Tokens are estimated. Hooks are asked as for a request, with the reason "preview".

    \b
    Examples:
      spar prompt
      spar prompt alice --message "how is the weather?"
      spar prompt --full
      spar --json prompt alice
    """
    with service(options) as client:
        found = client.get(f"/v1/sessions/{quote(session, safe='')}/prompt", message=message or None,
                           full="1" if full else None)  # fmt: skip
    show(options, found, *_told(found))


def _told(found: dict[str, Any]) -> list[Block]:
    parts = found["parts"]
    rows = [(each["part"], f"{each['chars']:,}", f"{each['tokens']:,}", _origin(each)) for each in parts]
    rows.append(("all", f"{found['chars']:,}", f"{found['tokens']:,}", _about(found)))
    told: list[Block] = [table(("part", ">chars", ">tokens", "origin"), rows)]
    told += [one_line(hook_line(each)) for each in found["hooks"]]
    told += [one_line(f"problem: {each}") for each in found["problems"]]
    for each in parts:
        if "text" in each:
            told += [f"\n--- {each['part']} ({one_line(each['origin'])})", each["text"]]
    return told


def _about(found: dict[str, Any]) -> str:
    return f"trust: {found['trust']}{', model: ' + found['model'] if found['model'] else ''}"


def _origin(part: dict[str, Any]) -> str:
    return f"{part['origin']} ({part['note']})" if part["note"] else str(part["origin"])
