"""Commands for incidents: what belonged to one trouble, how it went, and what was done about it."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import click

from spar.cli.blocks import Branch, table
from spar.cli.client import service
from spar.cli.commands.records.cycle_tree import call_lines
from spar.cli.context import Options, fail, from_store, show
from spar.cli.tables import ID, counted, local, short, zoned

#: What a step is called for people.
_DID = {"joined": "joins", "grown": "grows", "raised": "grows worse", "over": "is over", "again": "comes again",
        "asked": "is to be closed", "opened": "opens", "reopened": "opens again", "closed": "closes"}  # fmt: skip
#: Cycles of one incident whose calls are shown.
_CYCLES = 20
#: Cycles that are searched for those that went on with one that was cut off.
_SEARCHED = 200


@click.group()
def incidents() -> None:
    """Look at incidents: what belongs to one trouble."""


@incidents.command("list")
@click.option("--open", "only_open", is_flag=True, help="Only those that are open.")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many, newest first.")
@click.pass_obj
def list_incidents(options: Options, only_open: bool, limit: int) -> None:
    """List incidents, newest first; whether the service runs or not.

    \b
    Examples:
      spar incidents list
      spar incidents list --open
    """
    rows = [row for row in _known(options) if row["state"] == "open" or not only_open][::-1][:limit]
    cells = [
        (row["id"], row["state"], row["severity"], str(row["count"]), local(row["opened_at"]), local(row["last_at"]),
         _about(row), short(row["title"]))
        for row in rows
    ]  # fmt: skip
    heads = ("incident", "state", "severity", ">count", zoned("opened"), "last", "about", "now")
    nothing = "no open incidents" if only_open else "no incidents yet"
    show(options, list(map(_summary, rows)), table(heads, cells) if rows else nothing)


@incidents.command("show")
@click.argument("incident_id", metavar="ID")
@click.pass_obj
def show_incident(options: Options, incident_id: str) -> None:
    """Tell the story of one in order: what joined it and why, what the agent did about it, how it ended.

    \b
    Example:
      spar incidents show I-12
    """
    row = _one(_known(options), incident_id)
    cycles = _cycles_of(options, row)
    show(options, {**row, "dealt": cycles}, None if options.as_json else story(row, cycles))


@incidents.command("close")
@click.argument("incident_id", metavar="ID")
@click.pass_obj
def close(options: Options, incident_id: str) -> None:
    """Close one: what comes of it later opens it again, or another one.

    \b
    Example:
      spar incidents close I-12
    """
    if not incident_id.strip():
        fail("ID is empty; spar incidents list --open shows those that are open")
    with service(options) as client:
        row = client.post(f"/v1/incidents/{quote(incident_id, safe='', errors='replace')}:close")
    show(options, row, f"closed with the next cycle: {row['id']}")


def story(row: dict[str, Any], cycles: list[dict[str, Any]]) -> Branch:
    """Return an incident for people: its head, what happened to it in order, what belongs to it, what is kept."""
    number = len(row["things"]) + row["left_out"].get("things", 0)
    heard = f"{counted(row['count'], 'perception')} of {counted(number, 'thing')}"
    head = f"{row['id']}, {row['state']}, {row['severity']}, {heard}, session {row['session']}"
    about = [Branch(short(row["title"]))]
    if row["strange"]:
        heard = counted(row["strange"], "perception")
        about.append(Branch(f"{heard} of untrusted sources besides, which move nothing here"))
    about += [Branch(f"{kind}: {', '.join(names)}") for kind, names in row["entities"].items()]
    if row["closed_at"]:
        about.append(Branch(f"closed {zoned(local(row['closed_at']))}: {row['reason']}"))
    texts = {each["id"]: each for each in row["examples"]}
    told = [(str(each["at"]), Branch(f"{local(each['at'])}  {_step(each, texts)}")) for each in row["steps"]]
    told += [(str(cycle["started_at"]), _cycle(cycle)) for cycle in cycles]
    things = sorted(row["things"].values(), key=lambda each: str(each["first_at"]))
    parts = [
        *about,
        Branch("what happened", tuple(branch for _, branch in sorted(told, key=lambda each: each[0]))),
        Branch("what belongs to it", tuple(map(_thing, things))),
    ]
    if row["left_out"]:
        parts.append(Branch("not kept: " + ", ".join(f"{many} {name}" for name, many in row["left_out"].items())))
    return Branch(head, tuple(parts))


def _step(step: dict[str, Any], texts: dict[str, dict[str, Any]]) -> str:
    example = texts.get(step["perception"])
    what = f" ({example['source']}: {short(example['text'])})" if example else ""
    did = _DID.get(step["did"], step["did"])
    return f"{did}{', untrusted' if step['is_strange'] else ''}: {step['why']}{what}"


def _cycle(cycle: dict[str, Any]) -> Branch:
    text = f"{local(cycle['started_at'])}  cycle {cycle['cycle_id'][:ID]} {cycle['outcome']}"
    return Branch(text, tuple(call_lines(cycle)))


def _thing(thing: dict[str, Any]) -> Branch:
    return Branch(f"{thing['count']} × {thing['source']}/{thing['kind']} {thing['state']}: {short(thing['text'])}")


def _about(row: dict[str, Any]) -> str:
    names = [names[0] for names in row["entities"].values() if names]
    return ", ".join(names[:3]) or row.get("subject") or ""


def _summary(row: dict[str, Any]) -> dict[str, Any]:
    """Return an incident in short, as `GET /v1/incidents` does."""
    number = len(row["things"]) + row["left_out"].get("things", 0)
    return {key: value for key, value in row.items() if key not in ("examples", "steps", "cycles")} | {"things": number}


def _known(options: Options) -> list[dict[str, Any]]:
    """Return the incidents, the oldest first, from the file: it has all that cycles have begun to deal with."""
    from spar.ports.small_rows import rows_of
    from spar.records.perceived.incidents import incidents_in, owner_of

    agent = options.load("agent.name").settings.agent.name

    async def question(store: Any) -> Any:
        rows = rows_of(store)
        return incidents_in(await rows.rows(owner_of(agent)) if rows is not None else {})[0]

    found: list[dict[str, Any]] = from_store(options, question)
    return found


def _one(rows: list[dict[str, Any]], incident_id: str) -> dict[str, Any]:
    for row in rows:
        if row["id"].casefold() == incident_id.strip().casefold():
            return row
    known = ", ".join(row["id"] for row in rows[-5:]) or "none"
    fail(f"no incident {incident_id!r:.100}; the last are: {known}")


def _cycles_of(options: Options, row: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the cycles that dealt with an incident, as far as they are still on the tape.

    What a cycle was told that was cut off, another one may have dealt with, which is looked for.
    """
    if not row["cycles"]:
        return []
    known = row["cycles"][-_CYCLES:]

    async def question(store: Any) -> Any:
        found = [cycle for each in known if (cycle := await store.cycle(each)) is not None]
        if len(found) < len(known) or any(cycle.outcome == "interrupted" for cycle in found):
            since = {each["cycle_id"] for each in await store.cycles(limit=_SEARCHED)} - set(row["cycles"])
            others = [await store.cycle(each) for each in since if each > min(known)]
            found += [cycle for cycle in others if cycle is not None and _tells_of(cycle, row["id"])]
        return found

    found: list[dict[str, Any]] = from_store(options, question)
    return found


def _tells_of(cycle: Any, incident_id: str) -> bool:
    return any(perception.attributes.get("incident") == incident_id for perception in cycle.perceptions)
