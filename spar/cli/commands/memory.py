"""Commands of the memory beyond those of the table: `export`, `import`, `backup`, `restore`, `verify`, `move`."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from msgspec import to_builtins
from msgspec.structs import replace

from spar.cli.blocks import UNCUT, counted, styled, table
from spar.cli.context import Options, fail, file_errors, refusals, show
from spar.cli.offline import STORE, from_store
from spar.config.lines import Sources
from spar.config.load import from_mapping
from spar.data.text import printable
from spar.errors import SparError, TransientError
from spar.net.control_socket import name_of
from spar.parts.factory import Parts
from spar.ports.any_part import has
from spar.ports.store import Care, DurableStore, OptionalStore
from spar.records.audit import AuditDraft
from spar.service import exit_codes as exits

#: Largest part of an import that is sent to the running service at once, in bytes.
_PART = 512 * 1024


@click.command("export")
@click.argument("file", type=click.Path(dir_okay=False, writable=True))
@click.pass_obj
def export(options: Options, file: str) -> None:
    """Write all experiences to a file, one JSON object a line.

    \b
    Example:
      spar memory export experiences.jsonl
    """
    with file_errors(file):
        number = from_store(options, lambda store: store.export(file))
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
    from spar.cli.nouns import ask  # the other commands ask no service
    from spar.operations import memory as operations

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


def _parts(lines: list[str]) -> list[str]:
    """Join lines to parts of a size that one request can have."""
    parts, size = [""], 0
    for line in lines:
        if size and size + len(line.encode()) > _PART:
            parts, size = [*parts, ""], 0
        parts[-1] += line
        size += len(line.encode())
    return parts


#: The beginnings of a URL of PostgreSQL.
_SERVERS = ("postgresql://", "postgres://")


@click.command("backup")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path), required=False)
@click.pass_obj
def backup(options: Options, file: Path | None) -> None:
    """Copy the memory to FILE, whether the service runs or not; the copy is checked before it gets its name.

    The default FILE is memory-TIME.db in the current folder. Such a copy stays until you delete it. The service's own
    daily copy is in the state folder, beside the memory, and the next one replaces it.

    \b
    Examples:
      spar memory backup
      spar memory backup /mnt/safe/memory.db
    """
    target = file or Path(time.strftime("memory-%Y%m%dT%H%M%SZ.db", time.gmtime()))
    care = care_of(store(options))
    with ending_on_errors(str(target)):
        copy = care.back_up(str(target))
    answer = {"file": copy.path, "bytes": copy.bytes, "last_fact": copy.last_fact}
    show(options, answer, f"{copy.path}: {copy.bytes // 1024} KiB, checked")


@click.command("restore")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.pass_obj
def restore(options: Options, file: Path) -> None:
    """Replace the memory by a copy; the service must be stopped. The present file is renamed, not deleted.

    \b
    Example:
      spar memory restore memory-20261121T180000Z.db
    """
    care = care_of(store(options))
    with ending_on_errors(str(file)):
        aside = care.restore(str(file))
    note_offline(options, "memory.restore", care.path, {"from": str(file.resolve()), "set_aside": aside or ""})
    was = f"; what was there is now {aside}" if aside else ""
    show(options, {"file": care.path, "set_aside": aside}, f"{care.path}: restored from {file}{was}")


@click.command("move")
@click.option("--to", "target", required=True, metavar="TARGET", help="The new place: a URL of PostgreSQL, or a file.")
@click.pass_obj
def move(options: Options, target: str) -> None:
    """Move the memory to PostgreSQL, or back to a file; no service may run.

    TARGET is an empty database or a new file. All rows are copied and compared; those of the present place stay
    unchanged. A move that is cut off leaves nothing in the new place. The password of a database is best given in
    PGPASSWORD or ~/.pgpass.

    \b
    Examples:
      spar memory move --to postgresql://spar@db.example.org/agent
      spar memory move --to sqlite:memory.db
    """
    parts = store(options)
    source, is_server = care_of(parts), target.startswith(_SERVERS)
    if "://" in target and not target.startswith((*_SERVERS, "sqlite:///")):
        fail("--to: known are postgresql://user@host:5432/database, sqlite:FILE and a path", exits.USAGE)
    server: Any = care_of(_elsewhere(parts, target)) if is_server else source
    new = server.path if is_server else os.path.realpath(target.removeprefix("sqlite:///").removeprefix("sqlite:"))
    draft = _draft(parts, "memory.move", new, {"from": source.path})
    if not has(server, OptionalStore.copy_from_file) or has(source, OptionalStore.copy_from_file) == is_server:
        fail("one must be a file and one a database; spar memory backup copies a file, pg_dump a database", exits.USAGE)
    with ending_on_errors(new):
        rows = server.copy_from_file(source.path, draft) if is_server else server.copy_to_file(new, draft)
    counted = table(("table", ">rows"), [(name, f"{count:,}") for name, count in rows.items()])
    head = f"moved to {new}: let memory.use and memory.url name that; {source.path} is as it was"
    show(options, {"from": source.path, "to": new, "rows": dict(rows)}, counted, head)


@click.command("verify")
@click.pass_obj
def verify(options: Options) -> None:
    """Check every page and every row of the memory; ends with code 65 if something is damaged.

    \b
    Examples:
      spar memory verify
      spar memory verify --json
    """
    care = care_of(store(options))
    with ending_on_errors(care.path):
        report = care.verify()
    answer = {"file": report.path, "is_whole": report.is_whole, "rows": report.rows,
              "findings": to_builtins(report.findings)}  # fmt: skip
    verdict = styled(*(("whole", "good") if report.is_whole else ("DAMAGED", "bad")))
    counted = table(("table", ">rows"), [(name, f"{count:,}") for name, count in report.rows.items()])
    rows = [(finding.table, "" if finding.row is None else str(finding.row), finding.what)
            for finding in report.findings]  # fmt: skip
    damage = table(("damaged", "row", "what was found"), rows, UNCUT)
    head = table(("file", "is"), [(report.path, verdict)], UNCUT)
    show(options, answer, head, counted if report.rows else "no rows", *([damage] if report.findings else []))
    if not report.is_whole:
        raise SystemExit(exits.DAMAGED)


def store(options: Options) -> Parts:
    """Return the parts of the configuration, of which only the settings of the store are loaded."""
    return Parts(options.load(*STORE))


def care_of(parts: Parts) -> Care:
    """Return the maintenance part of the configured store. A store without one ends the command."""
    with refusals():
        memory: DurableStore = parts.memory()
        care = memory.care if has(memory, DurableStore.care) else None
    if care is None:
        fail(f"the store {parts.settings.memory.use!r} cannot be looked after from here", exits.UNAVAILABLE)
    return care


def _elsewhere(parts: Parts, url: str) -> Parts:
    """Return the parts of a configuration whose memory is at a URL of a server."""
    memory = from_mapping({"memory": {"use": "postgres", "url": url}}).memory
    return Parts(replace(parts.loaded, settings=replace(parts.settings, memory=memory), sources=Sources()))


def _draft(parts: Parts, action: str, subject: str, detail: dict[str, Any]) -> AuditDraft:
    """Return the entry of the audit log about an action on a memory that no service uses."""
    agent = parts.settings.agent.name
    return AuditDraft(name_of(os.getuid()), "shell", action, subject, agent=agent, rows=(), detail=detail)


def note_offline(options: Options, action: str, subject: str, detail: dict[str, Any]) -> None:
    """Write an action on a memory that no service uses to the audit log; print a warning if that fails."""
    draft = _draft(store(options), action, subject, detail)

    async def write(memory: Any) -> None:
        if has(memory, OptionalStore.audit):
            await memory.audit.write(draft)

    try:
        from_store(options, write, read_only=False)
    except click.ClickException as error:
        click.echo(printable(f"Warning: the audit log has no entry of it: {error}"), err=True)


@contextmanager
def ending_on_errors(name: str) -> Iterator[None]:
    """End the command with the fitting code if the body raises an error of the memory or the file system."""
    try:
        with refusals(exits.UNAVAILABLE):
            yield
    except TransientError as error:
        fail(str(error), exits.UNAVAILABLE)
    except SparError as error:
        fail(str(error), exits.DAMAGED)
    except OSError as error:
        fail(f"{name}: {error.strerror or error}", exits.CANNOT_CREATE)
