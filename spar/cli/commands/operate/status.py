"""Commands `status` and `top`: show the status of the running service, once or repeatedly, or live on a terminal."""

from __future__ import annotations

import os
import sys
import time
from importlib.util import find_spec

import click

from spar.cli.client import ending, service
from spar.cli.context import Options, fail, rendered, show, write
from spar.cli.status import status_blocks
from spar.client.client import Client, NotRunningError, ServiceError
from spar.operations import agent as operations
from spar.service import exit_codes as exits

#: Control sequence that clears a terminal and moves the cursor to its beginning.
_CLEAR = "\x1b[H\x1b[2J\x1b[3J"


@click.command()
@click.option(
    "--watch", "-w", "is_watched", is_flag=True, help="Repeat until Ctrl-C; on a terminal the screen is redrawn."
)
@click.option("--every", type=click.FloatRange(0.1, 3600), default=2.0, show_default=True,
              help="Seconds between two requests of --watch.")  # fmt: skip
@click.option("--next", "is_next", is_flag=True, help="Show instead what will happen by itself, and when.")
@click.pass_obj
def status(options: Options, is_watched: bool, every: float, is_next: bool) -> None:
    """Show what the running service is doing: state, pace, cycles, what waits for you, models, budgets, alerts.

    With --watch, it waits for a service that ended. In a pipe each status is a block of lines, with --json one line.
    With --next, it shows what will happen: looks, schedules, further tries, approvals that expire.

    \b
    Examples:
      spar status
      spar status --watch
      spar status --next
      spar --json status | jq '.agent.stats'
    """
    if is_watched and is_next:
        fail("--watch and --next: only one of them", exits.USAGE)
    if is_next:
        from spar.cli.nouns import command_of  # a status without --next does not need them
        from spar.operations.history import list_next

        command = command_of(list_next, "next", list_next.commands["next"])
        click.get_current_context().invoke(command, limit=None)
        return
    if is_watched:
        _watch(options, every)
        return
    with service(options) as client:
        answer = client.answer(operations.status)
    show(options, answer, *status_blocks(answer))


def _watch(options: Options, every: float) -> None:
    """Show the status until Ctrl-C, which gives the exit code 0."""
    client, is_drawn, reason = Client(options.state_dir()), sys.stdout.isatty() and not options.as_json, ""
    try:
        while True:
            try:
                answer = client.answer(operations.status)
                blocks, reason = status_blocks(answer), ""
                if is_drawn:
                    write(_CLEAR + rendered(*blocks))
                else:
                    show(options, answer, *blocks, "")
            except ServiceError as error:
                why, code = ending(client, error)
                if code == exits.NO_PERMISSION:  # waiting would not help
                    fail(why, code)
                why = "no service runs" if isinstance(error, NotRunningError) else why
                if is_drawn or not reason:
                    click.echo(f"{_CLEAR if is_drawn else ''}{why}; waiting for it", err=not is_drawn)
                reason = why
            time.sleep(every)
    except KeyboardInterrupt:
        raise SystemExit(exits.OK) from None


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
    from spar.cli.top.app import ANSWER_WITHIN, Top
    from spar.client.async_client import AsyncClient

    Top(AsyncClient(options.state_dir(), timeout=ANSWER_WITHIN), is_read_only=is_read_only).run()
