"""Completion: the command that installs it in a shell, and the words that only the running service knows.

Such words are sessions, runs, approvals: those that the listing of the noun has. A completion must neither take long
nor print an error. If no service answers in time, or it refuses, there are no completions.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem, get_completion_class
from msgspec import Struct

from spar.cli.blocks import cells
from spar.cli.context import Options, fail, file_errors, show, write
from spar.data.text import is_hidden, safe_line
from spar.service import exit_codes as exits

if TYPE_CHECKING:
    from spar.operations.operation import Operation

#: Seconds that the service may take, and number of offered words.
WITHIN, MOST = 1.5, 100
#: Characters of a description.
_LINE = 60


def names(context: click.Context, incomplete: str, operation: Operation[Any, Any], field: str) -> list[CompletionItem]:
    """Return the values that a field of an operation's path, or its session, can have: those of the listing, in its
    order, described by their rows."""
    from spar.operations.operation import commands_of

    noun, path = operation.name.split()[0], operation.path.partition("/{")[0]
    if field == "session":
        noun, path, field = "sessions", "/v1/sessions", "key"
    listings = ((verb, listing) for verb, listing in commands_of(noun).items()
                if listing.is_read and listing.path == path)  # fmt: skip
    verb, listing = next(listings, ("", None))
    if listing is None or (answer := _answer(context, listing, listing.given(limit=MOST))) is None:
        return []
    form, items = listing.commands[verb], []
    for row in answer if form.rows is None else form.rows(answer):
        word = str(getattr(row, field) if isinstance(row, Struct) else row[0])
        is_plain = not any(is_hidden(sign) or sign in " '\"`$\\\n" for sign in word)  # for a shell
        if word.startswith(incomplete) and is_plain:
            about = ", ".join(text for text in cells(form.columns, row) if text not in ("", word))
            items.append(CompletionItem(word, help=safe_line(about, _LINE)))
    return items[:MOST]


def _answer(context: click.Context, operation: Operation[Any, Any], given: Any) -> Any:
    """Return the answer of the running service; None if no answer comes in time or any error occurs."""
    from spar.client.client import Client

    params = context.find_root().params
    answers: list[Any] = []
    try:
        options = Options(params.get("config_path"), tuple(params.get("overrides") or ()), as_json=True)
        client = Client(options.state_dir(), timeout=WITHIN)
    except (Exception, SystemExit):  # a completion cannot report errors
        return None

    def ask() -> None:
        with suppress(Exception):
            answers.append(client.call(operation, given))

    asking = threading.Thread(target=ask, name="completion", daemon=True)
    asking.start()
    asking.join(WITHIN)  # the client repeats requests to a starting service, which would take too long here
    return answers[0] if answers else None


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
