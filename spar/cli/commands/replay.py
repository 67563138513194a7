"""Commands `cycles replay` and `backtest`: recorded cycles decided again, by the present configuration or another."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import click
from msgspec import to_builtins

from spar.cli.blocks import ID, Block, Branch, counted, local, short, styled, table
from spar.cli.context import Options, Time, fail, file_errors, other_configuration, refusals, show
from spar.cli.offline import from_store
from spar.config.tables.section import as_table
from spar.config.tables.settings import Loaded
from spar.decoding import convert, decode, encode
from spar.parts.factory import home_of
from spar.ports.costs import Costs, costs_of, days_since
from spar.ports.rows import rows_of
from spar.replay.again import AnswersOfRecord, again, price_of
from spar.replay.backtest import Backtest
from spar.replay.deciding import Decider
from spar.replay.page import page_of
from spar.replay.tally import KEPT_BACKTEST, Tally
from spar.replay.tape import Tape
from spar.service import exit_codes as exits

#: Days of which the costs say what a request costs.
_DAYS: Final = 31
_STYLES: Final = {"same": "good", "differs": "bad", "unknown": "warn"}


@click.command()
@click.argument("cycles", metavar="[ID]...", nargs=-1)
@other_configuration
@click.option("--ask", "is_asked", is_flag=True,
              help="Ask the model a request that differs from the recorded one; its price is told before.")  # fmt: skip
@click.pass_obj
def replay(options: Options, cycles: tuple[str, ...], other: Path | None, is_asked: bool) -> int:
    """Decide past cycles again on their recorded inputs, and say what differs. Code 1 unless all are the same.

    Nothing is called, sent or written: a call has its recorded result, or "unknown" if it was never made. A model's
    answer is the recorded one; a request that differs is shown, and asked only with --ask. A unique beginning of an id
    is enough; "last" (the default) is the newest cycle.

    \b
    Examples:
      spar cycles replay last
      spar cycles replay 18ec5a35 18ec5b01 --json
      spar cycles replay 18ec5a35 --config other.toml
    """
    loaded, agent = options.by(other).load(), options.load("agent.name").settings.agent.name

    async def question(memory: Any) -> list[Any]:
        answers = []
        for cycle_id in cycles or ("last",):
            with refusals():
                answer = await again(Tape(memory, agent), cycle_id, loaded)
                if is_asked and answer.asked:
                    click.echo(price_of(answer.tokens, answer.asked, await _costs(memory, agent)), err=True)
                    answer = await again(Tape(memory, agent), cycle_id, loaded, is_asked=True)
            answers.append(answer)
        return answers

    answers = from_store(options, question)
    show(options, answers, *map(_branch, answers))
    return exits.OK if all(answer["verdict"] == "same" for answer in answers) else exits.FAILED


async def _costs(memory: Any, agent: str) -> Any:
    """Return the sum of the costs of the last days."""
    now, rows = datetime.now(UTC), rows_of(memory)
    days = days_since(now - timedelta(days=_DAYS), now)
    return (Costs() if rows is None else await costs_of(rows, agent, days, "day")).whole


def _branch(answer: Mapping[str, Any]) -> Branch:
    """Return one cycle as a tree: the verdict, what differs, the calls with their results."""
    verdict, why = answer["verdict"], answer.get("why", "")
    head = f"cycle {answer['cycle_id'][:ID]}, {local(answer['at'])}, session {answer['session']}: {verdict}"
    lines = [line for change in answer["changes"] for line in change_lines(change)]
    calls = [f"{call['tool']}({short(call['params'])}): {call['status']}" for call in answer["calls"]]
    parts = [Branch(text) for text in [*lines, *answer["remarks"]]]
    if calls:
        parts.append(Branch("calls of this plan, with their recorded results", tuple(map(Branch, calls))))
    return Branch(styled(f"{head}{f', {why}' if why else ''}", _STYLES[verdict]), tuple(parts))


def change_lines(change: Mapping[str, Any]) -> Sequence[str]:
    """Return the lines of one difference: `–` as recorded, `+` as decided now."""
    name = f"{change['part']}: {change['what']}" if change["part"] != change["what"] else change["part"]
    sides = (("–", change.get("recorded")), ("+", change.get("now")))
    return [styled(f"{sign} {name}: {short(value)}", "bad" if sign == "–" else "good")
            for sign, value in sides if value is not None]  # fmt: skip


#: Pages of cycles between two writes of the checkpoint; disagreements that are printed, and that are stored.
_PAGES, _SHOWN, _KEPT = 20, 20, 100
#: The figures of each table, by what they are counted.
_OF_CALLS: Final = ("added", "saved", "changed")
_BY: Final = {"rules": _OF_CALLS, "tools": _OF_CALLS, "sessions": ("cycles", "differ")}


@click.command()
@click.option("--since", type=Time(), help="Only cycles from this time on: 7d, or a time; default: all.")
@other_configuration
@click.option("--rule", default="", metavar="NAME", help="Compare only what this rule decides.")
@click.option("--html", "page", metavar="FILE", type=click.Path(path_type=Path), help="Write a page with a picture.")
@click.option("--checkpoint", metavar="FILE", type=click.Path(path_type=Path),
              help="Write the state there, and go on from there if it exists.")  # fmt: skip
@click.option("--keep", "is_kept", is_flag=True, help="Store the result for the console.")
@click.pass_obj
def backtest(options: Options, since: datetime | None, other: Path | None, rule: str, page: Path | None,
             checkpoint: Path | None, *, is_kept: bool) -> int:  # fmt: skip
    """Decide the past cycles of a time again, and count what would have been decided otherwise.

    Nothing is called, sent or written, and no model is asked. Counted are calls that would be saved, added or changed,
    questions to people and budgets met, by rule, tool and session; disagreements are listed by frequency, each with its
    first cycle, which spar cycles replay and spar why explain. Ctrl-C ends it with what is known so far (code 130);
    with --checkpoint the next call goes on from there. A cycle in which nothing was decided leaves no record.

    \b
    Examples:
      spar backtest --since 7d --config other.toml
      spar backtest --since 30d --config other.toml --rule disk --html backtest.html
      spar backtest --checkpoint backtest.json --json
    """
    live, loaded = options.load(), options.by(other).load()
    if rule and rule not in (names := [str(table.get("name")) for of in (live, loaded) for table in of.settings.rules]):
        known = ", ".join(dict.fromkeys(names)) or "none"
        fail(f"no rule named {rule!r} in either configuration; known: {known}", exits.USAGE)
    digest = blake2b(encode(as_table(loaded.settings)), digest_size=8).hexdigest()
    question = {"agent": live.settings.agent.name, "configuration": digest, "rule": rule}
    tally, is_whole, unread = _counted(options, live, loaded, question, since, checkpoint)
    answer = _answer(tally, str(loaded.path or "the defaults"), rule, since, is_whole=is_whole, unread=unread)
    if page is not None:
        _write(page, page_of(answer).encode())
    if is_kept:
        _keep(live, answer)
    show(options, answer, *_blocks(answer))
    return exits.OK if is_whole else exits.INTERRUPTED


def _counted(options: Options, live: Loaded, loaded: Loaded, question: Mapping[str, str], since: datetime | None,
             checkpoint: Path | None) -> tuple[Tally, bool, int]:  # fmt: skip
    """Return the numbers, whether all cycles were decided, and how many were recorded meanwhile."""
    tally, pages, is_stopped = _continued(checkpoint, question), 0, False

    def stop(number: int, frame: object) -> None:
        nonlocal is_stopped
        is_stopped = True

    def progress(tally: Tally) -> bool:
        nonlocal pages
        pages += 1
        if checkpoint is not None and (pages % _PAGES == 0 or is_stopped):
            _write(checkpoint, encode({"question": question, "tally": tally}))
        if sys.stderr.isatty():
            click.echo(f"\r{tally.cycles} cycles, {tally.differs} differ", nl=False, err=True)
        return not is_stopped

    async def run(memory: Any) -> tuple[bool, int]:
        answers, agent = AnswersOfRecord(), question["agent"]
        with refusals():
            decider = Decider(loaded, memory, agent, answer_to=answers, rows=tally.rows)
            recorded = Decider(live, memory, agent)
        tape = Tape(memory, agent)
        async with decider:
            limits = live.settings.budgets.limits, loaded.settings.budgets.limits
            work = Backtest(decider, answers, recorded, limits, tally, question["rule"])
            before = signal.signal(signal.SIGINT, stop)  # at once: the event loop may not turn within a page
            try:
                is_whole = await work.run(tape, since, progress)
            finally:
                signal.signal(signal.SIGINT, before)
        return is_whole, len(await tape.memory.cycle_records(1, after=tally.last)) if is_whole and tally.last else 0

    try:
        is_whole, unread = from_store(options, run)
    finally:
        if sys.stderr.isatty():
            click.echo("\r\033[K", nl=False, err=True)
    if checkpoint is not None:
        _write(checkpoint, encode({"question": question, "tally": tally}))
    return tally, is_whole, unread


def _answer(tally: Tally, configuration: str, rule: str, since: datetime | None, *, is_whole: bool,
            unread: int) -> dict[str, Any]:  # fmt: skip
    """Return the numbers as JSON values."""
    about = [f"{counted(tally.cycles, 'cycle')} decided again"]
    about += [f"of rule {rule!r} alone"] if rule else []
    about += [f"since {since.isoformat(timespec='seconds')}"] if since is not None else []
    about += [] if is_whole else ["interrupted before its end"]
    about += ["cycles that were recorded meanwhile are not among them"] if unread else []
    numbers = to_builtins(tally)
    del numbers["last"], numbers["rows"], numbers["used"]
    numbers["disagreements"] = to_builtins(tally.by_frequency)
    return {"configuration": configuration, "about": "; ".join(about), "whole": is_whole, **numbers}


def _keep(live: Loaded, answer: Mapping[str, Any]) -> None:
    """Store the result in the state folder of the service."""
    common = answer["disagreements"][:_KEPT]
    _write(Path(home_of(live).state, KEPT_BACKTEST),
           encode({"at": datetime.now(UTC), **answer, "disagreements": common}))  # fmt: skip


def _blocks(answer: Mapping[str, Any]) -> Iterator[Block]:
    yield f"{answer['configuration']}: {answer['about']}"
    unknown = sum(answer["unknown"].values())
    yield f"{answer['same']} the same, {answer['differs']} differ, {unknown} unknown"
    calls = answer["calls"]
    yield f"calls: {calls['same']} the same, {calls['added']} added, {calls['saved']} saved, {calls['changed']} changed"
    yield table(("", ">recorded", ">now"), [
        (name, str(answer[key]["recorded"]), str(answer[key]["now"])) for key, name in (
            ("asked", "questions to people"), ("denied", "calls denied"), ("refused", "calls that met a budget"))
    ])  # fmt: skip
    for name, heads in _BY.items():
        rows = [(label, *(str(numbers[head]) for head in heads)) for label, numbers in answer[name].items()
                if name != "sessions" or numbers["differ"]]  # fmt: skip
        if rows:
            yield ""
            yield table((name[:-1], *(f">{head}" for head in heads)), rows)
    for one in answer["disagreements"][:_SHOWN]:
        first = one["first"]
        example = change_lines({"part": one["part"], "what": one["what"].partition(": ")[2], **first})
        yield ""
        yield Branch(f"{one['count']} × {one['what']}, first in cycle {first['cycle_id'][:ID]}",
                     tuple(map(Branch, example)))  # fmt: skip
    if (more := len(answer["disagreements"]) - _SHOWN) > 0:
        yield f"… and {counted(more, 'kind')} of disagreements more (--json has all)"
    for why, number in answer["unknown"].items():
        yield f"{counted(number, 'cycle')} not decided again: {why}"


# -- the checkpoint


def _continued(path: Path | None, question: Mapping[str, str]) -> Tally:
    """Return the numbers of a checkpoint, new ones without it. One of another question ends the command."""
    if path is None or not path.exists():
        return Tally()
    try:
        known = decode(path.read_bytes(), dict[str, Any])
        tally = convert(known["tally"], Tally, strict=False)
        others = [name for name, value in question.items() if known["question"][name] != value]
    except (OSError, ValueError, LookupError, TypeError) as error:
        fail(f"checkpoint {str(path)!r} cannot be read: {error}; name another file", exits.DAMAGED)
    for name in others:
        fail(f"checkpoint {str(path)!r} is of another {name}; name another file, or delete it", exits.USAGE)
    return tally


def _write(path: Path, content: bytes) -> None:
    """Write a file at once. One that cannot be written ends the command."""
    new = path.with_name(f"{path.name}.new")
    with file_errors(path):
        new.write_bytes(content)
        new.replace(path)
