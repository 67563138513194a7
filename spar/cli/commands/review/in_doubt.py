"""Commands for calls in doubt: they may have had an effect that must not be repeated, so a person must answer whether
they had it.
"""

from __future__ import annotations

from typing import get_args

import click
from msgspec import UNSET

from spar.cli.context import Options, fail, json_value, make_sure, show
from spar.cli.nouns import ask
from spar.operations.review import AnswerBody, RecordId, resolve, show_doubt
from spar.records.journal import Answer
from spar.service import exit_codes as exits


@click.command("resolve")
@click.argument("doubt_id", metavar="ID")
@click.argument("answer", type=click.Choice(get_args(Answer)))
@click.option("--output", metavar="JSON", help="With done: the value that the call returned.")
@click.option("--by", default="", metavar="NAME", help="The person on whose word it is, if not yours.")
@click.option("--reason", default="", help="How you know it; it is stored.")
@click.option("--yes", "-y", "is_sure", is_flag=True, help="Do not ask for confirmation.")
@click.pass_obj
def resolve_doubt(options: Options, doubt_id: str, answer: Answer, output: str | None, by: str, reason: str,
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
    if not doubt_id.strip():
        fail("ID is empty; spar calls list shows those in doubt", exits.USAGE)
    value = UNSET if output is None else json_value("--output", output, "JSON, a text in quotation marks")
    doubt = ask(options, show_doubt, RecordId(doubt_id))
    if doubt["answer"] is None:
        make_sure(options, doubt["text"], answer, "it is still in doubt", is_sure=is_sure)
    answered = ask(options, resolve, AnswerBody(doubt["id"], answer, value, by, reason))
    from spar.data.text import visible

    what, by = f"{visible(answered['id'])} ({visible(answered['call']['tool'])})", visible(answered["answered_by"])
    show(options, answered, f"{answer}: {what} by {by}")
