"""Commands for experiences: search, show, count, export, import, forget."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import click

from spar.cli import complete
from spar.cli.blocks import Fields, table
from spar.cli.client import ask
from spar.cli.context import Options, Time, fail, from_store, show
from spar.cli.tables import counted, entry_line, local, short, zoned
from spar.operations import memory as operations
from spar.operations.history import CycleId
from spar.operations.operation import Nothing
from spar.service import exit_codes as exits

_MARKS = {True: "✓", False: "✗", None: "·"}
#: Largest part of an import that is sent to the running service at once, in bytes.
_PART = 512 * 1024


@click.command("search")
@click.argument("query", default="")
@click.option("-k", "count", type=click.IntRange(1, 1000), default=5, show_default=True, help="How many at most.")
@click.option("--session", help="Only of this session.", shell_complete=complete.sessions)
@click.option("--key", help="Only of this situation, by its exact name.")
@click.option("--success/--failure", "success", default=None, help="Only what worked, or what failed.")
@click.option("--trust", type=click.Choice(("trusted", "untrusted")), help="Only of this trust.")
@click.option("--since", type=Time(), help="Made last at or after this.")
@click.option("--as-of", type=Time(), help="Only what was known then.")
@click.option("--transcripts", is_flag=True, help="Search what was said and done in sessions instead.")
@click.pass_obj
def search(options: Options, /, query: str, count: int, transcripts: bool, session: str | None,
           since: datetime | None, **filters: Any) -> None:  # fmt: skip
    """Search experiences by words, with the score of each and the reasons; without words, list the latest.

    \b
    Examples:
      spar memory search "disk full"
      spar memory search -k 20 --failure
      spar memory search --transcripts "backup of the mail"
    """
    if transcripts:
        _search_transcripts(options, operations.TranscriptsChoice(query, session, count, since))
        return
    chosen = operations.SearchChoice(query, count, session, since=since, reasons=True, **filters)
    matches = ask(options, operations.search, chosen)
    heads = (">fit", zoned("at"), "", ">made", "id", "what", "why it is here")
    rows = [(f"{row['fit']:.2f}", local(row["at"]), _MARKS[row["success"]], str(row["count"]), row["id"],
             _summary_line(row), "; ".join(row["reasons"])) for row in matches]  # fmt: skip
    show(options, matches, table(heads, rows) if rows else "nothing is remembered of that")


def _search_transcripts(options: Options, chosen: operations.TranscriptsChoice) -> None:
    matches = ask(options, operations.transcripts, chosen)
    rows = [
        (local(hit["entry"]["at"]), hit["session"], hit["entry"]["kind"],
         hit["entry"]["body"].get("trust", ""), short(entry_line(hit["entry"]["kind"], hit["entry"]["body"])))
        for hit in matches
    ]  # fmt: skip
    heads = (zoned("at"), "session", "kind", "trust", "what")
    show(options, matches, table(heads, rows) if rows else "nothing was said of that")


@click.command("show")
@click.argument("id")
@click.pass_obj
def show_one(options: Options, id: str) -> None:
    """Show one experience in full: its calls, how often it was made, how often it helped, and its sources.

    \b
    Example:
      spar memory show 18ea256e7753
    """
    detail = ask(options, operations.show, operations.ExperienceId(id))
    experience = detail["experience"]
    rows = [(name, short(experience[name])) for name in ("situation", "said", "action", "outcome", "answer", "cause")
            if experience[name]]  # fmt: skip
    if experience["lesson"]:
        rows.append(("lesson", f"{short(experience['lesson'])}{' (retired)' if detail['is_retired'] else ''}"))
    rows += [("call", _call(call)) for call in experience["calls"]]
    times = f"{counted(experience['count'], 'time')}, last {local(experience['at'])}"
    rows += [
        ("made", times if experience["count"] == 1 else f"{times}, first {local(experience['first_at'])}"),
        ("worked", f"{_MARKS[experience['success']]} score {experience['score']}"),
        ("helped", f"{experience['helped']}, harmed {experience['harmed']}"),
        ("trust", experience["trust"]),
        ("key", experience["key"]),
        ("session", experience["session"]),
    ]
    rows += [("from", f"cycle {source['cycle_id'] or '?'}, run {source['run_id'] or '-'}, {local(source['at'])}")
             for source in detail["sources"][:10]]  # fmt: skip
    show(options, detail, Fields(f"experience {experience['id']}", tuple(rows), width=10))


@click.command("why")
@click.argument("cycle_id", metavar="CYCLE")
@click.pass_obj
def why(options: Options, cycle_id: str) -> None:
    """Show which decisions of a cycle experiences changed, with these experiences.

    \b
    Example:
      spar memory why 18ea256e7753
    """
    decisions = ask(options, operations.why, CycleId(cycle_id))
    lines = []
    for decision in decisions:
        instead = f"instead of {decision['instead_of']}: " if decision["instead_of"] else ""
        lines.append(f"{instead}{decision['why']}{'' if decision['is_used'] else ' (only observed)'}")
        for case in decision["cases"]:
            experience = case["experience"]
            line = _summary_line(experience) if experience is not None else "is not kept any more"
            lines.append(f"  {case['id']}  {line}")
    show(options, decisions, "\n".join(lines) or "memory changed no decision of this cycle")


@click.command("figures")
@click.pass_obj
def figures(options: Options) -> None:
    """Count the experiences: merged, used, useless and untrusted ones.

    \b
    Example:
      spar memory figures
    """
    numbers = ask(options, operations.figures, Nothing())
    total = max(1, numbers["rows"])

    def share(name: str) -> str:
        return f"{numbers[name]} ({numbers[name] / total:.1%})"

    rows = (
        ("rows", f"{numbers['rows']} for {numbers['made']} experiences, {numbers['bytes'] / 1e6:.1f} MB"),
        ("merged", f"{share('merged')} stand for more than one"),
        ("used", f"{share('used')} went into a decision that was judged"),
        ("idle", f"{share('idle')} teach nothing, were never used, and nobody knows whether they worked"),
        ("failed", share("failed")),
        ("unjudged", share("unjudged")),
        ("lessons", f"{share('lessons')}, of which {numbers['retired']} are retired"),
        ("untrusted", f"{share('untrusted')} are of strangers, or beside words of theirs"),
        ("no key", f"{share('without_key')} have no situation, and are never merged"),
        ("vectors", share("vectors")),
    )
    show(options, numbers, Fields("memory", rows, width=10))


@click.command("export")
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


@click.command("import")
@click.argument("file", type=click.Path(dir_okay=False, exists=True))
@click.option("--trust", is_flag=True, help="Accept the trust, the counts and the benefits that the file claims.")
@click.pass_obj
def import_(options: Options, file: str, trust: bool) -> None:
    """Import the experiences of a file of JSON lines. They are untrusted, unless you trust the file; existing ones
    stay as they are.

    \b
    Examples:
      spar memory import experiences.jsonl
      spar memory import --trust my-own-export.jsonl
    """
    try:
        lines = Path(file).read_text("utf-8").splitlines(keepends=True)
    except OSError as error:
        fail(f"{file}: cannot be read: {error}", exits.FAILED)
    except UnicodeDecodeError as error:
        fail(f"{file}: cannot be read: {error}", exits.DAMAGED)

    try:
        bodies = [operations.ImportBody(part, trust) for part in _parts(lines)]
        number = sum(ask(options, operations.import_, body)["imported"] for body in bodies)
    except click.ClickException as error:
        if error.exit_code == exits.USAGE:  # the lines were refused
            fail(error.message, exits.DAMAGED)
        raise
    total = sum(not line.isspace() for line in lines)
    here = f"; {total - number} of {total} were here already, and stay as they are" if number < total else ""
    how = "as the file says" if trust else "untrusted"
    show(options, {"imported": number}, f"{counted(number, 'new experience')}, {how}{here}")


@click.command("forget")
@click.argument("id", default="")
@click.option("--session", help="All of this session.", shell_complete=complete.sessions)
@click.option("--task", help="All of this kind of task.")
@click.option("--before", type=Time(), help="All made last before this.")
@click.pass_obj
def forget(options: Options, id: str, session: str | None, task: str | None, before: datetime | None) -> None:
    """Delete one experience permanently, or all for which every given option holds.

    \b
    Examples:
      spar memory forget 18ea256e775307670000245362
      spar memory forget --session alice
    """
    selection = operations.SelectionBody(session, task, before=before)
    if bool(id) == (selection != operations.SelectionBody()):
        fail("name one experience, or say which by --session, --task or --before", exits.USAGE)
    if id:
        answer = ask(options, operations.forget, operations.ExperienceId(id))
    else:
        answer = ask(options, operations.forget_some, selection)
    show(options, answer, f"{counted(answer['forgotten'], 'experience')} forgotten")


def _parts(lines: list[str]) -> list[str]:
    """Join lines to parts of a size that one request can have."""
    parts, size = [""], 0
    for line in lines:
        if size and size + len(line.encode()) > _PART:
            parts, size = [*parts, ""], 0
        parts[-1] += line
        size += len(line.encode())
    return parts


def _call(call: dict[str, Any]) -> str:
    ending = _MARKS[call["success"]] + (f" {call['cause']}" if call["cause"] else "")
    return f"{call['tool']} {short(call['params'])} {ending}"


def _summary_line(experience: dict[str, Any]) -> str:
    """Return an experience as one line: its situation, its action, and its lesson or outcome."""
    done = [experience["action"], experience["lesson"] or experience["outcome"]]
    consequence = ": ".join(part for part in done if part)
    trust = "" if experience["trust"] == "trusted" else " [untrusted]"
    situation = f"{experience['situation']}{trust}"
    return short(f"{situation} → {consequence}" if consequence else situation)
