"""The answer of `incidents show`: the history of an incident, and the cycles that handled it."""

from __future__ import annotations

from spar.cli.blocks import Branch
from spar.cli.commands.records.cycles import call_lines
from spar.cli.tables import ID, counted, local, short, zoned
from spar.operations.perceived import ShownIncident

#: The words for each kind of step.
_DID = {"joined": "joins", "grown": "grows", "raised": "grows worse", "over": "is over", "again": "comes again",
        "asked": "is to be closed", "opened": "opens", "reopened": "opens again", "closed": "closes"}  # fmt: skip


def incident_blocks(given: object, incident: ShownIncident) -> list[Branch]:
    """Return the tree of an incident: its head, its history in order of time, its perceptions, and omitted numbers."""
    number = len(incident.things) + incident.left_out.get("things", 0)
    size = f"{counted(incident.count, 'perception')} of {counted(number, 'thing')}"
    head = f"{incident.id}, {incident.state}, {incident.severity}, {size}, session {incident.session}"
    about = [short(incident.title)]
    if incident.strange:
        untrusted = counted(incident.strange, "perception")
        about.append(f"{untrusted} of untrusted sources besides, which move nothing here")
    about += [f"{kind}: {', '.join(names)}" for kind, names in incident.entities.items()]
    if incident.closed_at:
        about.append(f"closed {zoned(local(incident.closed_at))}: {incident.reason}")
    texts = {example.id: f" ({example.source}: {short(example.text)})" for example in incident.examples}
    history = [(step.at, Branch(f"{local(step.at)}  {_DID[step.did]}{', untrusted' if step.is_strange else ''}: "
                                f"{step.why}{texts.get(step.perception, '')}")) for step in incident.steps]  # fmt: skip
    history += [(cycle.started_at, Branch(f"{local(cycle.started_at)}  cycle {cycle.cycle_id[:ID]} {cycle.outcome}",
                                          tuple(call_lines(cycle)))) for cycle in incident.dealt]  # fmt: skip
    things = [Branch(f"{thing.count} × {thing.source}/{thing.kind} {thing.state}: {short(thing.text)}")
              for thing in sorted(incident.things.values(), key=lambda thing: thing.first_at)]  # fmt: skip
    parts = [
        *map(Branch, about),
        Branch("what happened", tuple(branch for _, branch in sorted(history, key=lambda entry: entry[0]))),
        Branch("what belongs to it", tuple(things)),
    ]
    if incident.left_out:
        parts.append(Branch("not kept: " + ", ".join(f"{many} {name}" for name, many in incident.left_out.items())))
    return [Branch(head, tuple(parts))]
