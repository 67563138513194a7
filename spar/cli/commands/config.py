"""Commands for the configuration: write a first one (`init`), check it, show the settings in force, print its schema;
and list the parts."""

from __future__ import annotations

import json
import os
from codecs import BOM_UTF8
from pathlib import Path

import click
from msgspec.structs import asdict

from spar.cli.blocks import table
from spar.cli.context import Options, fail, file_errors, refusals, show, write
from spar.data.text import printable
from spar.service import exit_codes as exits

#: The profiles, and what each is for. Their files are written from the shipped one (`make docs`).
PROFILES = {
    "watch": "watches a folder and the host by rules, without a model",
    "assistant": "answers messages by a language model, with tools",
    "bare": "takes messages and notes them: the least that runs, to build on",
}
CONFIG = Path("config.toml")


@click.command()
@click.argument("file", type=click.Path(path_type=Path), default=CONFIG)
@click.option(
    "--profile", type=click.Choice(list(PROFILES)), help="A shorter file for one use (default: all settings)."
)
@click.pass_obj
def init(options: Options, file: Path, profile: str | None) -> None:
    """Write a configuration with comments to a new file (config.toml). An existing file is never overwritten.

    Profiles: "watch" watches a folder and the host by rules; "assistant" answers messages by a language model; "bare"
    has the least that runs.

    \b
    Examples:
      spar init
      spar init --profile assistant
      spar init /etc/spar/config.toml
    """
    from spar.cli.templates import template
    from spar.config.lines import PACKAGED

    text = (PACKAGED.read_text("utf-8") if profile is None else template("profile", f"{profile}.toml")).encode()
    try:
        with file.open("xb") as new:
            new.write(text)
    except FileExistsError:
        fail(f"{file}: is there already and stays as it is; name another file, or move it away", exits.CANNOT_CREATE)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        fail(f"{file}: cannot be written: {reason}", exits.CANNOT_CREATE)
    spar = "spar" if file == CONFIG else f"spar -c {file}"
    what = "all settings, with comments" if profile is None else f"it {PROFILES[profile]}"
    message = f"{file} written: {what}; read it, change it; next: {spar} config check, then: {spar} run"
    show(options, {"file": str(file), "bytes": len(text)}, message)


@click.group()
def config() -> None:
    """Check, show or describe the configuration; list the parts that it can name."""


@config.command()
@click.option("--fix", "is_fixed", is_flag=True, help="First write the new names of renamed settings into the file.")
@click.pass_obj
def check(options: Options, is_fixed: bool) -> None:
    """Read the configuration and build every part that it names, without starting anything; exit 78 if something is
    wrong.

    A part that can be built but will not work, such as a model without a key, gives a warning.

    \b
    Examples:
      spar config check
      spar -c new.toml config check
      spar config check --fix
    """
    from spar.agent.agent import build_agent
    from spar.service.agent_metrics import warnings_of

    if is_fixed:
        _write_new_names(options)
    loaded = options.load()
    with refusals():
        agent = build_agent(loaded)
        warnings = warnings_of(agent)
    settings = loaded.settings
    counts = {"sensors": len(settings.sensors), "rules": len(settings.rules), "tools": len(settings.tools)}
    text = ", ".join(f"{number} {name}" for name, number in counts.items())
    where = str(loaded.path) if loaded.path else "no file, the defaults"
    for warning in warnings:
        click.echo(printable(f"Warning: {warning}"), err=True)
    report = {"ok": True, "file": where, "agent": agent.name, **counts, "warnings": warnings}
    show(options, report, f"{where}: {'all right' if not warnings else 'can be used'} ({text})")


def _write_new_names(options: Options) -> None:
    """Write the new names of renamed settings into the configuration file, and say so on standard error."""
    from spar.config.lines import PACKAGED, dotted, find, read
    from spar.config.refusals import RENAMED
    from spar.config.toml_lines import line_numbers, rename_key

    path = options.config_path or find(os.environ)
    if path is None or path == PACKAGED:
        fail("no configuration file of yours is in use, so there is nothing to fix", exits.CONFIG)
    with refusals():
        text = read(path).text
    changes = []
    for old, new in RENAMED.items():
        if (line := line_numbers(text).get(old)) is None:
            continue
        try:
            text = rename_key(text, old, str(new[-1]))
        except ValueError as error:
            fail(f"{path}:{line}: {dotted(old)}: cannot be renamed: {error}", exits.CONFIG)
        changes.append(f"{path}:{line}: {dotted(old)} is {dotted(new)} now")
    if changes:
        _replace(path, text)
    for change in changes:
        click.echo(printable(change), err=True)


def _replace(path: Path, text: str) -> None:
    """Replace the text of a file as a whole: a crash leaves the old one. Links, mode and line ends stay."""
    from spar.fs.atomic import replace_file
    from spar.fs.rooted import RootedDir

    target = path.resolve()
    with file_errors(path):
        mark = BOM_UTF8 if target.read_bytes().startswith(BOM_UTF8) else b""
        with RootedDir(str(target.parent)).entry((target.name,)) as (folder, name):
            replace_file(folder, name, mark + text.encode())


@config.command("show")
@click.option("--origins", is_flag=True, help="Show the origin of each value.")
@click.pass_obj
def show_config(options: Options, origins: bool) -> None:
    """Show the settings in force; values that look like secrets are masked.

    \b
    Examples:
      spar config show
      spar config show --origins
    """
    from spar.config.load import show as rendered

    loaded = options.load()
    if loaded.path is not None and _is_standard_output(loaded.path):
        sentence = f"{loaded.path}: is where this would be written, and the shell has emptied it to do so"
        fail(f"{sentence}; a new commented one comes from: spar init", exits.CONFIG)
    if options.as_json:
        show(options, json.loads(rendered(loaded, origins=origins, form="json")))
    else:
        write(rendered(loaded, origins=origins))


def _is_standard_output(path: Path) -> bool:
    """Return whether standard output is this file, as in `spar config show > config.toml`."""
    try:
        return os.path.samestat(os.fstat(1), path.stat())
    except OSError:
        return False


@config.command()
@click.pass_obj
def schema(options: Options) -> None:
    """Print the JSON schema of config.toml, for editors.

    \b
    Example:
      spar config schema > config.schema.json
    """
    from spar.parts.registry import default_registry
    from spar.parts.schema import schema as make

    show(options, make(default_registry()))


@config.command()
@click.option("--broken", is_flag=True, help="Only parts that cannot be loaded.")
@click.pass_obj
def parts(options: Options, broken: bool) -> None:
    """List the parts that the configuration can name, further commands, and the distributions of both.

    \b
    Examples:
      spar config parts
      spar config parts --broken
    """
    from spar.parts.registry import default_registry

    items = [item for item in default_registry().parts() if item.error or not broken]
    rows = [asdict(item) for item in items]
    lines = [(i.group, i.name, i.distribution, i.value, f"BROKEN: {i.error}" if i.error else "") for i in items]
    show(options, rows, table(("group", "name", "from", "object", ""), lines) if items else "none")
