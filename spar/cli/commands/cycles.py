"""Commands for past cycles and experiences; read from the store, whether the service runs or not."""

from __future__ import annotations

from typing import Any

import click

from spar.cli.context import Options, fail, from_store, show
from spar.cli.tables import ID, cycle_tree, local, short, table, took, zoned
from spar.service import exit_codes as exits

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
@click.option("--session", help="Only of this session.")
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
    """Show one cycle whole: what was noticed, decided, done and learnt (a unique beginning of its id is enough).

    \b
    Example:
      spar cycles show 18ea10a4
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

    cycle = await store.cycle(cycle_id)
    if cycle is None:
        return None
    doubts = (await store.left(cycle.agent))[0] if offers(store, ReadsLeftWork) else ()
    return cycle, [doubt for doubt in doubts if doubt.cycle_id == cycle.cycle_id]


def _marked(cycle: dict[str, Any], doubts: list[dict[str, Any]]) -> dict[str, Any]:
    """The cycle, each of its calls that is or was in doubt marked with what was said of it."""
    marks = {each["call"]["id"]: {name: each[name] for name in _MARK} for each in doubts}
    for result in (cycle["result"] or {}).get("results", ()):
        if (mark := marks.pop(result["call"]["id"], None)) is not None:
            result["doubt"] = mark
    # A cycle that was cut off for good has no results to be marked.
    return {**cycle, "doubts": list(marks.values())} if marks else cycle


@click.group()
def memory() -> None:
    """Look at experiences."""


@memory.command("search")
@click.argument("query", default="")
@click.option("-k", "count", type=click.IntRange(1, 1000), default=5, show_default=True, help="How many at most.")
@click.option("--session", help="Only of this session.")
@click.pass_obj
def search(options: Options, query: str, count: int, session: str | None) -> None:
    """Recall experiences by words; without any the most recent.

    \b
    Examples:
      spar memory search "disk full"
      spar memory search -k 20
    """
    experiences = from_store(options, lambda store: store.recall(query, count, session=session))
    show(options, experiences, "\n".join(map(_experience_lines, experiences)) or "nothing is remembered of that")


@memory.command("export")
@click.argument("file", type=click.Path(dir_okay=False, writable=True))
@click.pass_obj
def export(options: Options, file: str) -> None:
    """Write all experiences to a file, one JSON object a line.

    \b
    Example:
      spar memory export experiences.jsonl
    """
    try:
        number = from_store(options, lambda store: store.export(file))
    except OSError as error:
        fail(f"{file}: cannot be written: {error.strerror}", exits.CANNOT_CREATE)
    show(options, {"exported": number}, f"{number} experiences written to {file}")


def _cycles(entries: list[dict[str, Any]]) -> str:
    rows = [
        (local(each.get("started_at")), each["outcome"], took(float(each.get("duration", 0))), each["cycle_id"][:ID],
         _calls(each.get("calls") or {}, is_deferred=bool(each.get("deferred"))), each.get("about") or "")
        for each in entries
    ]  # fmt: skip
    return table((zoned("started"), "outcome", ">took", "cycle", "calls", "about"), rows)


def _calls(counts: dict[str, int], *, is_deferred: bool = False) -> str:
    """Return how a cycle's calls went, in a few signs: `✓` all did well, `✗ 1 of 3` failed, `put off` till they can be
    planned; "" for none."""
    if is_deferred and not any(counts.values()):
        return "put off"
    total = sum(counts.values())
    if failed := counts.get("failed"):
        return f"✗ {failed} of {total}"
    return f"✓ {counts['ok']}" + (f", {counts['skipped']} not done" if counts.get("skipped") else "") if total else ""


def _experience_lines(experience: dict[str, Any]) -> str:
    """Return an experience on two lines: what was noticed; what was done about it and learnt."""
    mark = {True: "✓", False: "✗", None: "·"}[experience["success"]]
    done = [experience["action"], experience["lesson"] or experience["outcome"]]
    first = f"{local(experience['at'])}  {mark} {short(experience['situation'])}"
    return f"{first}\n{'':21}{short(': '.join(part for part in done if part))}"
