"""Commands for past cycles; read from the store, whether the service runs or not."""

from __future__ import annotations

import math
from typing import Any

import click

from spar.cli import complete
from spar.cli.blocks import Table, styled, table
from spar.cli.commands.records.cycle_tree import OUTCOMES, cycle_tree
from spar.cli.context import Options, fail, from_store, show
from spar.cli.tables import ID, local, took, zoned

#: What a cycle's call in doubt is marked with.
_MARK = ("id", "why", "answer", "answered_by", "answered_at", "reason", "output")


@click.group()
def cycles() -> None:
    """Look at past cycles."""


@cycles.command("list")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many, newest first.")
@click.option(
    "--outcome", type=click.Choice(["acted", "skipped", "degraded", "failed", "interrupted"]), help="Only these."
)
@click.option("--session", help="Only of this session.", shell_complete=complete.sessions)
@click.option("--failed", is_flag=True, help="Only those that failed or of whose calls one did.")
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


@cycles.command("show")
@click.argument("cycle_id")
@click.pass_obj
def show_cycle(options: Options, cycle_id: str) -> None:
    """Show one cycle whole: what was noticed, decided, done and learnt (a unique beginning of its id is enough; "last"
    is the newest).

    \b
    Examples:
      spar cycles show 18ea10a4
      spar cycles show last
    """
    answer = from_store(options, lambda store: _with_doubts(store, cycle_id))
    if answer is None:
        fail(f"no cycle {cycle_id!r} on the tape; spar cycles list shows those that are")
    marked = _marked(*answer)
    show(options, marked, cycle_tree(marked))


async def _with_doubts(store: Any, cycle_id: str) -> tuple[Any, Any] | None:
    """A cycle, and which of its calls are or were in doubt; a store without a journal knows of none."""
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


def _marked(cycle: dict[str, Any], doubts: list[dict[str, Any]]) -> dict[str, Any]:
    """The cycle, each of its calls that is or was in doubt marked with what was said of it."""
    marks = {each["call"]["id"]: {name: each[name] for name in _MARK} for each in doubts}
    for result in (cycle.get("result") or {}).get("results", ()):
        if (mark := marks.pop(result["call"]["id"], None)) is not None:
            result["doubt"] = mark
    # A cycle that was cut off for good has no results to be marked.
    return {**cycle, "doubts": list(marks.values())} if marks else cycle


def _cycles(entries: list[dict[str, Any]]) -> Table:
    rows = [
        (local(each.get("started_at")), _outcome(str(each.get("outcome", "?"))),
         took(_number(each.get("duration"))), str(each.get("cycle_id", "?"))[:ID],
         _calls(each.get("calls"), is_deferred=bool(each.get("deferred"))), str(each.get("about") or ""))
        for each in entries
    ]  # fmt: skip
    return table((zoned("started"), "outcome", ">took", "cycle", "calls", "about"), rows)


def _outcome(outcome: str) -> str:
    return styled(outcome, OUTCOMES.get(outcome, ""))


def _calls(counts: Any, *, is_deferred: bool = False) -> str:
    """Return how a cycle's calls went, in a few signs: `✓` all did well, `✗ 1 of 3` failed, `put off` till they can be
    planned; "" for none."""
    found = {str(name): int(_number(number)) for name, number in counts.items()} if isinstance(counts, dict) else {}
    total = sum(found.values())
    if is_deferred and not total:
        return "put off"
    if failed := found.get("failed"):
        return styled(f"✗ {failed} of {total}", "bad")
    skipped = f", {found['skipped']} not done" if found.get("skipped") else ""
    return styled(f"✓ {found.get('ok', 0)}{skipped}", "good") if total else ""


def _number(value: Any) -> float:
    """Return a number of the tape; 0 for what is none, as after damage."""
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else 0.0
