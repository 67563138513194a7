"""Commands for experiences; what only reads asks the store, whether the service runs or not."""

from __future__ import annotations

import io
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from spar.cli import complete
from spar.cli.blocks import Fields, table
from spar.cli.client import NotRunningError, connect
from spar.cli.context import STORE, Options, Time, fail, from_store, refusals, show
from spar.cli.tables import counted, entry_line, local, short, zoned
from spar.service import exit_codes as exits

_MARKS = {True: "✓", False: "✗", None: "·"}
#: Bytes of one part of an import that goes to the running service.
_PART = 512 * 1024


@click.group()
def memory() -> None:
    """Look at experiences, and say what is to be forgotten."""


@memory.command("search")
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
def search(options: Options, /, query: str, count: int, session: str | None, transcripts: bool, **filters: Any) -> None:
    """Recall experiences by words, with how well each fits and why; without any words the most recent.

    \b
    Examples:
      spar memory search "disk full"
      spar memory search -k 20 --failure
      spar memory search --transcripts "backup of the mail"
    """
    if transcripts:
        _search_transcripts(options, query, count, session)
        return
    given = {name: value.astimezone() if name in ("since", "as_of") and value is not None else value
             for name, value in filters.items()}  # fmt: skip
    found = from_store(options, lambda store: store.search(query, count, session=session, **given))
    rows = [_row(each) for each in found]
    heads = (">fit", zoned("at"), "", ">made", "id", "what", "why it is here")
    plain = [{**each["experience"], "fit": each["score"], "reasons": each["reasons"]} for each in found]
    show(options, plain, table(heads, rows) if rows else "nothing is remembered of that")


def _row(found: dict[str, Any]) -> tuple[str, ...]:
    experience = found["experience"]
    mark, made = _MARKS[experience["success"]], str(experience["count"])
    why = "; ".join(found["reasons"])
    return f"{found['score']:.2f}", local(experience["at"]), mark, made, experience["id"], _told(experience), why


def _search_transcripts(options: Options, text: str, count: int, session: str | None) -> None:
    name = options.load(*STORE).settings.agent.name
    found = from_store(options, lambda store: store.transcripts.search(name, text, count, session=session))
    rows = [
        (local(each["entry"]["at"]), each["session"], each["entry"]["kind"],
         each["entry"]["body"].get("trust", ""), short(entry_line(each["entry"]["kind"], each["entry"]["body"])))
        for each in found
    ]  # fmt: skip
    show(
        options,
        found,
        table((zoned("at"), "session", "kind", "trust", "what"), rows) if rows else "nothing was said of that",
    )


@memory.command("show")
@click.argument("id")
@click.pass_obj
def show_one(options: Options, id: str) -> None:
    """Show one experience in full: its calls, how often it was made, whom it helped, where it came from.

    \b
    Example:
      spar memory show 18ea256e7753
    """
    found = from_store(options, lambda store: store.detail(id))
    if found is None:
        fail(f"no experience {id!r}; spar memory search lists those that are")
    experience = found["experience"]
    rows = [(name, short(experience[name])) for name in ("situation", "said", "action", "outcome", "answer", "cause")
            if experience[name]]  # fmt: skip
    if experience["lesson"]:
        rows.append(("lesson", f"{short(experience['lesson'])}{' (retired)' if found['is_retired'] else ''}"))
    rows += [("call", _call(each)) for each in experience["calls"]]
    made = f"{counted(experience['count'], 'time')}, last {local(experience['at'])}"
    rows += [
        ("made", made if experience["count"] == 1 else f"{made}, first {local(experience['first_at'])}"),
        ("worked", f"{_MARKS[experience['success']]} score {experience['score']}"),
        ("helped", f"{experience['helped']}, harmed {experience['harmed']}"),
        ("trust", experience["trust"]),
        ("key", experience["key"]),
        ("session", experience["session"]),
    ]
    rows += [("from", f"cycle {each['cycle_id'] or '?'}, run {each['run_id'] or '-'}, {local(each['at'])}")
             for each in found["sources"][:10]]  # fmt: skip
    show(options, found, Fields(f"experience {experience['id']}", tuple(rows), width=10))


@memory.command("why")
@click.argument("cycle_id", metavar="CYCLE")
@click.pass_obj
def why(options: Options, cycle_id: str) -> None:
    """Show which decisions of a cycle memory changed, and the experiences that they went by.

    \b
    Example:
      spar memory why 18ea256e7753
    """
    found = from_store(options, lambda store: store.why(cycle_id))
    if found is None:
        fail(f"no cycle {cycle_id!r} on the tape; spar cycles list shows those that are")
    lines = []
    for each in found:
        instead = f"instead of {each['instead_of']}: " if each["instead_of"] else ""
        lines.append(f"{instead}{each['why']}{'' if each['is_used'] else ' (only observed)'}")
        for case in each["cases"]:
            kept = case["experience"]
            lines.append(f"  {case['id']}  {_told(kept) if kept is not None else 'is not kept any more'}")
    show(options, found, "\n".join(lines) or "memory changed no decision of this cycle")


