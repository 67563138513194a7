"""The command `spar`: its subcommands, its own options and its exit codes.

Each error is one sentence on standard error and a code of `spar.service.exit_codes`. With `--json` the answer on
standard output is one JSON value, for scripts.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
from io import StringIO
from itertools import islice
from pathlib import Path
from typing import Final

import click

from spar import __version__
from spar.cli.context import Options
from spar.cli.lazy import LazyGroup
from spar.data.text import printable
from spar.service import exit_codes as exits

#: New objects after which the garbage collector runs, which takes half a millisecond then.
YOUNG: Final = 10_000


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "-c", "--config", "config_path", type=click.Path(path_type=Path), help="The file (default: ./config.toml)."
)
@click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a setting: --set log.level=debug."
)
@click.option("--json", "as_json", is_flag=True, help="Answer with one JSON value.")
@click.version_option(__version__, message="spar %(version)s")
@click.pass_context
def cli(context: click.Context, config_path: Path | None, overrides: tuple[str, ...], as_json: bool) -> None:
    """A continuous agent: it senses, plans, acts and reflects, forever.

    \b
    Examples:
      spar init                        a commented config.toml
      spar run                         the service, in the foreground
      spar status                      what it is doing
      spar send "how are you?"         a message, and its answer
      spar chat                        a conversation
      spar approvals list              what it asks you
      spar cycles list                 what it did
      spar memory search "disk"        what it remembers
      spar step sense                  one phase, for debugging
      spar config check                is the configuration right?

    The options below may be written before or after the command: spar status --json
    """
    context.obj = Options(config_path, overrides, as_json)


def main(arguments: list[str] | None = None) -> None:
    """Run a command and exit with its code.

    Args: arguments: the command line without the program; default: `sys.argv`.
    """
    _open_standard_streams()
    _collect_less_often()
    sys.exit(_code(arguments))


def _collect_less_often() -> None:
    """Let the garbage collector run less often while the command imports modules, and not at all at the exit.

    Imported modules stay in memory. With the default threshold of 700 new objects and the full collection at the exit,
    which frees nothing, the collector takes a third of the time of a command that loads every part.
    """
    gc.set_threshold(YOUNG)
    atexit.register(gc.freeze)


def _open_standard_streams() -> None:
    """Open standard streams that the parent process has closed, so that no other file gets one of their numbers."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115


def hoisted(arguments: list[str]) -> list[str]:
    """Move the options of `spar` itself to the front: people may write them behind the command."""
    front, others, words = [], [], iter(arguments)
    for word in words:
        if word == "--":
            others += [word, *words]
        elif word in ("-c", "--config", "--set"):
            front += [word, *islice(words, 1)]
        elif word == "--json" or word.startswith(("--config=", "--set=")):
            front.append(word)
        else:
            others.append(word)
    return [*front, *others]


def _code(arguments: list[str] | None) -> int:
    try:
        code = cli.main(
            hoisted(sys.argv[1:] if arguments is None else arguments), prog_name="spar", standalone_mode=False
        )
    except click.exceptions.Abort:
        return exits.INTERRUPTED
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return exits.USAGE
    except click.UsageError as error:
        message = StringIO()
        error.show(message)  # it quotes the arguments, which may contain control characters
        click.echo(printable(message.getvalue()), nl=False, err=True)
        return exits.USAGE
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except KeyboardInterrupt:
        return exits.INTERRUPTED
    return code if isinstance(code, int) else exits.OK
