"""Command `cycles show`: one past cycle in full; the list of cycles follows from the table of operations."""

from __future__ import annotations

from typing import Any

import click

from spar.cli.client import ask
from spar.cli.commands.records.cycle_tree import cycle_tree
from spar.cli.context import Options, show
from spar.operations.history import CycleId
from spar.operations.history import show_cycle as show_one

#: The fields of a doubt that are added to the result of its call.
_MARK = ("id", "why", "answer", "answered_by", "answered_at", "reason", "output")


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
    marked = _with_marks(ask(options, show_one, CycleId(cycle_id)))
    show(options, marked, cycle_tree(marked))


def _with_marks(cycle: dict[str, Any]) -> dict[str, Any]:
    """Return the cycle with each doubt added to the result of its call, as `doubt`."""
    marks = {doubt["call"]["id"]: {name: doubt[name] for name in _MARK} for doubt in cycle.pop("doubts", ())}
    for result in (cycle.get("result") or {}).get("results", ()):
        if (mark := marks.pop(result["call"]["id"], None)) is not None:
            result["doubt"] = mark
    # A cycle that was interrupted and not continued has no results, so its doubts are listed separately.
    return {**cycle, "doubts": list(marks.values())} if marks else cycle
