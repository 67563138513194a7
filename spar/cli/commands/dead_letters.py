"""Dead letters: work that was cut off or failed too often, put aside until somebody deals with it."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import click

from spar.cli.commands.in_doubt import as_structs, left, one_of
from spar.cli.context import NotRunningError, Options, connect, fail, service, show
from spar.service import exit_codes as exits


@click.group()
def dead() -> None:
    """Work that failed too often: have it tried again, or drop it."""


@dead.command("list")
@click.pass_obj
def list_letters(options: Options) -> None:
    """List what was put aside, the oldest first, a line each; whether the service runs or not.

    \b
    Example:
      spar dead list
    """
    try:
        with connect(options.state_dir(), 30.0) as client:
            found = client.get("/v1/dead-letters")
    except NotRunningError:
        _, found = left(options)
    show(options, found, None if options.as_json else "\n".join(_lines(found)) or "there are no dead letters")


@dead.command("show")
@click.argument("letter_id", metavar="ID")
@click.pass_obj
def show_letter(options: Options, letter_id: str) -> None:
    """Show one whole: what it is about, and why it was put aside (a unique beginning of its id is enough).

    \b
    Example:
      spar dead show 18ea10a4
    """
    path = _path(letter_id)
    try:
        with connect(options.state_dir(), 30.0) as client:
            found = client.get(path)
    except NotRunningError:
        from spar.records.journal import DeadLetter
        from spar.review.in_doubt import letter_full

        found = one_of(left(options)[1], DeadLetter, letter_id, "dead letter", letter_full)
    show(options, found, found["text"])


@dead.command("retry")
@click.argument("letter_id", metavar="ID")
@click.pass_obj
def retry(options: Options, letter_id: str) -> None:
    """Have it tried again, as if it were new.

    \b
    Example:
      spar dead retry 18ea10a4
    """
    _deal(options, letter_id, "retry", "tried again")


@dead.command("drop")
@click.argument("letter_id", metavar="ID")
@click.pass_obj
def drop(options: Options, letter_id: str) -> None:
    """Have it be through for good.

    \b
    Example:
      spar dead drop 18ea10a4
    """
    _deal(options, letter_id, "drop", "dropped")


def _deal(options: Options, letter_id: str, verb: str, done: str) -> None:
    path = _path(letter_id)
    with service(options) as client:
        item = client.post(f"{path}/{verb}")
    from spar.data.text import visible

    show(options, item, f"{done}: {visible(item['id'])}")


def _lines(found: list[dict[str, Any]]) -> list[str]:
    from spar.records.journal import DeadLetter
    from spar.review.in_doubt import letter_summary
    from spar.types import utcnow

    return [letter_summary(letter, utcnow()) for letter in as_structs(found, DeadLetter)]


def _path(letter_id: str) -> str:
    if not letter_id.strip():
        fail("ID is empty; spar dead list shows what was put aside", exits.USAGE)
    return f"/v1/dead-letters/{quote(letter_id, safe='', errors='replace')}"
