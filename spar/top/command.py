"""Command `top`: runs the application once the terminal, the library and the permission are there."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec

import click

from spar.cli.client import service
from spar.cli.context import Options, fail
from spar.client.async_client import AsyncClient
from spar.client.client import NotRunningError
from spar.operations import agent as operations
from spar.service import exit_codes as exits


@click.command()
@click.option("--read-only", "is_read_only", is_flag=True, help="Switch answers off, for example for a public screen.")
@click.pass_obj
def top(options: Options, is_read_only: bool) -> None:
    """Show live what the agent does: its cycles as they come, and on a second page sessions, runs, what waits for you,
    budgets, health, and what happens.

    Approvals can be answered in it; ? shows the keys, q ends it. It needs a terminal and the extra "top".

    \b
    Examples:
      spar top
      spar top --read-only
    """
    if find_spec("textual") is None:
        fail("spar top draws with Textual, which is not installed: pip install 'spar-agent[top]'; or: spar status",
             exits.UNAVAILABLE)  # fmt: skip
    if options.as_json:
        fail("spar top draws on a terminal and has no JSON; ask for it with: spar status --json", exits.USAGE)
    if not (sys.stdin.isatty() and sys.stdout.isatty()) or os.environ.get("TERM") == "dumb":
        fail("spar top needs a terminal whose cursor moves; elsewhere: spar status", exits.USAGE)
    try:
        with service(options, may_be_absent=True) as client:
            client.answer(operations.status, operations.StatusChoice(lanes=False))
    except NotRunningError:
        pass  # it is waited for; the service of another user has ended the command
    from spar.top.app import ANSWER_WITHIN, Top

    Top(AsyncClient(options.state_dir(), timeout=ANSWER_WITHIN), is_read_only=is_read_only).run()
