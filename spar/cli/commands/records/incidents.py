"""Command `incidents show`: the history of an incident, and the cycles that handled it."""

from __future__ import annotations

from typing import Any

import click

from spar.cli.blocks import Branch
from spar.cli.client import ask
from spar.cli.commands.records.cycles import call_lines
from spar.cli.context import Options, from_store, show
from spar.cli.tables import ID, counted, local, short, zoned
from spar.operations.perceived import IncidentId
from spar.operations.perceived import show as show_one

#: The words for each kind of step.
_DID = {"joined": "joins", "grown": "grows", "raised": "grows worse", "over": "is over", "again": "comes again",
        "asked": "is to be closed", "opened": "opens", "reopened": "opens again", "closed": "closes"}  # fmt: skip
#: Cycles of one incident whose calls are shown.
_CYCLES = 20
#: Latest cycles that are searched for those that continued an interrupted one.
_SEARCHED = 200


@click.command("show")
@click.argument("incident_id", metavar="ID")
@click.pass_obj
def show_incident(options: Options, incident_id: str) -> None:
    """Show the history of one incident: what joined it and why, what the agent did about it, how it ended.

    \b
    Example:
      spar incidents show I-12
    """
    row = ask(options, show_one, IncidentId(incident_id))
    cycles = _cycles_of(options, row)
    show(options, {**row, "dealt": cycles}, None if options.as_json else story(row, cycles))


def story(row: dict[str, Any], cycles: list[dict[str, Any]]) -> Branch:
    """Return the tree of an incident: its head, its history in order of time, its perceptions, and omitted numbers."""
    number = len(row["things"]) + row["left_out"].get("things", 0)
    size = f"{counted(row['count'], 'perception')} of {counted(number, 'thing')}"
    head = f"{row['id']}, {row['state']}, {row['severity']}, {size}, session {row['session']}"
    about = [Branch(short(row["title"]))]
    if row["strange"]:
        untrusted = counted(row["strange"], "perception")
        about.append(Branch(f"{untrusted} of untrusted sources besides, which move nothing here"))
    about += [Branch(f"{kind}: {', '.join(names)}") for kind, names in row["entities"].items()]
    if row["closed_at"]:
        about.append(Branch(f"closed {zoned(local(row['closed_at']))}: {row['reason']}"))
    texts = {example["id"]: example for example in row["examples"]}
    history = [(str(step["at"]), Branch(f"{local(step['at'])}  {_step(step, texts)}")) for step in row["steps"]]
    history += [(str(cycle["started_at"]), _cycle(cycle)) for cycle in cycles]
    things = sorted(row["things"].values(), key=lambda thing: str(thing["first_at"]))
    parts = [
        *about,
        Branch("what happened", tuple(branch for _, branch in sorted(history, key=lambda entry: entry[0]))),
        Branch("what belongs to it", tuple(map(_thing, things))),
    ]
    if row["left_out"]:
        parts.append(Branch("not kept: " + ", ".join(f"{many} {name}" for name, many in row["left_out"].items())))
    return Branch(head, tuple(parts))


def _step(step: dict[str, Any], texts: dict[str, dict[str, Any]]) -> str:
    example = texts.get(step["perception"])
    what = f" ({example['source']}: {short(example['text'])})" if example else ""
    verb = _DID.get(step["did"], step["did"])
    return f"{verb}{', untrusted' if step['is_strange'] else ''}: {step['why']}{what}"


def _cycle(cycle: dict[str, Any]) -> Branch:
    text = f"{local(cycle['started_at'])}  cycle {cycle['cycle_id'][:ID]} {cycle['outcome']}"
    return Branch(text, tuple(call_lines(cycle)))


def _thing(thing: dict[str, Any]) -> Branch:
    return Branch(f"{thing['count']} × {thing['source']}/{thing['kind']} {thing['state']}: {short(thing['text'])}")


def _cycles_of(options: Options, row: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the cycles that handled an incident, as far as they are still stored.

    If one was interrupted, another cycle may have continued its work; that one is searched for.
    """
    if not row["cycles"]:
        return []
    known = row["cycles"][-_CYCLES:]

    async def question(store: Any) -> Any:
        cycles = [cycle for cycle_id in known if (cycle := await store.cycle(cycle_id)) is not None]
        if len(cycles) < len(known) or any(cycle.outcome == "interrupted" for cycle in cycles):
            latest = {entry["cycle_id"] for entry in await store.cycles(limit=_SEARCHED)} - set(row["cycles"])
            others = [await store.cycle(cycle_id) for cycle_id in latest if cycle_id > min(known)]
            cycles += [cycle for cycle in others if cycle is not None and _has_incident(cycle, row["id"])]
        return cycles

    records: list[dict[str, Any]] = from_store(options, question)
    return records


def _has_incident(cycle: Any, incident_id: str) -> bool:
    """Return whether a cycle had a perception of an incident."""
    return any(perception.attributes.get("incident") == incident_id for perception in cycle.perceptions)
