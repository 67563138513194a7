"""Calls in doubt: they may have had an effect that must not be repeated, and somebody must say what became of them.

Looking works without the service too; answering does not, because the answer is at once the agent's affair: the plan
is told of it, or the call is made again.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any, get_args
from urllib.parse import quote

import click

from spar.cli.commands.cycles import from_store
from spar.cli.context import NotRunningError, Options, connect, fail, printable, service, show
from spar.records.journal import Answer
from spar.service import exit_codes as exits


@click.group()
def calls() -> None:
    """Calls that may have had their effect: say what became of them."""


@calls.command("list")
@click.option("--all", "is_all", is_flag=True, help="Also what was answered.")
@click.pass_obj
def list_doubts(options: Options, is_all: bool) -> None:
    """List the calls in doubt, the oldest first, a line each; whether the service runs or not.

    \b
    Examples:
      spar calls list
      spar calls list --all --json
    """
    found = _doubts(options, is_all=is_all)
    nothing = "no call is or was in doubt" if is_all else "no call is in doubt"
    show(options, found, None if options.as_json else "\n".join(_lines(found)) or nothing)


@calls.command("show")
@click.argument("doubt_id", metavar="ID")
@click.pass_obj
def show_doubt(options: Options, doubt_id: str) -> None:
    """Show one whole: what may have run, and why nobody knows (a unique beginning of its id is enough).

    \b
    Example:
      spar calls show 18ea10a4
    """
    path = _path(doubt_id)
    try:
        with connect(options.state_dir(), 30.0) as client:
            found = client.get(path)
    except NotRunningError:
        from spar.records.journal import Doubt
        from spar.review.in_doubt import doubt_full

        found = one_of(left(options)[0], Doubt, doubt_id, "call in doubt", doubt_full)
    show(options, found, found["text"])


@calls.command("resolve")
@click.argument("doubt_id", metavar="ID")
@click.argument("answer", type=click.Choice(get_args(Answer)))
@click.option("--output", metavar="JSON", help="With done: what it returned.")
@click.option("--by", default="", metavar="NAME", help="On whose word, if not yours.")
@click.option("--reason", default="", help="How you know; it is kept.")
@click.option("--yes", "-y", "is_sure", is_flag=True, help="Do not ask whether to go on.")
@click.pass_obj
def resolve(options: Options, doubt_id: str, answer: str, output: str | None, by: str, reason: str,
            is_sure: bool) -> None:  # fmt: skip
    """Say what became of a call: done, failed (it had no effect), or again: it had none and is made once more.

    It is shown first; in a terminal you are asked whether to go on. The first answer counts.

    \b
    Examples:
      spar calls resolve 18ea10a4 done
      spar calls resolve 18ea10a4 done --output '{"receipt": 4711}' --by "the bank"
      spar calls resolve 18ea10a4 again --yes
    """
    if output is not None and answer != "done":
        fail(f"--output goes with done only, not with {answer}", exits.USAGE)
    path, body = _path(doubt_id), {"answer": answer, "by": by, "reason": reason}
    if output is not None:
        body["output"] = _value(output)
    with service(options) as client:
        shown = client.get(path)
        if shown["answer"] is None:
            _make_sure(shown, answer, is_asked=not (is_sure or options.as_json) and sys.stdin.isatty())
        done = client.post(f"{_path(shown['id'])}/resolve", body)
    from spar.data.text import visible

    what, by = f"{visible(done['id'])} ({visible(done['call']['tool'])})", visible(done["answered_by"])
    show(options, done, f"{answer}: {what} by {by}")


# -- parts


def left(options: Options) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The calls in doubt, answered ones too, and the dead letters, read from the file of a service that is stopped.

    Ends the command with code 69 when they are not kept in one.
    """
    settings = options.load().settings

    async def question(store: Any) -> Any:
        from spar.errors import SparError
        from spar.ports.optional import offers
        from spar.ports.store import ReadsLeftWork

        if not offers(store, ReadsLeftWork):
            raise SparError(f"the store {settings.memory.use!r} cannot be asked while no service runs: spar run")
        return await store.left(settings.agent.name)

    doubts, letters = from_store(options, question)
    return doubts, letters


def as_structs(found: Any, kind: Any) -> Any:
    """The rows of an answer as what they are; the command ends where the service is of another release."""
    import msgspec

    try:
        return msgspec.convert(found, list[kind])
    except msgspec.ValidationError as error:
        fail(f"what was answered cannot be read: {error}; is the service of another release?")


def one_of(rows: list[dict[str, Any]], kind: Any, id: str, what: str, draw: Callable[[Any, Any], str]) -> Any:
    """The row with this id or unique beginning of one, with its text, as the service would answer."""
    from spar.records.journal import named
    from spar.types import utcnow

    try:
        found = named(as_structs(rows, kind), id, what)
    except LookupError as error:
        fail(str(error.args[0]))
    return {**next(row for row in rows if row["id"] == found.id), "text": draw(found, utcnow())}


def _doubts(options: Options, *, is_all: bool) -> list[dict[str, Any]]:
    try:
        with connect(options.state_dir(), 30.0) as client:
            found: list[dict[str, Any]] = client.get("/v1/calls/in-doubt", status="all" if is_all else "open")
            return found
    except NotRunningError:
        return [each for each in left(options)[0] if is_all or each["answer"] is None]


def _lines(found: list[dict[str, Any]]) -> list[str]:
    from spar.records.journal import Doubt
    from spar.review.in_doubt import doubt_summary
    from spar.types import utcnow

    return [doubt_summary(doubt, utcnow()) for doubt in as_structs(found, Doubt)]


def _make_sure(shown: dict[str, Any], answer: str, *, is_asked: bool) -> None:
    """Show it on standard error, so that standard output is the answer alone; nothing but a clear yes goes on."""
    click.echo(printable(shown["text"]), err=True)
    if is_asked and not click.confirm(f"{answer}?", default=False, err=True):
        fail("not answered; it is still in doubt")


def _path(doubt_id: str) -> str:
    if not doubt_id.strip():
        fail("ID is empty; spar calls list shows those in doubt", exits.USAGE)
    return f"/v1/calls/in-doubt/{quote(doubt_id, safe='', errors='replace')}"


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        fail(f"--output {text!r:.200}: must be JSON, a text in quotation marks: {error}", exits.USAGE)
