"""Command that installs the completion of spar's commands, options, sessions and runs in a shell."""

from __future__ import annotations

import os
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from spar.cli.context import Options, fail, file_errors, show, write
from spar.service import exit_codes as exits

SHELLS = ("bash", "zsh", "fish")
#: The steps after the file is written, for each shell.
HINTS = {
    "bash": "new shells complete if the package bash-completion is there; else put this into ~/.bashrc: source {path}",
    "zsh": "put these into ~/.zshrc, before compinit if you call that already: "
    "fpath+=({folder}); autoload -Uz compinit; compinit",
    "fish": "new shells complete",
}


@click.group()
def completion() -> None:
    """Let your shell complete commands, options, sessions and runs."""


@completion.command()
@click.option("--shell", type=click.Choice(SHELLS), help="The shell (default: that of $SHELL).")
@click.option("--print", "is_printed", is_flag=True, help="Print the file instead of writing it.")
@click.pass_obj
def install(options: Options, shell: str | None, is_printed: bool) -> None:
    """Write the completion file of spar to the folder where the shell searches for it. Repeating it is harmless.

    \b
    Examples:
      spar completion install
      spar completion install --shell zsh
      spar completion install --shell bash --print > spar.bash
    """
    shell = shell or _own_shell()
    text = script(shell)
    if is_printed:
        write(text, end="")
        return
    path = file_of(shell)
    with file_errors(path, "; print it with --print instead"):
        is_new = not path.exists()
        is_changed = is_new or path.read_text(encoding="utf-8", errors="replace") != text
        if is_changed:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    outcome = "written" if is_new else "brought up to date" if is_changed else "is up to date, nothing was written"
    hint = HINTS[shell].format(path=path, folder=path.parent)
    show(options, {"file": str(path), "shell": shell, "changed": is_changed}, f"{path} {outcome}; {hint}")


def script(shell: str) -> str:
    """Return the completion script of a shell."""
    completion_class = get_completion_class(shell)
    assert completion_class is not None
    complete = completion_class(click.get_current_context().find_root().command, {}, "spar", "_SPAR_COMPLETE")
    # Not source(): that of bash starts a bash to ask for its version.
    return complete.source_template % complete.source_vars()


def file_of(shell: str) -> Path:
    """Return the path of this user's completion file for a shell."""
    home, environ = Path.home(), os.environ
    match shell:
        case "bash":
            data = Path(environ.get("XDG_DATA_HOME") or home / ".local/share")
            return Path(environ.get("BASH_COMPLETION_USER_DIR") or data / "bash-completion") / "completions" / "spar"
        case "zsh":
            return Path(environ.get("ZDOTDIR") or home) / ".zfunc" / "_spar"
    return Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "fish/completions/spar.fish"


def _own_shell() -> str:
    """Return the shell of $SHELL. An unsupported one ends the command."""
    name = Path(os.environ.get("SHELL", "")).name
    if name not in SHELLS:
        fail(f"SHELL is {os.environ.get('SHELL', '')!r}: say which shell it is for: --shell {'|'.join(SHELLS)}",
             exits.USAGE)  # fmt: skip
    return name
