"""Commands for dead letters: work that was interrupted or failed too often, stored until a person decides about it."""

from __future__ import annotations

import click

from spar.cli.client import service
from spar.cli.context import Options, show
from spar.cli.records import path_of, rows_of, show_list, show_record
from spar.review.kinds import DEAD_LETTERS


@click.group()
def dead() -> None:
    """Look at work that failed too often; try it again, or drop it."""


@dead.command("list")
@click.pass_obj
def list_letters(options: Options) -> None:
    """List the dead letters, the oldest first, a line each, whether the service runs or not.

    \b
    Example:
      spar dead list
    """
    show_list(options, DEAD_LETTERS, rows_of(options, DEAD_LETTERS), "there are no dead letters")


@dead.command("show")
@click.argument("letter_id", metavar="ID")
@click.pass_obj
def show_letter(options: Options, letter_id: str) -> None:
    """Show one in full: its content, and why it failed. ID may be a unique beginning of an id.

    \b
    Example:
      spar dead show 18ea10a4
    """
    show_record(options, DEAD_LETTERS, letter_id)


@dead.command("retry")
@click.argument("letter_id", metavar="ID")
@click.pass_obj
def retry(options: Options, letter_id: str) -> None:
    """Try a dead letter again, as if it were new.

    \b
    Example:
      spar dead retry 18ea10a4
    """
    _settle(options, letter_id, "retry", "tried again")


@dead.command("drop")
@click.argument("letter_id", metavar="ID")
@click.pass_obj
def drop(options: Options, letter_id: str) -> None:
    """End a dead letter permanently; it is not tried again.

    \b
    Example:
      spar dead drop 18ea10a4
    """
    _settle(options, letter_id, "drop", "dropped")


def _settle(options: Options, letter_id: str, verb: str, done: str) -> None:
    from spar.data.text import visible

    path = path_of(DEAD_LETTERS, letter_id)
    with service(options) as client:
        item = client.post(f"{path}/{verb}")
    show(options, item, f"{done}: {visible(item['id'])}")
