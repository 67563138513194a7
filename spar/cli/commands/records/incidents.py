"""Commands for incidents: their perceptions, their history, and the cycles that handled them."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import click

from spar.cli.blocks import Branch, table
from spar.cli.client import AbsentError, NotRunningError, connect, service
from spar.cli.commands.records.cycle_tree import call_lines
from spar.cli.context import Options, fail, from_store, show
from spar.cli.tables import ID, counted, local, short, zoned

#: The words for each kind of step.
_DID = {"joined": "joins", "grown": "grows", "raised": "grows worse", "over": "is over", "again": "comes again",
        "asked": "is to be closed", "opened": "opens", "reopened": "opens again", "closed": "closes"}  # fmt: skip
#: Cycles of one incident whose calls are shown.
_CYCLES = 20
#: Latest cycles that are searched for those that continued an interrupted one.
_SEARCHED = 200


@click.group()
def incidents() -> None:
    """Look at incidents: perceptions that belong to one problem."""


@incidents.command("list")
@click.option("--open", "only_open", is_flag=True, help="Only those that are open.")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many, newest first.")
@click.pass_obj
def list_incidents(options: Options, only_open: bool, limit: int) -> None:
    """List incidents, newest first: as the running service knows them, without one as they are stored.

    \b
    Examples:
      spar incidents list
      spar incidents list --open
    """
    rows = _from_service(options, "/v1/incidents", state="open" if only_open else "all", limit=limit)
    if rows is None:
        stored = [row for row in _incidents(options) if row["state"] == "open" or not only_open]
        rows = list(map(_summary, stored[::-1][:limit]))
    cells = [
        (row["id"], row["state"], row["severity"], str(row["count"]), local(row["opened_at"]), local(row["last_at"]),
         _about(row), short(row["title"]))
        for row in rows
    ]  # fmt: skip
    heads = ("incident", "state", "severity", ">count", zoned("opened"), "last", "about", "now")
    nothing = "no open incidents" if only_open else "no incidents yet"
    show(options, rows, table(heads, cells) if rows else nothing)


@incidents.command("show")
@click.argument("incident_id", metavar="ID")
@click.pass_obj
def show_incident(options: Options, incident_id: str) -> None:
    """Show the history of one incident: what joined it and why, what the agent did about it, how it ended.

    \b
    Example:
      spar incidents show I-12
    """
    path = _path_of(incident_id)
    row = _from_service(options, path) or _one(_incidents(options), incident_id)
    cycles = _cycles_of(options, row)
    show(options, {**row, "dealt": cycles}, None if options.as_json else story(row, cycles))


@incidents.command("close")
@click.argument("incident_id", metavar="ID")
@click.pass_obj
def close(options: Options, incident_id: str) -> None:
    """Close one incident. Later perceptions of the same problem open it again, or open a new one.

    \b
    Example:
      spar incidents close I-12
    """
    path = _path_of(incident_id)
    with service(options) as client:
        row = client.post(f"{path}:close")
    show(options, row, f"closed with the next cycle: {row['id']}")


def _path_of(incident_id: str) -> str:
    """Return the path of an incident in the control API. An empty id ends the command."""
    if not incident_id.strip():
        fail("ID is empty; spar incidents list --open shows those that are open")
    return f"/v1/incidents/{quote(incident_id.strip(), safe='', errors='replace')}"


def _from_service(options: Options, path: str, **params: Any) -> Any:
    """Return the answer of the running service; None if none runs, or it knows nothing of that name."""
    try:
        return connect(options.state_dir()).get(path, **params)
    except (NotRunningError, AbsentError):
        return None


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


def _about(row: dict[str, Any]) -> str:
    names = [names[0] for names in row["entities"].values() if names]
    return ", ".join(names[:3]) or row.get("subject") or ""


def _summary(row: dict[str, Any]) -> dict[str, Any]:
    """Return an incident in short form, as `GET /v1/incidents` does."""
    number = len(row["things"]) + row["left_out"].get("things", 0)
    return {key: value for key, value in row.items() if key not in ("states", "examples", "steps", "cycles")} | {
        "things": number
    }


def _incidents(options: Options) -> list[dict[str, Any]]:
    """Return the incidents from the store, the oldest first: all that cycles have begun to handle."""
    from spar.ports.small_rows import rows_of
    from spar.records.perceived.incidents import incidents_in, owner_of

    agent = options.load("agent.name").settings.agent.name

    async def question(store: Any) -> Any:
        rows = rows_of(store)
        return incidents_in(await rows.rows(owner_of(agent)) if rows is not None else {})[0]

    rows: list[dict[str, Any]] = from_store(options, question)
    return rows


def _one(rows: list[dict[str, Any]], incident_id: str) -> dict[str, Any]:
    """Return the incident of an id. An unknown id ends the command."""
    for row in rows:
        if row["id"].casefold() == incident_id.strip().casefold():
            return row
    known = ", ".join(row["id"] for row in rows[-5:]) or "none"
    fail(f"no incident {incident_id!r:.100}; the last are: {known}")


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
