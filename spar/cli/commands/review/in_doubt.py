"""Commands for calls in doubt: they may have had an effect that must not be repeated, so a person must answer whether
they had it.
"""

from __future__ import annotations

from typing import get_args

import click

from spar.cli.client import service
from spar.cli.context import Options, fail, show
from spar.cli.records import json_value, make_sure, path_of, rows_of, show_list, show_record
from spar.records.journal import Answer
from spar.review.kinds import CALLS_IN_DOUBT
from spar.service import exit_codes as exits


@click.group()
def calls() -> None:
    """Look at calls that may have had their effect, and answer what became of them."""


@calls.command("list")
@click.option("--all", "is_all", is_flag=True, help="Also the answered ones.")
@click.pass_obj
def list_doubts(options: Options, is_all: bool) -> None:
    """List the calls in doubt, the oldest first, a line each, whether the service runs or not.

    \b
    Examples:
      spar calls list
      spar calls list --all --json
    """
    rows = rows_of(options, CALLS_IN_DOUBT, status="all" if is_all else "open")
    nothing = "no call is or was in doubt" if is_all else "no call is in doubt"
    show_list(options, CALLS_IN_DOUBT, [row for row in rows if is_all or row["answer"] is None], nothing)


@calls.command("show")
@click.argument("doubt_id", metavar="ID")
@click.pass_obj
def show_doubt(options: Options, doubt_id: str) -> None:
    """Show one in full: the call that may have run, and why that is unknown. ID may be a unique beginning of an id.

    \b
    Example:
      spar calls show 18ea10a4
    """
    show_record(options, CALLS_IN_DOUBT, doubt_id)


@calls.command("resolve")
@click.argument("doubt_id", metavar="ID")
@click.argument("answer", type=click.Choice(get_args(Answer)))
@click.option("--output", metavar="JSON", help="With done: the value that the call returned.")
@click.option("--by", default="", metavar="NAME", help="The person on whose word it is, if not yours.")
@click.option("--reason", default="", help="How you know it; it is stored.")
@click.option("--yes", "-y", "is_sure", is_flag=True, help="Do not ask for confirmation.")
@click.pass_obj
def resolve(options: Options, doubt_id: str, answer: str, output: str | None, by: str, reason: str,
            is_sure: bool) -> None:  # fmt: skip
    """Answer what became of a call: done, failed (it had no effect), or again (it had no effect and is made again).

    The call is shown first; in a terminal you are asked for confirmation. The first answer counts.

    \b
    Examples:
      spar calls resolve 18ea10a4 done
      spar calls resolve 18ea10a4 done --output '{"receipt": 4711}' --by "the bank"
      spar calls resolve 18ea10a4 again --yes
    """
    if output is not None and answer != "done":
        fail(f"--output goes with done only, not with {answer}", exits.USAGE)
    path, body = path_of(CALLS_IN_DOUBT, doubt_id), {"answer": answer, "by": by, "reason": reason}
    if output is not None:
        body["output"] = json_value("--output", output, "JSON, a text in quotation marks")
    with service(options) as client:
        doubt = client.get(path)
        if doubt["answer"] is None:
            make_sure(options, CALLS_IN_DOUBT, doubt["text"], answer, is_sure=is_sure)
        answered = client.post(f"{path_of(CALLS_IN_DOUBT, doubt['id'])}/resolve", body)
    from spar.data.text import visible

    what, by = f"{visible(answered['id'])} ({visible(answered['call']['tool'])})", visible(answered["answered_by"])
    show(options, answered, f"{answer}: {what} by {by}")
