"""Commands for past cycles, which are read from the store, whether the service runs or not."""

from __future__ import annotations

import math
from typing import Any

import click

from spar.cli import complete
from spar.cli.blocks import Table, styled, table
from spar.cli.commands.records.cycle_tree import OUTCOMES, cycle_tree
from spar.cli.context import Options, fail, from_store, show
from spar.cli.tables import ID, local, took, zoned

#: The fields of a doubt that are added to the result of its call.
_MARK = ("id", "why", "answer", "answered_by", "answered_at", "reason", "output")


@click.command("list")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many, newest first.")
@click.option(
    "--outcome", type=click.Choice(["acted", "skipped", "degraded", "failed", "interrupted"]), help="Only these."
)
@click.option("--session", help="Only of this session.", shell_complete=complete.sessions)
@click.option("--failed", is_flag=True, help="Only those that failed or had a failed call.")
@click.pass_obj
def list_cycles(options: Options, limit: int, outcome: str | None, session: str | None, failed: bool) -> None:
    """List cycles, newest first (idle ones leave no trace).

    \b
    Examples:
      spar cycles list
      spar cycles list --failed --limit 5
    """
    rows = from_store(options, lambda store: store.cycles(limit=limit, outcome=outcome, session=session, failed=failed))
    is_chosen = failed or outcome or session
    show(options, rows, _cycles(rows) if rows else "no such cycles" if is_chosen else "no cycles yet")


@click.command("show")
@click.argument("cycle_id")
@click.pass_obj
def show_cycle(options: Options, cycle_id: str) -> None:
    """Show one cycle in full: what was noticed, decided, done and learnt.

    CYCLE_ID may be a unique beginning of an id; "last" is the newest cycle.

    \b
    Examples:
      spar cycles show 18ea10a4
      spar cycles show last
    """
    answer = from_store(options, lambda store: _with_doubts(store, cycle_id))
    if answer is None:
        fail(f"no cycle {cycle_id!r} is recorded; spar cycles list shows those that are")
    marked = _with_marks(*answer)
    show(options, marked, cycle_tree(marked))


async def _with_doubts(store: Any, cycle_id: str) -> tuple[Any, Any] | None:
    """Return a cycle and the doubts about its calls, answered ones too; None for an unknown cycle.

    A store without a journal has no doubts.
    """
    from spar.ports.optional import offers
    from spar.ports.store import ReadsLeftWork

    if cycle_id == "last":
        newest = await store.cycles(limit=1)
        cycle_id = str(newest[0]["cycle_id"]) if newest else cycle_id
    cycle = await store.cycle(cycle_id)
    if cycle is None:
        return None
    doubts = (await store.left(cycle.agent))[0] if offers(store, ReadsLeftWork) else ()
    return cycle, [doubt for doubt in doubts if doubt.cycle_id == cycle.cycle_id]


def _with_marks(cycle: dict[str, Any], doubts: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the cycle with each doubt added to the result of its call, as `doubt`."""
    marks = {doubt["call"]["id"]: {name: doubt[name] for name in _MARK} for doubt in doubts}
    for result in (cycle.get("result") or {}).get("results", ()):
        if (mark := marks.pop(result["call"]["id"], None)) is not None:
            result["doubt"] = mark
    # A cycle that was interrupted and not continued has no results, so its doubts are listed separately.
    return {**cycle, "doubts": list(marks.values())} if marks else cycle


def _cycles(entries: list[dict[str, Any]]) -> Table:
    rows = [
        (local(entry.get("started_at")), _outcome(str(entry.get("outcome", "?"))),
         took(_number(entry.get("duration"))), str(entry.get("cycle_id", "?"))[:ID],
         _calls(entry.get("calls"), is_deferred=bool(entry.get("deferred"))), str(entry.get("about") or ""))
        for entry in entries
    ]  # fmt: skip
    return table((zoned("started"), "outcome", ">took", "cycle", "calls", "about"), rows)


def _outcome(outcome: str) -> str:
    return styled(outcome, OUTCOMES.get(outcome, ""))


def _calls(counts: Any, *, is_deferred: bool = False) -> str:
    """Return the results of a cycle's calls in short: `✓` if all succeeded, `✗ 1 of 3` for failures, `put off` if the
    plan was deferred; "" without calls."""
    by_status = {str(name): int(_number(number)) for name, number in counts.items()} if isinstance(counts, dict) else {}
    total = sum(by_status.values())
    if is_deferred and not total:
        return "put off"
    if failed := by_status.get("failed"):
        return styled(f"✗ {failed} of {total}", "bad")
    skipped = f", {by_status['skipped']} not done" if by_status.get("skipped") else ""
    return styled(f"✓ {by_status.get('ok', 0)}{skipped}", "good") if total else ""


def _number(value: Any) -> float:
    """Return a number of a record, 0 for any other value, as after damage."""
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else 0.0
