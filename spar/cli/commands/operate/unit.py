"""Commands for the service under systemd: write and start its unit, show it, remove it."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spar.cli.commands.operate.logs import logs
from spar.cli.context import Options, fail, file_errors, refusals, show
from spar.data.text import printable
from spar.service import exit_codes as exits
from spar.service.unit import WRITTEN_BY, UnitTerms, unit

if TYPE_CHECKING:
    from spar.config.tables.settings import Loaded

#: Folders of the units of the system's manager, and of a user's manager below its configuration folder.
SYSTEM_UNITS = Path("/etc/systemd/system")
USER_UNITS = Path("systemd/user")
#: Properties that `systemctl show` prints.
SHOWN = ("LoadState", "ActiveState", "SubState", "Result", "NRestarts", "MainPID", "ExecMainStatus")

#: Beginnings of systemctl's lines about successful steps, which may precede its error.
_DONE = ("Created symlink", "Removed ")

_user = click.option("--user", "is_user", is_flag=True, help="Use your own service manager instead of the system's.")
_name = click.option("--name", default="spar", show_default=True, metavar="NAME", help="The name of the unit.")


@click.group("service")
def service_unit() -> None:
    """Let systemd run the service: install, show and remove its unit; show its log."""


service_unit.add_command(logs)


@service_unit.command()
@_user
@_name
@click.option(
    "--as", "user", metavar="USER", help="The user it runs as (default: the owner of the configuration's folder)."
)
@click.option("--credential", "credentials", multiple=True, metavar="NAME:FILE",
              help="Where a credential of the configuration is (default: /etc/credstore/NAME).")  # fmt: skip
@click.option("--no-start", is_flag=True, help="Write the unit only.")
@click.option("--print", "only_print", is_flag=True, help="Show the unit and write nothing.")
@click.pass_obj
def install(options: Options, /, is_user: bool, name: str, user: str | None, no_start: bool, **more: Any) -> None:
    """Write a systemd unit for this configuration, and start it now and at each boot.

    It runs with watchdog and confinement as the user who owns the configuration's folder. A repeated install replaces
    the unit that spar has written before, and no other.

    \b
    Examples:
      sudo spar -c /etc/spar/config.toml service install
      spar service install --user
      sudo spar service install --credential openai:/root/openai.key
      spar service install --print
    """
    text = _text(options, user, more["credentials"], is_user=is_user)
    if more["only_print"]:
        click.echo(text, nl=False)
        return
    path = _path(name, is_user=is_user)
    if path.exists() and not path.read_text(errors="replace").startswith(WRITTEN_BY):
        fail(f"{path}: there is a unit that spar has not written; choose another --name", exits.CANNOT_CREATE)
    with file_errors(path, "; run it with sudo, or with --user", exits.NO_PERMISSION):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    if not no_start:
        _systemctl("daemon-reload", is_user=is_user, hint=f"{path} is written")
        log = f"journalctl {'--user ' if is_user else ''}-u {path.stem}"
        hint = f"{path} is written; why it does not start stands in: {log}"
        _systemctl("enable", "--now", path.name, is_user=is_user, hint=hint)
    which = f"-c {options.config_path} " if options.config_path else ""
    sentence = f"{path} written" + ("" if no_start else f", {path.stem} started; look at it with: spar {which}status")
    show(options, {"unit": str(path), "started": not no_start}, sentence)


@service_unit.command()
@_user
@_name
@click.pass_obj
def uninstall(options: Options, is_user: bool, name: str) -> None:
    """Stop the service and remove its unit; its state directory stays.

    \b
    Example:
      sudo spar service uninstall
    """
    path = _path(name, is_user=is_user)
    if not path.exists():
        fail(f"{path}: there is no such unit")
    if not path.read_text(errors="replace").startswith(WRITTEN_BY):
        fail(f"{path}: spar has not written this unit; take it away by hand", exits.CANNOT_CREATE)
    _systemctl("disable", "--now", path.name, is_user=is_user, hint="nothing was taken away")
    with file_errors(path, code=exits.NO_PERMISSION, did="taken away"):
        path.unlink()
    _systemctl("daemon-reload", is_user=is_user, hint=f"{path} is gone")
    show(options, {"removed": str(path)}, f"{path} taken away; what the service keeps is still there")


@service_unit.command("status")
@_user
@_name
@click.pass_obj
def unit_status(options: Options, is_user: bool, name: str) -> None:
    """Show systemd's state of the unit; `spar status` shows what the service does.

    \b
    Example:
      spar service status
    """
    output = _systemctl(
        "show", "--property", ",".join(SHOWN), f"{name}.service", is_user=is_user, hint="nothing is known"
    )
    properties = dict(line.partition("=")[::2] for line in output.splitlines() if "=" in line)
    if properties.get("LoadState") == "not-found":
        fail(f"there is no unit {name}; spar service install writes one", exits.UNAVAILABLE)
    restarts, pid = properties.get("NRestarts", "?"), properties.get("MainPID", "0")
    parts = [f"{name}: {properties.get('ActiveState', '?')} ({properties.get('SubState', '?')})"]
    parts += [f"process {pid}"] if pid != "0" else [f"ended with {properties.get('ExecMainStatus', '?')}"]
    show(options, properties, printable(", ".join([*parts, f"restarted {restarts} times"])))


def _text(options: Options, user: str | None, credentials: Sequence[str], *, is_user: bool) -> str:
    """Return the text of the unit for the configuration. A configuration that allows none ends the command."""
    loaded = options.load()
    if loaded.path is None:
        fail("there is no config.toml; write one with: spar init", exits.CONFIG)
    if options.overrides:
        fail("--set is not kept in a unit; write it into the configuration", exits.USAGE)
    folder = loaded.folder.resolve()
    runs_as = None if is_user else user or _owner(folder)
    if runs_as == "root":
        fail(f"it would run as root, who owns {folder}: give the folder to a user of its own (chown), or say --as USER",
             exits.NO_PERMISSION)  # fmt: skip
    if runs_as is not None and not _is_known(runs_as):
        fail(f"--as {printable(runs_as)[:40]!r}: this machine knows no such user", exits.USAGE)
    settings = loaded.settings
    folders = (settings.service.state_dir, settings.service.workspace)
    writes = tuple(dict.fromkeys([folder, *((folder / path).resolve() for path in folders)]))
    terms = UnitTerms(Path(sys.executable), loaded.path.resolve(), folder, runs_as, writes, settings.service.drain,
                      _credentials(loaded, credentials), bool(settings.memory.options.get("standby")))  # fmt: skip
    try:
        return unit(terms)
    except ValueError as error:
        fail(str(error), exits.CONFIG)


def _credentials(loaded: Loaded, given: Sequence[str]) -> tuple[str, ...]:
    """Return the credentials that the configuration names, with their files. Others end the command.

    Args: given: the values of `--credential`.
    """
    from spar.config.factory import secrets_of

    with refusals():
        names = dict.fromkeys(secret.name for secret in secrets_of(loaded) if secret.origin == "credential")
    files = {}
    for credential in given:
        name, _, file = credential.partition(":")
        if name not in names:
            known = ", ".join(names) or "none"
            sentence = f"--credential {printable(name)[:40]!r}: the configuration names no such credential"
            fail(f"{sentence}; it names: {known}", exits.USAGE)
        if not Path(file).is_absolute():
            fail(f"--credential {printable(credential)[:80]!r}: must be NAME:FILE with an absolute path", exits.USAGE)
        files[name] = f"{name}:{file}"
    return tuple(files.get(name, name) for name in names)


def _owner(folder: Path) -> str:
    """Return the name of the owner of a folder. An owner without a name ends the command."""
    try:
        return folder.owner()
    except KeyError:
        fail(f"{folder} is owned by user {folder.stat().st_uid}, who has no name; say --as USER", exits.NO_PERMISSION)


def _is_known(user: str) -> bool:
    try:
        pwd.getpwnam(user)
    except (KeyError, ValueError):
        return False
    return True


def _path(name: str, *, is_user: bool) -> Path:
    """Return the file of a unit. A malformed name ends the command."""
    if not name or len(name) > 100 or not all(sign.isascii() and (sign.isalnum() or sign in "-_.@") for sign in name):
        fail(f"--name {printable(name)[:40]!r}: letters, digits and - _ . @ only, at most 100", exits.USAGE)
    home = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return (home / USER_UNITS if is_user else SYSTEM_UNITS) / f"{name}.service"


def _systemctl(*words: str, is_user: bool, hint: str) -> str:
    """Run systemctl and return its output. A failure, or a machine without systemctl, ends the command.

    Args: hint: the end of the error's sentence.
    """
    program = shutil.which("systemctl")
    if program is None:
        fail(f"systemctl is not there: this machine has no systemd; {hint}", exits.UNAVAILABLE)
    result = subprocess.run([program, *(["--user"] if is_user else []), *words], capture_output=True, text=True)
    if result.returncode != 0:
        errors = [line for line in result.stderr.splitlines() if line.strip() and not line.startswith(_DONE)]
        why = printable(errors[0] if errors else f"exit {result.returncode}")
        fail(f"systemctl {words[0]}: {why.rstrip('.')}; {hint}", exits.UNAVAILABLE)
    return result.stdout