@memory.command("audit")
@click.pass_obj
def audit(options: Options) -> None:
    """Count what is remembered: merged, used, useless, of strangers.

    \b
    Example:
      spar memory audit
    """
    found = from_store(options, lambda store: store.figures())
    total = max(1, found["rows"])

    def share(name: str) -> str:
        return f"{found[name]} ({found[name] / total:.1%})"

    rows = (
        ("rows", f"{found['rows']} for {found['made']} experiences, {found['bytes'] / 1e6:.1f} MB"),
        ("merged", f"{share('merged')} stand for more than one"),
        ("used", f"{share('used')} went into a decision that was judged"),
        ("idle", f"{share('idle')} teach nothing, were never used, and nobody knows whether they worked"),
        ("failed", share("failed")),
        ("unjudged", share("unjudged")),
        ("lessons", f"{share('lessons')}, of which {found['retired']} are retired"),
        ("untrusted", f"{share('untrusted')} are of strangers, or beside words of theirs"),
        ("no key", f"{share('without_key')} have no situation, and are never merged"),
        ("vectors", share("vectors")),
    )
    show(options, found, Fields("memory", rows, width=10))


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


@memory.command("import")
@click.argument("file", type=click.Path(dir_okay=False, exists=True))
@click.option("--trust", is_flag=True, help="Believe what the file claims of trust, of counts and of what helped.")
@click.pass_obj
def import_(options: Options, file: str, trust: bool) -> None:
    """Keep the experiences of a file of JSON lines; untrusted, unless you trust the file; none of here changes.

    \b
    Examples:
      spar memory import experiences.jsonl
      spar memory import --trust my-own-export.jsonl
    """
    try:
        lines = Path(file).read_text("utf-8").splitlines(keepends=True)
    except (OSError, UnicodeDecodeError) as error:
        fail(f"{file}: cannot be read: {error}", exits.FAILED)

    def ask(client: Any) -> int:
        return sum(client.post("/v1/memory/experiences:import", {"lines": part, "trust": trust})["imported"]
                   for part in _parts(lines))  # fmt: skip

    number = _changed(options, ask, lambda store: store.import_(io.StringIO("".join(lines)), trust=trust))
    total = sum(not line.isspace() for line in lines)
    here = f"; {total - number} of {total} were here already, and stay as they are" if number < total else ""
    how = "as the file says" if trust else "untrusted"
    show(options, {"imported": number}, f"{counted(number, 'new experience')}, {how}{here}")


@memory.command("forget")
@click.argument("id", default="")
@click.option("--session", help="All of this session.", shell_complete=complete.sessions)
@click.option("--task", help="All of this kind of task.")
@click.option("--before", type=Time(), help="All made last before this.")
@click.pass_obj
def forget(options: Options, id: str, session: str | None, task: str | None, before: Any) -> None:
    """Delete one experience for good, or all for which everything holds that is given.

    \b
    Examples:
      spar memory forget 18ea256e775307670000245362
      spar memory forget --session alice
    """
    chosen: dict[str, Any] = {
        "session": session,
        "task": task,
        "before": before.astimezone() if before is not None else None,
    }
    given = {name: value for name, value in chosen.items() if value is not None}
    if bool(id) == bool(given):
        fail("name one experience, or say which by --session, --task or --before", exits.USAGE)
    if id and from_store(options, lambda store: store.detail(id)) is None:
        fail(f"no experience {id!r}; spar memory search lists those that are")

    def ask(client: Any) -> int:
        if id:
            return int(client.delete(f"/v1/memory/experiences/{quote(id, safe='')}")["forgotten"])
        body = {name: value if isinstance(value, str) else value.isoformat() for name, value in given.items()}
        return int(client.post("/v1/memory/experiences:forget", body)["forgotten"])

    async def forgotten(store: Any) -> int:
        if not id:
            return int(await store.forget(**given))
        found = await store.detail(id)
        return 0 if found is None else int(await store.forget(found.experience.id))

    number = _changed(options, ask, forgotten)
    show(options, {"forgotten": number}, f"{counted(number, 'experience')} forgotten")


def _changed(options: Options, ask: Callable[[Any], int], work: Callable[[Any], Awaitable[int]]) -> int:
    """Have the running service do it; where none runs, open its store here."""
    try:
        return ask(connect(options.state_dir()))
    except NotRunningError:
        with refusals():
            return int(from_store(options, work, read_only=False))


def _parts(lines: list[str]) -> list[str]:
    """Return lines as parts that a request takes."""
    parts, size = [""], 0
    for line in lines:
        if size and size + len(line.encode()) > _PART:
            parts, size = [*parts, ""], 0
        parts[-1] += line
        size += len(line.encode())
    return parts


def _call(call: dict[str, Any]) -> str:
    ended = _MARKS[call["success"]] + (f" {call['cause']}" if call["cause"] else "")
    return f"{call['tool']} {short(call['params'])} {ended}"


def _told(experience: dict[str, Any]) -> str:
    """Return an experience on one line: what was noticed; what was done about it and learnt."""
    done = [experience["action"], experience["lesson"] or experience["outcome"]]
    told = ": ".join(part for part in done if part)
    stranger = "" if experience["trust"] == "trusted" else " [untrusted]"
    return short(f"{experience['situation']}{stranger} → {told}" if told else f"{experience['situation']}{stranger}")
