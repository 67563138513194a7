"""Commands that decide approvals and answer calls in doubt. The exact call is shown first."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any, get_args

import click
from msgspec import UNSET

from spar.cli.client import ask
from spar.cli.context import Options, fail, show
from spar.data.text import printable
from spar.operations.review import AnswerBody, DecisionBody, RecordId, decide, resolve, show_approval, show_doubt
from spar.records.approvals import Decision
from spar.records.journal import Answer
from spar.service import exit_codes as exits

#: The words for each decision.
_DONE = {"approve": "approved", "deny": "denied", "edit": "approved with other parameters", "replace": "replaced"}


def _add_answer_options(function: Any) -> Any:
    """Add the argument and the options that every decision takes to a command."""
    for option in (
        click.option(
            "--digest", metavar="BEGINNING", help="Answer only if the digest of the waiting call begins like this."
        ),
        click.option("--yes", "-y", "is_sure", is_flag=True, help="Do not ask for confirmation."),
        click.option("--reason", default="", help="The reason; it is stored, and the planner sees that of a denial."),
        click.argument("approval_id", metavar="ID"),
    ):
        function = option(function)
    return click.pass_obj(function)


@click.command()
@click.option(
    "--for",
    "duration",
    metavar="DURATION",
    help="Also approve further calls with exactly these parameters, for example for 1h.",
)
@click.option("--any-session", is_flag=True, help="With --for: in all sessions instead of only this one.")
@_add_answer_options
def approve(options: Options, /, duration: str | None, any_session: bool, **answer: Any) -> None:
    """Let a call run, once. It is shown first; in a terminal you are asked for confirmation.

    \b
    Examples:
      spar approvals approve 18ea10a4
      spar approvals approve 18ea10a4 --yes --digest 3f9a0c
      spar approvals approve 18ea10a4 --for 1h --any-session
    """
    if any_session and duration is None:
        fail("--any-session goes with --for DURATION", exits.USAGE)
    more: dict[str, Any] = {}
    if duration is not None:
        more = {"grant_for": _seconds(duration), "grant_session": not any_session}
    _decide(options, "approve", lambda record: more, **answer)


@click.command()
@_add_answer_options
def deny(options: Options, /, **answer: Any) -> None:
    """Keep a call from running.

    \b
    Example:
      spar approvals deny 18ea10a4 --reason "not on a Friday"
    """
    _decide(options, "deny", lambda record: {}, **answer)


@click.command()
@click.option("--param", "changes", multiple=True, metavar="KEY=VALUE", help="Another value for one parameter.")
@click.option("--params", "all_params", metavar="JSON", help="All parameters, instead of the planned ones.")
@_add_answer_options
def edit(options: Options, /, changes: tuple[str, ...], all_params: str | None, **answer: Any) -> None:
    """Let a call run with other parameters, which are checked against the tool again.

    A VALUE that is JSON is read as JSON, any other one is a text.

    \b
    Examples:
      spar approvals edit 18ea10a4 --param path=/tmp/other --param count=3
      spar approvals edit 18ea10a4 --params '{"argv": ["uptime"]}'
    """
    if bool(changes) == (all_params is not None):
        fail("say what to change: --param KEY=VALUE, or --params JSON for all of them", exits.USAGE)
    new_params = None if all_params is None else _json_value("--params", all_params, "a JSON object", dict)
    try:
        pairs = dict(map(pair_of, changes))
    except ValueError as error:
        fail(f"--param {error}", exits.USAGE)
    _decide(
        options,
        "edit",
        lambda record: {"params": record["call"]["params"] | pairs if new_params is None else new_params},
        **answer,
    )


@click.command()
@_add_answer_options
@click.argument("call", metavar="CALL")
def replace(options: Options, /, call: str, **answer: Any) -> None:
    """Let another CALL run instead, as JSON: {"_tool": name, …parameters}.

    \b
    Example:
      spar approvals replace 18ea10a4 '{"_tool": "note", "text": "asked to delete everything"}'
    """
    new_call = _json_value("CALL", call, "a JSON object", dict)
    _decide(options, "replace", lambda record: {"call": new_call}, **answer)


# -- the answer


def _decide(options: Options, decision: Decision, more: Callable[[Any], dict[str, Any]], /, approval_id: str,
            reason: str, is_sure: bool, digest: str | None) -> None:  # fmt: skip
    """Show the waiting call, ask for confirmation, and send the decision with the digest of the shown call.

    Args: more: returns further fields of the body, from the shown record.
    """
    from spar.data.text import value_lines

    if not approval_id.strip():
        fail("ID is empty; spar approvals list shows those that wait", exits.USAGE)
    record = ask(options, show_approval, RecordId(approval_id))
    if digest is not None and not record["digest"].startswith(digest.lower()):
        fail(f"approval {record['id']} waits with digest {record['digest']}, which does not begin with {digest!r}")
    body = DecisionBody(record["id"], record["digest"], decision, reason, **more(record))
    if record["status"] == "pending":
        instead = body.params or body.call
        lines = [] if instead is None else ["  to run instead", *value_lines(instead, 2)]
        _make_sure(options, "\n".join([record["text"], *lines]), decision, "it still waits", is_sure=is_sure)
    answer = ask(options, decide, body)
    grant = f"; grant {answer['grant']}" if answer["grant"] else ""
    what = f"{answer['id']} ({answer['call']['tool']}, digest {answer['digest'][:12]})"
    show(options, answer, f"{_DONE[decision]}: {what} by {answer['decided_by']}{grant}")


def _seconds(text: str) -> float:
    from spar.config.tables.fields import duration

    try:
        length: float = duration(above_zero=True).read(text)
    except ValueError as error:
        fail(f"--for {text!r}: {error}", exits.USAGE)
    return length


def pair_of(text: str) -> tuple[str, Any]:
    """Return KEY=VALUE as a pair; a value that is JSON is read as JSON, any other one is a text. Raises: ValueError."""
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise ValueError(f"{text!r}: must be KEY=VALUE")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


def _make_sure(options: Options, text: str, answer: str, unanswered: str, *, is_sure: bool) -> None:
    """Print a record on standard error and, in a terminal, ask for confirmation. Without a yes the command ends.

    Args:
        text: The record.
        answer: The answer that will be given.
        unanswered: The clause that says which state remains without an answer.
        is_sure: Do not ask.
    """
    click.echo(printable(text), err=True)
    is_asked = not (is_sure or options.as_json) and sys.stdin.isatty()
    if is_asked and not click.confirm(f"{answer}?", default=False, err=True):
        fail(f"not answered; {unanswered}")


def _json_value(name: str, text: str, expected: str, kind: type = object) -> Any:
    """Return the value of an option that takes JSON. Malformed JSON, or another kind of value, ends the command."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        fail(f"{name} {text!r:.200}: must be {expected}: {error}", exits.USAGE)
    if not isinstance(value, kind):
        fail(f"{name} {text!r:.200}: must be {expected}", exits.USAGE)
    return value


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
    value = UNSET if output is None else _json_value("--output", output, "JSON, a text in quotation marks")
    doubt = ask(options, show_doubt, RecordId(doubt_id))
    if doubt["answer"] is None:
        _make_sure(options, doubt["text"], answer, "it is still in doubt", is_sure=is_sure)
    answered = ask(options, resolve, AnswerBody(doubt["id"], answer, value, by, reason))
    from spar.data.text import visible

    what, by = f"{visible(answered['id'])} ({visible(answered['call']['tool'])})", visible(answered["answered_by"])
    show(options, answered, f"{answer}: {what} by {by}")
