"""Looking after what is kept: copies, putting one back, checking it, and one page on how everything is."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from spar.cli.context import Options, fail, refusals, show
from spar.data.text import printable
from spar.service import exit_codes as exits

if TYPE_CHECKING:
    from spar.ports.store import Care

_MARKS = {"ok": "ok  ", "warn": "warn", "bad": "BAD "}


@click.command("backup")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path), required=False)
@click.pass_obj
def backup(options: Options, file: Path | None) -> None:
    """Copy the memory to FILE while the service runs or not; the copy is checked before it gets its name.

    Without FILE it is memory-TIME.db in the current folder. Such a copy stays until you delete it; the one that the
    service makes by itself each day is beside the memory in the state folder and is replaced by the next.

    \b
    Examples:
      spar backup
      spar backup /mnt/safe/memory.db
    """
    target = file or Path(time.strftime("memory-%Y%m%dT%H%M%SZ.db", time.gmtime()))
    care = _care(options)
    with _explained(str(target)):
        copied = care.back_up(str(target))
    answer = {"file": copied.path, "bytes": copied.bytes, "last_fact": copied.last_fact}
    show(options, answer, f"{copied.path}: {copied.bytes // 1024} KiB, checked")


@click.command("restore")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.pass_obj
def restore(options: Options, file: Path) -> None:
    """Put a copy in the place of the memory; the service must be stopped. The present file is set aside, not deleted.

    \b
    Example:
      spar restore memory-20261121T180000Z.db
    """
    care = _care(options)
    with _explained(str(file)):
        aside = care.restore(str(file))
    was = f"; what was there is now {aside}" if aside else ""
    show(options, {"file": care.path, "set_aside": aside}, f"{care.path}: restored from {file}{was}")


@click.command("verify")
@click.pass_obj
def verify(options: Options) -> None:
    """Look at every page and every row of the memory; ends with code 65 if something does not fit.

    \b
    Examples:
      spar verify
      spar verify --json
    """
    care = _care(options)
    with _explained(care.path):
        report = care.verify()
    answer = {
        "file": report.path,
        "is_whole": report.is_whole,
        "rows": report.rows,
        "findings": [{"table": each.table, "row": each.row, "what": each.what} for each in report.findings],
    }
    counted = ", ".join(f"{count} {table}" for table, count in report.rows.items())
    lines = [f"{report.path}: {'whole' if report.is_whole else 'DAMAGED'} ({counted or 'no rows'})"]
    show(options, answer, "\n".join([*lines, *map(str, report.findings)]))
    if not report.is_whole:
        raise SystemExit(exits.DAMAGED)


@click.command("doctor")
@click.option("--acknowledge", is_flag=True, help="say that you have seen what was lost; it is told no more")
@click.pass_obj
def doctor(options: Options, acknowledge: bool) -> None:
    """One page on how everything is, and what to do about it; ends with code 1 if something is bad.

    A loss or damage of the memory stays bad until it is acknowledged.

    \b
    Example:
      spar doctor
      spar doctor --acknowledge
    """
    from spar.errors import ConfigError

    lines: list[tuple[str, str, str, str]] = []
    try:
        loaded = options.load_again()
        lines.append(("configuration", "ok", str(loaded.path or "the defaults"), ""))
    except ConfigError as error:
        lines.append(("configuration", "bad", str(error), "spar config check"))
    else:
        lines += [_folder(loaded.folder / loaded.settings.service.state_dir), _service(options)]
        try:
            care = _care(options)
            if acknowledge:
                with _explained("acknowledge"):
                    lines.append(("acknowledged", "ok", f"{care.acknowledge()} losses", ""))
            checks = care.examine()
            lines += [(each.name, each.state, each.found, each.advice) for each in checks]
        except (click.ClickException, ConfigError) as error:
            lines.append(("memory", "bad", str(error), "spar config check"))
    answer = [dict(zip(("name", "state", "found", "advice"), line, strict=True)) for line in lines]
    show(options, answer, "\n".join(_line(*line) for line in lines))
    if any(state == "bad" for _, state, _, _ in lines):
        raise SystemExit(exits.FAILED)


def _care(options: Options) -> Care:
    """Return the maintenance part of the configured store. Ends the command when that has nothing of the kind."""
    from spar.config.factory import Parts
    from spar.ports.optional import offers
    from spar.ports.store import HasCare

    loaded = options.load()
    with refusals():
        memory = Parts(loaded).memory()
        care = memory.care if offers(memory, HasCare) else None
    if care is None:
        fail(f"the store {loaded.settings.memory.use!r} cannot be looked after from here", exits.UNAVAILABLE)
    return care


@contextmanager
def _explained(name: str) -> Iterator[None]:
    from spar.errors import SparError

    try:
        with refusals(exits.UNAVAILABLE):
            yield
    except SparError as error:
        fail(str(error), exits.DAMAGED)
    except OSError as error:
        fail(f"{name}: {error.strerror or error}", exits.CANNOT_CREATE)


def _folder(folder: Path) -> tuple[str, str, str, str]:
    nearest = next(each for each in (folder, *folder.absolute().parents) if each.exists())
    if os.access(nearest, os.W_OK | os.X_OK):
        return ("state folder", "ok", str(folder), "")
    return ("state folder", "bad", f"{nearest} cannot be written", "give it to the user of the service")


def _service(options: Options) -> tuple[str, str, str, str]:
    from spar.file_lock import STATE_LOCK, holder

    try:
        is_running = holder(options.state_dir() / STATE_LOCK) is not None
    except OSError as error:
        return ("service", "warn", f"nobody can tell whether it runs: {error.strerror}", "ask as its user")
    return ("service", "ok", "runs" if is_running else "does not run", "")


def _line(name: str, state: str, state_text: str, advice: str) -> str:
    return printable(f"{_MARKS[state]} {name:14} {state_text}" + (f"  -> {advice}" if advice else ""))
