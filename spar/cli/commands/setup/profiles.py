"""Command `init`, which writes a first configuration: the shipped one, or its parts for one use."""

from __future__ import annotations

from pathlib import Path

import click

from spar.cli.context import Options, fail, show
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
