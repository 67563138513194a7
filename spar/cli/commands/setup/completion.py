"""Command that has a shell complete the commands of spar, their options, and what the running service knows."""

from __future__ import annotations

import os
from pathlib import Path

import click

from spar.cli.context import Options, fail, show, write
from spar.service import exit_codes as exits

SHELLS = ("bash", "zsh", "fish")
#: What a shell needs besides the file, where it does not look there by itself.
HINTS = {
    "bash": "new shells complete if the package bash-completion is there; else put this into ~/.bashrc: source {path}",
    "zsh": "put these into ~/.zshrc, before compinit if you call that already: "
    "fpath+=({folder}); autoload -Uz compinit; compinit",
    "fish": "new shells complete",
}


@click.group()
def completion() -> None:
    """Have your shell complete commands, options, sessions and runs."""


@completion.command()
@click.option("--shell", type=click.Choice(SHELLS), help="The shell (default: that of $SHELL).")
@click.option("--print", "is_printed", is_flag=True, help="Print what would be written, and write nothing.")
@click.pass_obj
def install(options: Options, shell: str | None, is_printed: bool) -> None:
    """Write the file by which a shell completes spar, where that shell looks for it. Again, it changes nothing.

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
    try:
        is_new = not path.exists()
        is_changed = is_new or path.read_text(encoding="utf-8", errors="replace") != text
        if is_changed:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        fail(f"{path}: cannot be written: {error.strerror}; print it with --print instead", exits.CANNOT_CREATE)
    done = "written" if is_new else "brought up to date" if is_changed else "is up to date, nothing was written"
    hint = HINTS[shell].format(path=path, folder=path.parent)
    show(options, {"file": str(path), "shell": shell, "changed": is_changed}, f"{path} {done}; {hint}")


def script(shell: str) -> str:
    """Return the program by which a shell completes spar."""
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    assert found is not None
    complete = found(click.get_current_context().find_root().command, {}, "spar", "_SPAR_COMPLETE")
    # Not source(): that of bash starts one to ask for its version.
    return complete.source_template % complete.source_vars()


def file_of(shell: str) -> Path:
    """Return the file of this user in which a shell looks for the completion of spar."""
    home, environ = Path.home(), os.environ
    match shell:
        case "bash":
            data = Path(environ.get("XDG_DATA_HOME") or home / ".local/share")
            return Path(environ.get("BASH_COMPLETION_USER_DIR") or data / "bash-completion") / "completions" / "spar"
        case "zsh":
            return Path(environ.get("ZDOTDIR") or home) / ".zfunc" / "_spar"
    return Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "fish/completions/spar.fish"


def _own_shell() -> str:
    name = Path(os.environ.get("SHELL", "")).name
    if name not in SHELLS:
        fail(f"SHELL is {os.environ.get('SHELL', '')!r}: say which shell it is for: --shell {'|'.join(SHELLS)}",
             exits.USAGE)  # fmt: skip
    return name
