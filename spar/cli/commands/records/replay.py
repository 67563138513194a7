"""Command `cycles replay`: recorded cycles decided again by the configuration of today or another one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click

from spar.cli.blocks import ID, Branch, local, short, styled
from spar.cli.context import Options, refusals, show
from spar.cli.offline import from_store
from spar.cli.params import other_configuration
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
    from spar.replay.again import again, price_of
    from spar.replay.tape import Tape

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
    from datetime import UTC, datetime, timedelta

    from spar.budgets.costs import Costs, costs_of, days_since
    from spar.ports.small_rows import rows_of

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
